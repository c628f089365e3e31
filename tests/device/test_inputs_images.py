"""Pictures: the right pixels, whatever the file, and the same ones by every way in."""

import base64
import io
import json
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms

from edge_sdk.encoder import as_batch
from edge_sdk.errors import InputError, ModelFileError
from edge_sdk.inputs import open_source
from edge_sdk.inputs.images import EXACT_PIXELS, ImageDecoder
from edge_sdk.model import InputSpec

UNDO = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}
"""EXIF orientation -> how a camera held that way stores an upright picture."""


def spec(shape: tuple[int, ...] = (20, 40, 3), dtype: str = "uint8", **preprocessing: Any) -> InputSpec:
    return InputSpec(name="x", shape=shape, dtype=dtype, kind="image", preprocessing=preprocessing)


def encoded(image: Image.Image, form: str, **settings: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **settings)
    return buffer.getvalue()


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (20, 40, 3), np.uint8)


def decode(picture: object, **preprocessing: Any) -> np.ndarray:
    return ImageDecoder(spec(**preprocessing)).decode(picture)


@pytest.mark.parametrize("form", ["PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_all_orientations_of_a_picture_are_one_sample(pixels: np.ndarray, form: str, orientation: int) -> None:
    upright = Image.fromarray(pixels)
    stored = upright.transpose(UNDO[orientation]) if orientation in UNDO else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    settings = {"lossless": True} if form == "WEBP" else {}
    np.testing.assert_array_equal(decode(encoded(stored, form, exif=exif, **settings)), pixels)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_all_orientations_of_a_large_jpeg_agree(orientation: int) -> None:
    coarse = np.random.default_rng(1).integers(0, 256, (10, 20, 3), np.uint8)
    upright = Image.fromarray(np.kron(coarse, np.ones((160, 160, 1), np.uint8)))
    assert upright.width * upright.height > EXACT_PIXELS
    stored = upright.transpose(UNDO[orientation]) if orientation in UNDO else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    decoder = ImageDecoder(spec((10, 20, 3)))
    wanted, found = decoder.decode(encoded(upright, "JPEG")), decoder.decode(encoded(stored, "JPEG", exif=exif))
    np.testing.assert_allclose(found.astype(int), wanted.astype(int), atol=2)


def test_file_bytes_array_and_json_give_the_same_sample(pixels: np.ndarray, tmp_path: Path) -> None:
    content = encoded(Image.fromarray(pixels), "PNG")
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "a.png").write_bytes(content)
    (tmp_path / "list.csv").write_text("path,label\ncat/a.png,cat\n")
    (tmp_path / "lines.jsonl").write_text(json.dumps({"image": base64.b64encode(content).decode(), "label": "cat"}))
    small = spec((8, 8, 3))
    wanted = ImageDecoder(small).decode(content)
    np.testing.assert_array_equal(ImageDecoder(small).decode(pixels), wanted)
    np.testing.assert_array_equal(ImageDecoder(small).decode(tmp_path / "cat" / "a.png"), wanted)
    for name in ("cat/a.png", "cat", "list.csv", "lines.jsonl"):
        (batch,) = open_source(tmp_path / name, small).batches()
        np.testing.assert_array_equal(batch.x[0], wanted, err_msg=name)
    for name in ("list.csv", "lines.jsonl"):
        assert next(open_source(tmp_path / name, small).batches()).labels == ["cat"]


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_sixteen_bit_ramp_is_scaled_and_not_clipped(form: str) -> None:
    ramp = np.linspace(0, 65535, 256).round().astype(np.uint16).reshape(16, 16)
    found = ImageDecoder(spec((16, 16, 1))).decode(encoded(Image.fromarray(ramp), form))
    np.testing.assert_array_equal(found[:, :, 0].ravel(), np.arange(256))


def test_sixteen_bit_portable_grey_map_is_scaled() -> None:
    ramp = np.linspace(0, 65535, 256).round().astype(">u2")
    found = ImageDecoder(spec((16, 16, 1))).decode(b"P5 16 16 65535\n" + ramp.tobytes())
    np.testing.assert_array_equal(found.ravel(), np.arange(256))


def test_transparent_pixels_show_the_background() -> None:
    clear = Image.new("RGBA", (40, 20), (255, 0, 0, 0))
    assert (decode(encoded(clear, "PNG")) == 255).all()
    assert (decode(encoded(clear, "PNG"), background=[0, 10, 20]) == (0, 10, 20)).all()
    half = Image.new("RGBA", (40, 20), (255, 0, 0, 128))
    np.testing.assert_allclose(decode(encoded(half, "PNG"))[0, 0], (255, 127, 127), atol=1)


def test_transparent_palette_colour_shows_the_background() -> None:
    palette = Image.new("P", (40, 20), 0)
    palette.putpalette([255, 0, 0, 0, 255, 0])
    palette.paste(1, (20, 0, 40, 20))
    found = decode(encoded(palette, "PNG", transparency=0))
    assert (found[:, :20] == 255).all()
    assert (found[:, 20:] == (0, 255, 0)).all()


def test_transparent_edge_does_not_bleed_the_hidden_colour() -> None:
    image = Image.new("RGBA", (80, 40), (255, 0, 0, 0))
    image.paste((0, 0, 255, 255), (0, 0, 40, 40))
    found = decode(encoded(image, "PNG"))
    assert (found[:, :, 0] >= found[:, :, 1]).all()
    assert (found[:, :, 0].astype(int) - found[:, :, 1] <= 1).all()  # no red from the transparent half


def test_grey_with_alpha_and_one_bit_pictures_become_rgb() -> None:
    grey = Image.new("LA", (40, 20), (100, 255))
    assert (decode(encoded(grey, "PNG")) == 100).all()
    bits = Image.new("1", (40, 20), 1)
    assert (decode(encoded(bits, "PNG")) == 255).all()


def test_cmyk_jpeg_has_three_channels_and_its_colours() -> None:
    cmyk = Image.new("CMYK", (40, 20), (255, 0, 0, 0))  # pure cyan ink
    np.testing.assert_allclose(decode(encoded(cmyk, "JPEG", quality=95))[0, 0], (0, 255, 255), atol=3)


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "TIFF"])
def test_first_frame_of_an_animation_is_taken_and_counted(form: str) -> None:
    frames = [Image.new("RGB", (40, 20), colour) for colour in ((255, 0, 0), (0, 255, 0), (0, 0, 255))]
    settings = {"lossless": True} if form == "WEBP" else {}
    decoder = ImageDecoder(spec())
    found = decoder.decode(encoded(frames[0], form, save_all=True, append_images=frames[1:], **settings))
    assert (found == (255, 0, 0)).all()
    assert decoder.first_frames == 1


