"""Makes a folder of inputs as people really have them: good ones of every kind, and bad ones with what must be said of
them.

Everything is generated, nothing is downloaded. Each maker returns file name -> what to expect: `None` where the file is
good, else words of the one-line refusal. Pictures are for a model that takes 8 x 8 RGB, numbers for one of shape (2,
3), sounds for 800 frames at 8 kHz.

    python tests/data/make_bad_inputs.py FOLDER
"""

import base64
import io
import json
import struct
import sys
import wave
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Expected = dict[str, str | None]


def picture(size: tuple[int, int] = (40, 20)) -> Image.Image:
    """A picture whose four quarters differ, so that every turn of it shows."""
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    middle_y, middle_x = size[1] // 2, size[0] // 2
    pixels[:middle_y, :middle_x] = (255, 0, 0)
    pixels[:middle_y, middle_x:] = (0, 255, 0)
    pixels[middle_y:, :middle_x] = (0, 0, 255)
    pixels[middle_y:, middle_x:] = (200, 200, 100)
    return Image.fromarray(pixels)


def encoded(image: Image.Image, form: str, **settings: Any) -> bytes:
    """The bytes of a picture file."""
    buffer = io.BytesIO()
    image.save(buffer, form, **settings)
    return buffer.getvalue()


def make_pictures(folder: Path) -> Expected:
    """Pictures in `folder`, flat."""
    rgb = picture()
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8))
    jpeg, png = encoded(noise, "JPEG"), encoded(noise, "PNG")
    clear = rgb.convert("RGBA")
    clear.putalpha(0)
    deep = Image.fromarray(np.linspace(0, 65535, 800).astype(np.uint16).reshape(20, 40))
    frames = {"save_all": True, "append_images": [picture((20, 40)).resize((40, 20))], "duration": 50}
    good = {
        "plain.jpg": encoded(rgb, "JPEG"),
        "progressive.jpg": encoded(noise, "JPEG", progressive=True),
        "cmyk.jpg": encoded(rgb.convert("CMYK"), "JPEG"),
        "grey.jpg": encoded(rgb.convert("L"), "JPEG"),
        "clear.png": encoded(clear, "PNG"),
        "grey_alpha.png": encoded(rgb.convert("LA"), "PNG"),
        "palette.png": encoded(rgb.convert("P"), "PNG", transparency=0),
        "one_bit.png": encoded(rgb.convert("1"), "PNG"),
        "deep.png": encoded(deep, "PNG"),
        "deep.tif": encoded(deep, "TIFF"),
        "dot.png": encoded(Image.new("RGB", (1, 1), (9, 8, 7)), "PNG"),
        "strip.png": encoded(Image.new("RGB", (1, 5000), (9, 8, 7)), "PNG"),
        "animated.gif": encoded(rgb, "GIF", **frames),
        "animated.webp": encoded(rgb, "WEBP", lossless=True, **frames),
        "picture.bmp": encoded(rgb, "BMP"),
        "picture.ppm": encoded(rgb, "PPM"),
        "really_png.jpg": png,
        "no_suffix": png,
        "bad_exif.jpg": encoded(rgb, "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff"),
        "bad_profile.png": encoded(rgb, "PNG", icc_profile=b"no profile at all"),
        "name with spaces ünïcode.png": png,
    }
    bad: dict[str, tuple[bytes, str]] = {
        "half.jpg": (jpeg[: len(jpeg) // 2], "cut short"),
        "half.png": (png[: len(png) // 2], "cut short"),
        "half.gif": (encoded(noise, "GIF")[:1200], "cut short"),
        "half.webp": (encoded(noise, "WEBP")[:400], "cut short"),
        "empty.jpg": (b"", "empty file"),
        "text.jpg": (b"this is no picture, whatever its name says", "not a picture"),
        "zeros.jpg": (bytes(5000), "not a picture"),
        "phone.heic": (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(200), "HEIC"),
        "film.mov": (b"\0\0\0\x14ftypqt  \0\0\0\0qt  " + bytes(200), "video"),
        "paper.pdf": (b"%PDF-1.4\n" + bytes(100), "PDF"),
        "bomb.png": (_huge_png(60_000, 60_000), "million are decoded"),
        "bomb.webp": (_huge_webp(16_000, 16_000), "million are decoded"),
        "float.tif": (encoded(Image.fromarray(np.ones((9, 9), np.float32)), "TIFF"), "floating-point"),
        "lab.tif": (encoded(Image.new("LAB", (9, 9)), "TIFF"), "mode LAB"),
        "drawing.svg": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a picture"),
    }
    left_over = {
        ".DS_Store": b"\0\0\0\1Bud1",
        "Thumbs.db": b"\xd0\xcf",
        "._plain.jpg": b"\0\5\x16\7",
        "plain.jpg.json": b"{}",
    }
    contents = {**good, **left_over, **{name: content for name, (content, _) in bad.items()}}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {**dict.fromkeys(good), **{name: words for name, (_, words) in bad.items()}}


def _huge_png(width: int, height: int) -> bytes:
    """A PNG of a few bytes whose header promises gigabytes."""
    small = bytearray(encoded(Image.new("L", (1, 1)), "PNG"))
    header = b"IHDR" + struct.pack(">II", width, height) + small[24:29]
    small[12:33] = header + struct.pack(">I", zlib.crc32(header))
    return bytes(small)


def _huge_webp(width: int, height: int) -> bytes:
    """A lossless WebP of a few bytes whose header promises gigabytes."""
    bits = (width - 1) | (height - 1) << 14
    body = b"VP8L" + struct.pack("<I", 10) + b"\x2f" + struct.pack("<I", bits) + bytes(5)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


NUMBERS = [[1.5, 2.0, -3.0, 4.0, 5.0, 6.25], [7.0, 8.0, 9.0, 10.0, 11.0, 12.0]]
"""The two good rows of every table."""


def make_tables(folder: Path) -> Expected:
    """Tables that hold `NUMBERS` with labels a and b, or are wrong."""
    names = "a0,a1,a2,a3,a4,a5"
    rows = [",".join(map(str, row)) for row in NUMBERS]
    plain = f"{names},label\n{rows[0]},a\n{rows[1]},b\n"
    semicolons = plain.replace(",", ";")
    good = {
        "plain.csv": plain.encode(),
        "bom.csv": plain.encode("utf-8-sig"),
        "utf16.csv": plain.encode("utf-16"),
        "crlf.csv": plain.replace("\n", "\r\n").encode(),
        "semicolon.csv": semicolons.encode(),
        "decimal_comma.csv": semicolons.replace(".", ",").encode(),
        "tab.tsv": plain.replace(",", "\t").encode(),
        "label_first.csv": f"label,{names}\na,{rows[0]}\nb,{rows[1]}\n".encode(),
        "no_header.csv": f"{rows[0]},a\n{rows[1]},b\n".encode(),
        "no_header_label_first.csv": f"a,{rows[0]}\nb,{rows[1]}\n".encode(),
        "number_header.csv": f"0,1,2,3,4,5,label\n{rows[0]},a\n{rows[1]},b\n".encode(),
        "quoted_newline.csv": plain.replace("a0", '"a\n0"').encode(),
        "quoted.csv": f'{names},label\n{rows[0]},"a"\n{rows[1]},"b"\n'.encode(),
        "blank_lines.csv": plain.replace("\n", "\n\n").encode(),
        "spaces.csv": plain.replace(",", " , ").encode(),
        "no_last_newline.csv": plain.rstrip("\n").encode(),
        "axes.csv": f"x,y,z,u,v,w,label\n{rows[0]},a\n{rows[1]},b\n".encode(),
    }
    bad = {
        "ragged.csv": (plain + f"{rows[0]}\n", "line 4: has 6 values, expected 7"),
        "long_row.csv": (plain + f"{rows[0]},a,b\n", "line 4: has 8 values, expected 7"),
        "nan.csv": (plain + f"nan,{rows[0][4:]},a\n", 'line 4: column 1 holds "nan"'),
        "inf.csv": (plain + f"{rows[0][:-4]}inf,a\n", "line 4: column 6 holds"),
        "empty_cell.csv": (plain + f",{rows[0][4:]},a\n", "line 4: column 1 holds nothing"),
        "word.csv": (plain + f"one,{rows[0][4:]},a\n", 'line 4: column 1 holds "one"'),
        "underscore.csv": (plain + f"1_000,{rows[0][4:]},a\n", 'line 4: column 1 holds "1_000"'),
        "huge.csv": (plain + f"1e300,{rows[0][4:]},a\n", "line 4: holds 1e+300"),
        "no_label.csv": (plain + f"{rows[0]}, \n", "line 4: empty label"),
        "mixed_marks.csv": (semicolons.replace(".", ",") + "1.234;2;3;4;5;6;a\n", 'line 4: column 1 holds "1.234"'),
        "index.csv": (",".join(["", plain.split("\n")[0]]) + f"\n0,{rows[0]},a\n", "index=False"),
        "twice.csv": (plain.replace("a1", "a0"), 'two columns are called "a0"'),
        "narrow.csv": (plain.replace(",a5", "").replace(",6.25", "").replace(",12.0", ""), "takes 6 numbers a row"),
        "header_only.csv": (plain.split("\n")[0] + "\n", "holds no inputs"),
        "empty.csv": ("", "holds no rows"),
        "open_quote.csv": (plain + f'"{rows[0]},a\n{rows[1]},b\n', "lines 4 to 5"),
        "numbers_only.csv": (f"{rows[0]},1\n{rows[1]},2\n", "not clear"),
    }
    binary = {
        "latin1.csv": (plain.encode() + f"{rows[0]},é\n".encode("latin-1"), "line 4: holds bytes that are no UTF-8"),
        "zeros.csv": (bytes(100), "not text"),
        "utf16_no_mark.csv": (plain.encode("utf-16-le"), "not text"),
        "png.csv": (encoded(picture(), "PNG"), "not text"),
        "one_line.csv": (b"1," * 2_000_000, "longer than"),
    }
    wrong = {**{name: (text.encode(), words) for name, (text, words) in bad.items()}, **binary}
    for name, content in {**good, **{name: content for name, (content, _) in wrong.items()}}.items():
        (folder / name).write_bytes(content)
    return {**dict.fromkeys(good), **{name: words for name, (_, words) in wrong.items()}}


def make_json_lines(folder: Path) -> Expected:
    """JSON lines: the two rows of `NUMBERS`, then one line each that must be refused."""
    nested = [np.reshape(row, (2, 3)).tolist() for row in NUMBERS]
    good = [json.dumps({"x": nested[0], "label": "a"}), json.dumps({"x": NUMBERS[1], "label": "b", "name": "second"})]
    bad = {
        "shape.jsonl": ('{"x": [1, 2, 3], "label": "a"}', "has shape (3,)"),
        "ragged.jsonl": ('{"x": [[1, 2, 3], [4]], "label": "a"}', "ragged"),
        "nan.jsonl": ('{"x": [NaN, 2, 3, 4, 5, 6], "label": "a"}', "holds nan"),
        "inf.jsonl": ('{"x": [Infinity, 2, 3, 4, 5, 6], "label": "a"}', "holds inf"),
        "text.jsonl": ('{"x": ["1", 2, 3, 4, 5, 6], "label": "a"}', "no number"),
        "null.jsonl": ('{"x": [null, 2, 3, 4, 5, 6], "label": "a"}', "no number"),
        "bool.jsonl": ('{"x": [true, false, true, true, true, true], "label": "a"}', "no number"),
        "big.jsonl": ('{"x": [1' + "0" * 400 + ', 2, 3, 4, 5, 6], "label": "a"}', "no number"),
        "digits.jsonl": ('{"x": [1' + "0" * 5000 + ', 2, 3, 4, 5, 6], "label": "a"}', "not JSON"),
        "no_x.jsonl": ('{"y": [1, 2, 3, 4, 5, 6], "label": "a"}', "has no x"),
        "no_label.jsonl": ('{"x": [1, 2, 3, 4, 5, 6]}', "has no label"),
        "label_float.jsonl": ('{"x": [1, 2, 3, 4, 5, 6], "label": 1.0}', "a label is text"),
        "label_true.jsonl": ('{"x": [1, 2, 3, 4, 5, 6], "label": true}', "a label is text"),
        "cut.jsonl": ('{"x": [1, 2, 3', "not JSON"),
        "number.jsonl": ("7", "holds a int"),
        "deep.jsonl": ("[" * 100_000, "nested too deeply"),
        "wide.jsonl": ("[" + "0," * 100_000 + "0]", "far more values"),
        "image.jsonl": ('{"image": "AAAA", "label": "a"}', "not pictures"),
    }
    for name, (line, _) in bad.items():
        (folder / name).write_text("\n".join([*good, line]) + "\n", encoding="utf-8")
    (folder / "latin1.jsonl").write_bytes("\n".join(good).encode() + b'\n{"x": [1,2,3,4,5,6], "label": "\xe9"}\n')
    (folder / "good.jsonl").write_text("\ufeff" + "\r\n\r\n".join(good), encoding="utf-8")
    return {**{name: words for name, (_, words) in bad.items()}, "latin1.jsonl": "no UTF-8", "good.jsonl": None}


def sound(rate: int, seconds: float = 0.1, *, channels: int = 1, bits: int = 16) -> bytes:
    """A `.wav` of a 440 Hz tone at half of full scale, the same in every channel."""
    tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(round(rate * seconds)) / rate)
    frames = np.repeat(tone[:, None], channels, axis=1)
    if bits == 8:
        data = np.round(frames * 127 + 128).astype(np.uint8).tobytes()
    elif bits == 24:
        data = (
            np.round(frames * (2**23 - 1)).astype("<i4").reshape(-1, 1).view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
        )
    else:
        data = np.round(frames * (2 ** (bits - 1) - 1)).astype(f"<i{bits // 8}").tobytes()
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(bits // 8)
        file.setframerate(rate)
        file.writeframes(data)
    return buffer.getvalue()


def float_sound(rate: int, value: float = 0.5) -> bytes:
    """A `.wav` of 32-bit floats."""
    data = np.full(rate // 10, value, "<f4").tobytes()
    form = struct.pack("<HHIIHH", 3, 1, rate, rate * 4, 4, 32)
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def make_sounds(folder: Path) -> Expected:
    """Sounds for a model of 800 frames at 8 kHz, mono."""
    good = {f"{rate}.wav": sound(rate) for rate in (8000, 16_000, 44_100, 48_000)}
    good |= {f"{bits}_bits.wav": sound(8000, bits=bits) for bits in (8, 24, 32)}
    good |= {"stereo.wav": sound(8000, channels=2), "float.wav": float_sound(8000)}
    whole = sound(8000)
    bad = {
        "empty.wav": (b"", "empty file"),
        "silent.wav": (sound(8000, 0.0), "holds no sound"),
        "short.wav": (sound(8000, 0.05), "lasts 0.050 s"),
        "long.wav": (sound(8000, 0.2), "lasts 0.200 s"),
        "half.wav": (whole[: len(whole) // 2], "cut short"),
        "head.wav": (whole[:30], "cut short"),
        "text.wav": (b"RIFF, they said", "not a .wav"),
        "mp3.wav": (b"ID3\3" + bytes(100), "not a .wav"),
        "nan.wav": (float_sound(8000, np.nan), "NaN"),
        "adpcm.wav": (whole[:20] + b"\2\0" + whole[22:], "compressed"),
        "rate0.wav": (whole[:24] + bytes(4) + whole[28:], "damaged .wav header"),
    }
    for name, content in {**good, **{name: content for name, (content, _) in bad.items()}}.items():
        (folder / name).write_bytes(content)
    return {**dict.fromkeys(good), **{name: words for name, (_, words) in bad.items()}}


def as_base64(content: bytes) -> str:
    """Bytes as they travel in JSON."""
    return base64.b64encode(content).decode()


def main(folder: Path) -> None:
    """Write every kind into a folder of its own."""
    for maker in (make_pictures, make_tables, make_json_lines, make_sounds):
        inside = folder / maker.__name__.removeprefix("make_")
        inside.mkdir(parents=True, exist_ok=True)
        expected = maker(inside)
        sys.stdout.write(
            f"{inside}: {len(expected)} files, {sum(map(bool, expected.values()))} of them to be refused\n"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
