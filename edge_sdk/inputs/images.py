"""ImageDecoder: a picture, however it arrives, -> the pixels that the model file wants.

One path for files, bytes and arrays, so that the same picture gives the same embedding at learning and at predicting:
open by content, orient, make it grey or RGB, fit, composite on the background, convert the colour profile, lay out.
Memory is bounded before anything is decoded: at most `LARGEST_PIXELS` pixels, and a JPEG of more than `EXACT_PIXELS` is
decoded at a half, a quarter or an eighth of its size (libjpeg's own scaling), so a 200-megapixel photo takes little
more than a thumbnail.

Only formats that cameras and programs write are opened; the rarer half of Pillow's plugins is where its security faults
were found.
"""

import hashlib
import io
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

try:
    from PIL import Image, ImageCms, ImageFile
except ImportError as missing:  # pragma: no cover - Pillow is part of every install
    raise ImportError("Pillow is not installed: pip install Pillow") from missing

from edge_sdk.errors import InputError, ModelFileError
from edge_sdk.model import InputSpec

LARGEST_PIXELS = 24_000_000
"""Most pixels that are decoded: 96 MB, twice while a mode is converted."""

LARGEST_WEBP_PIXELS = 9_000_000
"""The same for WebP, whose decoder holds about 20 bytes a pixel."""

EXACT_PIXELS = 2_000_000
"""A JPEG up to this size is decoded as it is; a larger one at the smallest scale that leaves twice the model's size."""

LARGEST_FILE = 64 << 20
"""Most bytes of one picture."""