def test_wide_colour_profile_is_converted_and_srgb_is_left_alone() -> None:
    image = Image.new("RGB", (40, 20), (200, 100, 50))
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    assert (decode(encoded(image, "PNG", icc_profile=srgb)) == (200, 100, 50)).all()
    found = decode(encoded(image, "PNG", icc_profile=_swapped_profile(srgb)))[0, 0]
    np.testing.assert_allclose(found, (100, 200, 50), atol=2)  # its red is our green


def _swapped_profile(srgb: bytes) -> bytes:
    """An sRGB profile whose red and green primaries have changed places, under another name."""
    tags = {
        srgb[start : start + 4]: start for start in range(132, 132 + 12 * struct.unpack(">I", srgb[128:132])[0], 12)
    }
    swapped = bytearray(srgb)
    red, green = tags[b"rXYZ"], tags[b"gXYZ"]
    swapped[red + 4 : red + 12], swapped[green + 4 : green + 12] = (
        srgb[green + 4 : green + 12],
        srgb[red + 4 : red + 12],
    )
    return bytes(swapped).replace("sRGB".encode("utf-16-be"), "Tilt".encode("utf-16-be"))


def test_broken_colour_profile_does_not_cost_the_picture() -> None:
    image = Image.new("RGB", (40, 20), (200, 100, 50))
    assert (decode(encoded(image, "PNG", icc_profile=b"nothing of the kind")) == (200, 100, 50)).all()


