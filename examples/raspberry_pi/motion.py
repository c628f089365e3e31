"""Where the motion comes from: an MPU-6050 on the I²C pins, or a recording. Both give windows as the watch model
takes them.

One window is 5 s at 20 Hz of accelerometer and gyroscope, (6, 100), in steps of 0.02 m/s² and 0.01 rad/s.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

RATE = 20
LENGTH = 100
_ACCELERATION_STEP, _ROTATION_STEP = 0.02, 0.01


class Window(NamedTuple):
    """Five seconds."""

    values: np.ndarray
    """float32 (6, 100)."""

    label: str | None
    """What the wearer really did, where the recording knows."""


def replay(recording: Path, *, speed: float) -> Iterator[Window]:
    """The windows of an .npz with `x` (n, 6, 100) and perhaps `label` (n,).

    Args:
        recording: the file.
        speed: 1 is real time, 0 as fast as it goes.
    """
    with np.load(recording, allow_pickle=False) as archive:
        windows = archive["x"].astype(np.float32)
        labels = archive["label"].tolist() if "label" in archive else [None] * len(windows)
    next_at = time.monotonic()
    for values, label in zip(windows, labels, strict=True):
        if speed > 0:
            next_at += LENGTH / RATE / speed
            time.sleep(max(0.0, next_at - time.monotonic()))
        yield Window(values, None if label is None else str(label))


def sense(bus: int = 1, address: int = 0x68) -> Iterator[Window]:
    """Windows from an MPU-6050, for ever. Registers: its register map, revision 4.2, InvenSense 2013."""
    from smbus2 import SMBus  # only a board has it

    accelerometer_range, gyroscope_range = 0x08, 0x08  # ±4 g, ±500 °/s
    acceleration = 9.80665 / 8192 / _ACCELERATION_STEP
    rotation = np.pi / 180 / 65.5 / _ROTATION_STEP
    scale = np.array([acceleration] * 3 + [rotation] * 3, np.float32)
    with SMBus(bus) as i2c:
        i2c.write_byte_data(address, 0x6B, 0)  # wake up
        i2c.write_byte_data(address, 0x1A, 0x04)  # low-pass at 21 Hz, against aliasing
        i2c.write_byte_data(address, 0x1B, gyroscope_range)
        i2c.write_byte_data(address, 0x1C, accelerometer_range)
        next_at = time.monotonic()
        while True:
            values = np.empty((6, LENGTH), np.float32)
            for sample in range(LENGTH):
                next_at += 1 / RATE
                time.sleep(max(0.0, next_at - time.monotonic()))
                words = np.frombuffer(bytes(i2c.read_i2c_block_data(address, 0x3B, 14)), ">i2")
                values[:, sample] = words[[0, 1, 2, 4, 5, 6]] * scale  # word 3 is the temperature
            yield Window(np.round(values), None)