FORMATS = ("JPEG", "MPO", "PNG", "GIF", "WEBP", "BMP", "TIFF", "PPM", "AVIF")
_HEAD_BYTES = 64
_KEPT_TRANSFORMS = 8
_KEYS = {"layout", "colour", "fit", "resize", "background", "range", "mean", "std", "resampling"}
_RESAMPLING = {"nearest": Image.Resampling.NEAREST, "bilinear": Image.Resampling.BILINEAR}
_RESAMPLING |= {"bicubic": Image.Resampling.BICUBIC, "lanczos": Image.Resampling.LANCZOS}
_FITS = ("crop", "pad", "stretch")
_ORIENTATION_TAG = 0x0112
_TRANSPOSED = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""EXIF orientation -> what undoes it (Exif 2.3, 4.6.4 A)."""

_DEEP = ("I;16", "I;16L", "I;16B", "I;16N", "I")


class Size(NamedTuple):
    """Pixels."""

    width: int
    height: int


class ImageRules:
    """How pictures become samples, read from the model file's input spec.

    `spec.preprocessing` may hold: `layout` "nhwc" / "nchw" (default: by the shape) · `colour` "rgb", "bgr" or "grey"
    (default: by the shape) · `fit` "crop" (default: scale to cover, cut the middle), "pad" (scale to fit, background
    around) or "stretch" · `resize` length of the shorter side before the crop (default: the model's own) ·
    `resampling` "bilinear" (default), "nearest", "bicubic", "lanczos" · `background` [r, g, b] behind transparent
    pixels and padding (default white) · `range` [low, high] that pixel values 0 to 255 are mapped to (default: not
    mapped) · `mean`, `std` a channel, applied after that.
    """

    def __init__(self, spec: InputSpec) -> None:
        """Check the spec.

        Raises:
            ModelFileError: not a shape of pictures, or a rule that this edge-sdk does not know.
        """
        rules = spec.preprocessing
        unknown = sorted(set(rules) - _KEYS)
        if unknown:
            raise ModelFileError(
                f"the model file asks for image preprocessing {unknown[0]!r}, unknown here; upgrade edge-sdk"
            )
        self.dtype = np.dtype(spec.dtype)
        self.layout, self.size, self.channels = _read_shape(spec)
        colours = ("grey",) if self.channels == 1 else ("rgb", "bgr")
        self.colour = _choice(rules, "colour", colours, colours[0])
        self.fit = _choice(rules, "fit", _FITS, "crop")
        self.resampling = _RESAMPLING[_choice(rules, "resampling", tuple(_RESAMPLING), "bilinear")]
        self.resize = int(rules.get("resize", 0)) or None
        background = _numbers(rules.get("background", (255, 255, 255)), (3,), "background")
        self.background = (int(background[0]), int(background[1]), int(background[2]))
        self.range = _numbers(rules["range"], (2,), "range") if "range" in rules else None
        self.mean = _numbers(rules["mean"], (1, self.channels), "mean") if "mean" in rules else None
        self.std = _numbers(rules["std"], (1, self.channels), "std") if "std" in rules else None
        if self.dtype.kind != "f" and (self.range is not None or self.mean is not None or self.std is not None):
            raise ModelFileError(
                f"the model file takes {self.dtype} pixels and asks for range, mean or std; export it again"
            )

    @property
    def mode(self) -> str:
        """Pillow's mode of the finished picture."""
        return "L" if self.channels == 1 else "RGB"


class ImageDecoder:
    """Pictures by one model file's rules. Not to be shared between threads."""

    def __init__(self, spec: InputSpec) -> None:
        """Read the rules.

        Raises:
            ModelFileError: see `ImageRules`.
        """
        self.rules = ImageRules(spec)
        self._shape = spec.shape
        self._transforms: dict[bytes, ImageCms.ImageCmsTransform | None] = {}
        self.first_frames = 0
        """Animations of which the first frame was taken."""

    def decode(self, picture: object) -> np.ndarray:
        """One picture as a sample.

        Args:
            picture: a path, the bytes of a file, a Pillow image, or an array of uint8 pixels (height, width) or
                (height, width, 3 or 4).

        Returns:
            An array of the spec's shape and dtype.

        Raises:
            InputError: not a picture, cut short, too large, or of a kind that has no agreed meaning. The message does
            not
                repeat the path.
        """
        if isinstance(picture, np.ndarray):
            return self._finish(_from_array(picture))
        if isinstance(picture, (bytes, bytearray, memoryview)):
            return self._decode_stream(io.BytesIO(picture), len(picture))
        if isinstance(picture, Image.Image):
            return self._guarded(picture)
        if isinstance(picture, (str, os.PathLike)):
            return self._decode_file(Path(picture))
        raise InputError(f"a picture is a path, bytes or an array of pixels, got {type(picture).__name__}")

    def _decode_file(self, path: Path) -> np.ndarray:
        # Opened without blocking and looked at afterwards: a FIFO in a folder would wait for ever.
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            raise InputError(f"cannot read it: {error.strerror}") from error
        with os.fdopen(descriptor, "rb") as file:
            if not os.path.isfile(descriptor):
                raise InputError("not a regular file")
            return self._decode_stream(file, os.fstat(descriptor).st_size)

    def _decode_stream(self, file: Any, size: int) -> np.ndarray:
        head = file.read(_HEAD_BYTES)
        file.seek(0)
        _check_head(head, size)
        try:
            image = _open(file, head)
        except InputError:
            raise
        # Pillow's plugins raise whatever a damaged file provokes (OSError, SyntaxError, struct.error, KeyError, ...).
        except Exception as error:
            raise InputError(f"damaged or cut short ({_one_line(error)}); copy or save it again") from error
        with image:
            return self._guarded(image)

    def _guarded(self, image: Image.Image) -> np.ndarray:
        """`_finish`, with whatever decoding raises as an InputError."""
        try:
            _check_pixels(image.size, LARGEST_WEBP_PIXELS if image.format == "WEBP" else LARGEST_PIXELS, image)
            return self._finish(image)
        except InputError:
            raise
        except MemoryError as error:
            raise InputError("too large for this device's memory; make it smaller") from error
        except Exception as error:
            raise InputError(f"damaged or cut short ({_one_line(error)}); copy or save it again") from error

    def _finish(self, image: Image.Image) -> np.ndarray:
        """From an opened picture to a sample."""
        self._draft(image, turned=_orientation(image) >= 5)
        _refuse_pixels(Size(*image.size), LARGEST_PIXELS)
        image.load()
        profile = image.info.get("icc_profile")
        # Asked again: Pillow turns some formats (TIFF) by itself while loading.
        orientation = _orientation(image)
        plain = _plain(image)
        if orientation in _TRANSPOSED:
            plain = plain.transpose(_TRANSPOSED[orientation])
        coloured = self._coloured(self._scale(plain), profile if isinstance(profile, bytes) else b"")
        sample = self._laid_out(self._padded(coloured))
        self.first_frames += _is_animated(image)
        return sample

    def _draft(self, image: Image.Image, *, turned: bool) -> None:
        """Let libjpeg decode a large JPEG at a smaller scale."""
        if image.width * image.height <= EXACT_PIXELS or not isinstance(image, ImageFile.ImageFile):
            return
        size = Size(image.height, image.width) if turned else Size(*image.size)
        scaled = self._scaled(size)
        wanted = (2 * scaled.height, 2 * scaled.width) if turned else (2 * scaled.width, 2 * scaled.height)
        image.draft(None, wanted)

    def _scaled(self, size: Size) -> Size:
        """The whole picture's size after scaling, before any crop or padding."""
        target = self.rules.size
        if self.rules.fit == "stretch":
            return target
        choose = max if self.rules.fit == "crop" else min
        if self.rules.fit == "crop" and self.rules.resize is not None:
            factor = max(self.rules.resize / min(size), target.width / size.width, target.height / size.height)
        else:
            factor = choose(target.width / size.width, target.height / size.height)
        return Size(max(1, round(size.width * factor)), max(1, round(size.height * factor)))

    def _scale(self, image: Image.Image) -> Image.Image:
        """The picture at the model's size, or within it where the rest will be padding."""
        size = Size(*image.size)
        if self.rules.fit == "crop":
            return self._cover(image, size, self.rules.size)
        scaled = self._scaled(size)
        return image if scaled == size else image.resize(scaled, self.rules.resampling)

    def _padded(self, image: Image.Image) -> Image.Image:
        """In the middle of the background, where it is smaller than the model's size."""
        target = self.rules.size
        if image.size == target:
            return image
        # Through RGB, so that a coloured background has its right grey.
        canvas = Image.new("RGB", target, self.rules.background).convert(self.rules.mode)
        canvas.paste(image, ((target.width - image.width) // 2, (target.height - image.height) // 2))
        return canvas

    def _cover(self, image: Image.Image, size: Size, target: Size) -> Image.Image:
        """The middle of the picture that has the target's proportions, scaled in one step.

        Cutting first bounds the memory: a 5000 x 1 strip scaled to cover 224 x 224 would be 1 120 000 pixels wide.
        """
        factor = max(target.width / size.width, target.height / size.height)
        if self.rules.resize is not None:
            factor = max(factor, self.rules.resize / min(size))
        width, height = target.width / factor, target.height / factor
        if (width, height) == (size.width, size.height) == target:
            return image
        left, top = (size.width - width) / 2, (size.height - height) / 2
        box = (
            max(0.0, left),
            max(0.0, top),
            min(float(size.width), left + width),
            min(float(size.height), top + height),
        )
        return image.resize(target, self.rules.resampling, box=box)

    def _coloured(self, image: Image.Image, profile: bytes) -> Image.Image:
        """Converted to sRGB, composited, in the rules' mode."""
        alpha = image.getchannel("A") if image.mode == "RGBA" else None
        if alpha is not None:
            image = image.convert("RGB")
        if profile:
            image = self._in_srgb(image, profile)
        if alpha is not None:
            flat = Image.new("RGB", image.size, self.rules.background)
            flat.paste(image, mask=alpha)
            image = flat
        if image.mode == "CMYK":
            image = image.convert("RGB")
        return image if image.mode == self.rules.mode else image.convert(self.rules.mode)

    def _in_srgb(self, image: Image.Image, profile: bytes) -> Image.Image:
        """The picture with its colour profile applied; one that is broken or does not fit is left out of account."""
        key = hashlib.blake2b(image.mode.encode() + profile, digest_size=16).digest()
        if key not in self._transforms:
            if len(self._transforms) >= _KEPT_TRANSFORMS:
                self._transforms.pop(next(iter(self._transforms)))
            self._transforms[key] = _srgb_transform(profile, image.mode)
        transform = self._transforms[key]
        return image if transform is None else transform.apply(image)

    def _laid_out(self, image: Image.Image) -> np.ndarray:
        """Pixels in the spec's shape and dtype."""
        pixels = np.asarray(image, np.uint8).reshape(*self.rules.size[::-1], self.rules.channels)  # (H, W, C)
        sample: np.ndarray = pixels[:, :, ::-1] if self.rules.colour == "bgr" else pixels
        if self.rules.dtype.kind == "f":
            sample = sample.astype(np.float32)
            if self.rules.range is not None:
                low, high = self.rules.range
                sample = sample * np.float32((high - low) / 255) + np.float32(low)
            if self.rules.mean is not None:
                sample = sample - self.rules.mean
            if self.rules.std is not None:
                sample = sample / self.rules.std
        if self.rules.layout == "nchw":
            sample = sample.transpose(2, 0, 1)
        return np.ascontiguousarray(sample, self.rules.dtype).reshape(self._shape)


def _read_shape(spec: InputSpec) -> tuple[str, Size, int]:
    """(layout, size, channels) of the spec."""
    shape = spec.shape
    given = spec.preprocessing.get("layout")
    if len(shape) == 2 and given in (None, "nhwc"):
        return "nhwc", Size(shape[1], shape[0]), 1
    if len(shape) == 3:
        if given in (None, "nchw") and shape[0] in (1, 3):
            return "nchw", Size(shape[2], shape[1]), shape[0]
        if given in (None, "nhwc") and shape[2] in (1, 3):
            return "nhwc", Size(shape[1], shape[0]), shape[2]
    raise ModelFileError(
        f"the model file takes pictures of shape {shape} (layout {given or 'not given'}), "
        "expected height, width and 1 or 3 channels; export it again"
    )


def _choice(rules: dict[str, Any], name: str, choices: tuple[str, ...], default: str) -> str:
    value = rules.get(name, default)
    if value not in choices:
        raise ModelFileError(
            f"the model file asks for {name} {value!r}, this edge-sdk knows {', '.join(choices)}; upgrade edge-sdk"
        )
    return str(value)


def _numbers(value: object, lengths: tuple[int, ...], name: str) -> np.ndarray:
    """float32 numbers of one of the lengths."""
    try:
        numbers = np.atleast_1d(np.asarray(value, np.float32))
    except (TypeError, ValueError) as error:
        raise ModelFileError(
            f"the model file's image rule {name} is {value!r}, expected numbers; export it again"
        ) from error
    if numbers.ndim != 1 or len(numbers) not in lengths or not np.isfinite(numbers).all():
        raise ModelFileError(
            f"the model file's image rule {name} is {value!r}, expected {lengths[-1]} numbers; export it again"
        )
    return numbers


def _check_head(head: bytes, size: int) -> None:
    """Refuse by size and first bytes what Pillow would only call unidentified."""
    if size == 0:
        raise InputError("empty file")
    if size > LARGEST_FILE:
        raise InputError(f"has {size} bytes, at most {LARGEST_FILE} are read; save it as JPEG")
    if head[4:8] == b"ftyp":
        brand = head[8:12]
        if brand in (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1") and b"avif" not in head:
            raise InputError(
                "a HEIC picture, which Pillow cannot read; convert it to JPEG (iPhone: Formats, Most Compatible)"
            )
        if brand not in (b"avif", b"avis", b"mif1"):
            raise InputError("a video, not a picture; give single frames")
    if head[:4] == b"%PDF":
        raise InputError("a PDF, not a picture; save its pages as PNG")


def _open(file: Any, head: bytes) -> ImageFile.ImageFile:
    """Open by content with the first welcome format that takes the first bytes.

    Not by `Image.open`: that refuses a JPEG above 179 megapixels before `draft` could make it small.
    """
    Image.init()
    _check_webp(head)
    for name in FORMATS:
        if name not in Image.OPEN:
            continue
        factory, accept = Image.OPEN[name]
        accepted = accept(head[:16]) if accept is not None else True
        if not accepted or isinstance(accepted, str):
            continue
        file.seek(0)
        return factory(file, "")
    shown = head[:8].hex(" ") if head else ""
    raise InputError(f"not a picture that edge-sdk reads (it starts with {shown}); expected {', '.join(FORMATS)}")


def _check_webp(head: bytes) -> None:
    """Refuse a large WebP before its decoder allocates the canvas, which it does on opening."""
    if head[:4] != b"RIFF" or head[8:12] != b"WEBP" or len(head) < 30:
        return
    kind = head[12:16]
    if kind == b"VP8X":
        size = Size(1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little"))
    elif kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        size = Size(1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
    else:
        size = Size(int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF)
    _refuse_pixels(size, LARGEST_WEBP_PIXELS)


def _check_pixels(size: tuple[int, int], largest: int, image: Image.Image) -> None:
    """Refuse what would take too much memory to decode."""
    # A progressive JPEG keeps all its coefficients, 6 bytes a pixel, whatever scale it is decoded at.
    if image.format in ("JPEG", "MPO") and not image.info.get("progressive"):
        largest *= 64  # decoded at down to an eighth of either side
    _refuse_pixels(Size(*size), largest)


def _refuse_pixels(size: Size, largest: int) -> None:
    if size.width * size.height > largest:
        raise InputError(
            f"has {size.width} x {size.height} pixels, at most {largest / 1e6:.0f} million are decoded; make it smaller"
        )


def _orientation(image: Image.Image) -> int:
    """EXIF orientation, 1 (upright) when there is none or it cannot be read."""
    try:
        value = image.getexif().get(_ORIENTATION_TAG, 1)
    # Damaged EXIF must not cost the picture; Pillow raises what the bytes provoke.
    except Exception:  # noqa: BLE001
        return 1
    return value if isinstance(value, int) and value in _TRANSPOSED else 1


def _plain(image: Image.Image) -> Image.Image:
    """The same picture in mode L, RGB, RGBA or CMYK."""
    if image.mode in _DEEP:
        return Image.fromarray(_eight_bits(image))
    if image.mode == "F":
        raise InputError("has floating-point pixels, whose white is not agreed on; save it with 8 or 16 bits a channel")
    if "transparency" in image.info and image.mode in ("1", "L", "P", "RGB"):
        return image.convert("RGBA")
    if image.mode in ("L", "RGB", "RGBA", "CMYK"):
        return image
    if image.mode == "1":
        return image.convert("L")
    if image.mode in ("LA", "La", "PA", "RGBa"):
        return image.convert("RGBA")
    if image.mode in ("P", "YCbCr", "HSV", "RGBX"):
        return image.convert("RGB")
    raise InputError(f"has colour mode {image.mode}, which has no agreed conversion; save it as RGB")


def _eight_bits(image: Image.Image) -> np.ndarray:
    """16-bit grey as 8-bit grey: 65535 is 255, rounded. Pillow's own conversion clips at 255, so all turns white."""
    deep = np.asarray(image)
    grey = np.empty(deep.shape, np.uint8)
    for start in range(0, len(deep), 256):  # by rows, so that no 4-byte copy of the whole picture is made
        rows = deep[start : start + 256].astype(np.int64)
        if rows.size and (rows.min() < 0 or rows.max() > 65535):
            raise InputError("has 32-bit pixels, whose white is not agreed on; save it with 8 or 16 bits a channel")
        grey[start : start + 256] = (rows * 255 + 32767) // 65535
    return grey


def _from_array(pixels: np.ndarray) -> Image.Image:
    """An array of pixels as a picture."""
    if pixels.dtype == np.uint16 and pixels.ndim == 2:
        pixels = ((pixels.astype(np.int64) * 255 + 32767) // 65535).astype(np.uint8)
    if pixels.dtype != np.uint8:
        raise InputError(f"pixels are {pixels.dtype}, expected uint8 (0 to 255)")
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if not (pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (3, 4))) or 0 in pixels.shape:
        raise InputError(
            f"pixels have shape {pixels.shape}, expected (height, width), (height, width, 3) or (height, width, 4)"
        )
    _refuse_pixels(Size(pixels.shape[1], pixels.shape[0]), LARGEST_PIXELS)
    return Image.fromarray(np.ascontiguousarray(pixels))


def _is_animated(image: Image.Image) -> bool:
    """Whether there are more frames than the one that was taken."""
    try:
        return bool(getattr(image, "is_animated", False))
    # Asking reads the next frame's header, and a damaged second frame must not cost the first.
    except Exception:  # noqa: BLE001
        return False


def _srgb_transform(profile: bytes, mode: str) -> "ImageCms.ImageCmsTransform | None":
    """What takes pictures of `mode` with this profile to sRGB, or None where nothing is to be done or can be."""
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if "sRGB" in (source.profile.profile_description or ""):
            return None
        return ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB")
    except (ImageCms.PyCMSError, OSError, ValueError, TypeError, AttributeError):
        # A profile that is broken, or of another colour space than the pixels: viewers show such pixels as they are.
        return None


def _one_line(error: BaseException) -> str:
    return " ".join((str(error) or type(error).__name__).split())[:200]