@pytest.mark.parametrize(
    ("fit", "columns"),
    [("crop", [1, 1, 1, 1]), ("stretch", [0, 1, 1, 2]), ("pad", [0, 1, 1, 2])],
)
def test_fit_decides_what_happens_to_a_wide_picture(fit: str, columns: list[int]) -> None:
    third = np.repeat(np.arange(3, dtype=np.uint8) * 50, [8, 16, 8])  # 0 | 50 50 | 100
    wide = np.repeat(third[None, :, None], 16, axis=0).repeat(3, axis=2)  # (16, 32, 3)
    decoder = ImageDecoder(spec((16, 4, 3) if fit != "pad" else (16, 32, 3), fit=fit, resampling="nearest"))
    found = decoder.decode(wide)
    if fit == "pad":
        np.testing.assert_array_equal(found, wide)
    else:
        assert (found[8, :, 0] // 50).tolist() == columns


def test_padding_is_the_background() -> None:
    decoder = ImageDecoder(spec((8, 8, 3), fit="pad", background=[1, 2, 3]))
    found = decoder.decode(np.full((4, 8, 3), 9, np.uint8))
    assert (found[:2] == (1, 2, 3)).all()
    assert (found[2:6] == 9).all()
    assert (found[6:] == (1, 2, 3)).all()


def test_rules_as_the_exporter_writes_them() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)
    last = ImageDecoder(spec((4, 6, 3), layout="nhwc", colour="rgb")).decode(pixels)
    np.testing.assert_array_equal(last, pixels)
    first = ImageDecoder(spec((3, 4, 6), layout="nchw", colour="rgb")).decode(pixels)
    np.testing.assert_array_equal(first, pixels.transpose(2, 0, 1))
    np.testing.assert_array_equal(ImageDecoder(spec((4, 6, 3), colour="bgr")).decode(pixels), pixels[:, :, ::-1])
    assert ImageDecoder(spec((1, 4, 6), layout="nchw", colour="grey")).decode(pixels).shape == (1, 4, 6)


def test_layout_range_mean_and_std_follow_the_spec() -> None:
    decoder = ImageDecoder(spec((3, 4, 4), "float32", range=[0, 1], mean=[0.5, 0.0, 0.0], std=[0.25, 1.0, 1.0]))
    found = decoder.decode(np.full((4, 4, 3), 255, np.uint8))
    np.testing.assert_allclose(found, np.array([2.0, 1.0, 1.0], np.float32)[:, None, None] * np.ones((3, 4, 4)))
    assert found.dtype == np.float32
    assert ImageDecoder(spec((4, 4), "uint8")).decode(np.full((4, 4, 3), 7, np.uint8)).shape == (4, 4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"shape": (6, 100)} | {"fit": "squeeze"},
        {"shape": (5, 5, 5)},
        {"hue": 3},
        {"fit": "squeeze"},
        {"colour": "grey"},
        {"layout": "nchw"},
        {"mean": [1, 2]},
        {"mean": [0.5]},  # for uint8 pixels
        {"background": "white"},
    ],
)
def test_rules_that_are_not_understood_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ModelFileError):
        ImageDecoder(spec(**wrong))


def test_extreme_shapes_are_decoded_in_little_memory() -> None:
    for size in ((1, 1), (1, 5000), (5000, 1), (3, 2000)):
        assert decode(encoded(Image.new("RGB", size, (1, 2, 3)), "PNG")).shape == (20, 40, 3)


def test_large_jpeg_is_decoded_small_and_a_large_png_is_refused() -> None:
    plain = Image.new("RGB", (12_000, 9000), (30, 60, 90))  # 108 megapixels
    np.testing.assert_allclose(decode(encoded(plain, "JPEG"))[0, 0], (30, 60, 90), atol=3)
    with pytest.raises(InputError, match="12000 x 9000 pixels, at most 24 million"):
        decode(encoded(plain, "PNG", compress_level=1))


def test_pixels_of_another_kind_are_refused() -> None:
    for wrong in (np.zeros((4, 4, 2), np.uint8), np.zeros((4, 4, 3), np.float32), np.zeros((0, 4), np.uint8), 7):
        with pytest.raises(InputError):
            decode(wrong)


