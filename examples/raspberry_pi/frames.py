"""Where the pictures come from: the board's camera, a stream of JPEG pictures, or a folder.

The camera is asked through picamera2 where it is installed; otherwise rpicam-vid, which every Raspberry Pi OS has,
writes JPEG pictures into a pipe. (The picamera2 of Raspberry Pi OS 12 works with NumPy 1 only, see the README.)
"""

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

_SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp"}
_START, _END = b"\xff\xd8", b"\xff\xd9"
_LARGEST = 8 << 20
_SIZE = (640, 480)


class Frame(NamedTuple):
    """One picture."""

    picture: object
    """What a Predictor takes: a path, the bytes of a JPEG, or uint8 (height, width, 3)."""

    label: str | None
    """What it shows, where its folder says so."""


def from_folder(folder: Path) -> Iterator[Frame]:
    """The pictures below a folder in the order of their names; below a subfolder they carry its name as label."""
    paths = (path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES)
    for path in sorted(paths, key=lambda path: (path.name, str(path))):
        yield Frame(path, None if path.parent == folder else path.relative_to(folder).parts[0])


def from_stream(stream: IO[bytes]) -> Iterator[Frame]:
    """The pictures of a Motion JPEG stream: JPEG files one after the other, as rpicam-vid and ffmpeg write them."""
    waiting = b""
    while block := stream.read(65536):
        waiting += block
        while True:
            start = waiting.find(_START)
            end = waiting.find(_END, start + 2) if start >= 0 else -1
            if end < 0:
                break
            yield Frame(waiting[start : end + 2], None)
            waiting = waiting[end + 2 :]
        waiting = waiting[-_LARGEST:]


def from_camera(*, seconds: float) -> Iterator[Frame]:
    """One picture every `seconds`, for ever."""
    try:
        from picamera2 import Picamera2  # only a board has it
    except ImportError:
        yield from _from_rpicam(seconds)
        return
    camera = Picamera2()
    camera.configure(camera.create_still_configuration(main={"size": _SIZE, "format": "BGR888"}))
    camera.start()
    try:
        while True:
            yield Frame(np.ascontiguousarray(camera.capture_array()), None)
            time.sleep(seconds)
    finally:
        camera.close()


def _from_rpicam(seconds: float) -> Iterator[Frame]:
    program = shutil.which("rpicam-vid") or shutil.which("libcamera-vid")
    if program is None:
        raise SystemExit("no camera: neither picamera2 nor rpicam-vid is there; use --folder or --stream")
    width, height = _SIZE
    rate = str(max(1, round(1 / seconds)))
    command = [program, "--timeout", "0", "--nopreview", "--codec", "mjpeg", "--framerate", rate]
    with subprocess.Popen(
        [*command, "--width", str(width), "--height", str(height), "--output", "-"], stdout=subprocess.PIPE
    ) as process:
        try:
            if process.stdout is not None:
                yield from from_stream(process.stdout)
        finally:
            process.terminate()