def test_special_file_in_a_folder_is_not_waited_for(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe.png")
    found: list[str] = []

    def run() -> None:
        try:
            decode(tmp_path / "pipe.png")
        except InputError as error:
            found.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(5)
    assert found == ["not a regular file"]


def test_ten_photos_of_which_two_are_cut_give_eight(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    for number in range(10):
        photo = Image.fromarray(np.random.default_rng(number).integers(0, 256, (64, 64, 3), np.uint8))
        content = encoded(photo, "JPEG")
        (tmp_path / "cat" / f"{number}.jpg").write_bytes(content[: len(content) // 2] if number in (3, 7) else content)
    (batch,) = open_source(tmp_path, spec()).batches()
    assert (len(batch), batch.labels) == (8, ["cat"] * 8)
    assert [refused.name for refused in batch.refused] == ["cat/3.jpg", "cat/7.jpg"]
    assert all("cut short" in refused.reason for refused in batch.refused)


def test_folder_labels_are_its_first_level_in_the_order_of_names(tmp_path: Path) -> None:
    for name in ("b/2.png", "b/1.png", "a/deep/er/3.png", "loose.png", ".hidden/4.png", "__MACOSX/5.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(encoded(Image.new("L", (4, 4)), "PNG"))
    source = open_source(tmp_path, spec(), labels="required")
    (batch,) = source.batches()
    assert batch.names == ["a/deep/er/3.png", "b/1.png", "b/2.png"]
    assert batch.labels == ["a", "b", "b"]
    assert [refused.name for refused in batch.refused] == ["loose.png"]
    assert "folder .hidden 1" in source.notes[0]
    (all_of_them,) = open_source(tmp_path, spec(), label="cat").batches()
    assert all_of_them.labels == ["cat"] * 4


def test_folder_without_pictures_or_labels_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no files"):
        open_source(tmp_path, spec())
    (tmp_path / "a.png").write_bytes(encoded(Image.new("L", (4, 4)), "PNG"))
    with pytest.raises(InputError, match="--label"):
        open_source(tmp_path, spec(), labels="required")


def test_pictures_for_a_model_of_numbers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(encoded(Image.new("L", (4, 4)), "PNG"))
    with pytest.raises(InputError, match="not pictures"):
        open_source(tmp_path / "a.png", InputSpec(name="x", shape=(2, 3)))


def test_manifest_names_the_line_and_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(encoded(Image.new("L", (4, 4)), "PNG"))
    (tmp_path / "list.tsv").write_text("label\tfile\tnote\ncat\ta.png\tx\ndog\tnowhere.png\ty\n\ta.png\tz\n")
    (batch,) = open_source(tmp_path / "list.tsv", spec(), labels="required").batches()
    assert (batch.labels, batch.names) == (["cat"], ["list.tsv line 2 (a.png)"])
    assert [refused.name for refused in batch.refused] == ["list.tsv line 3 (nowhere.png)", "list.tsv line 4 (a.png)"]


def test_manifest_of_arrays_feeds_a_model_of_numbers(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(6.0).reshape(2, 3))
    np.save(tmp_path / "b.npy", np.arange(5.0))
    (tmp_path / "list.csv").write_text("path,label\na.npy,up\nb.npy,up\n")
    (batch,) = open_source(tmp_path / "list.csv", InputSpec(name="x", shape=(2, 3))).batches()
    np.testing.assert_array_equal(batch.x, np.arange(6.0).reshape(1, 2, 3))
    assert "holds shape (5,), expected (2, 3)" in batch.refused[0].reason


def test_predictor_takes_a_picture_in_every_form(pixels: np.ndarray, tmp_path: Path) -> None:
    small = spec((8, 8, 3))
    (tmp_path / "a.png").write_bytes(content := encoded(Image.fromarray(pixels), "PNG"))
    wanted = ImageDecoder(small).decode(pixels)
    forms: list[object] = [
        tmp_path / "a.png",
        str(tmp_path / "a.png"),
        content,
        Image.fromarray(pixels),
        pixels,
        wanted,
    ]
    for form in forms:
        batch, is_sample = as_batch(form, small)
        assert is_sample
        np.testing.assert_array_equal(batch, wanted[None])
    batch, is_sample = as_batch(forms[:5], small)
    assert (batch.shape, is_sample) == ((5, 8, 8, 3), False)
    assert as_batch(np.stack([wanted] * 3), small)[0].shape == (3, 8, 8, 3)
    with pytest.raises(InputError, match="input 1: empty file"):
        as_batch([content, b""], small)
    with pytest.raises(InputError, match=r"nowhere\.png: cannot read it"):
        as_batch(tmp_path / "nowhere.png", small)


def test_pillow_image_that_breaks_off_is_refused(pixels: np.ndarray) -> None:
    content = encoded(Image.fromarray(pixels), "PNG")
    with pytest.raises(InputError, match="cut short"):
        as_batch(Image.open(io.BytesIO(content[:200])), spec())
