"""ONNX Runtime with its telemetry off: nothing leaves the device.

The official wheels of 1.29 and later report the model's name and hashes, the machine and counts of runs to their maker,
on Linux too, unless ORT_DISABLE_TELEMETRY is set before the library initialises (its Privacy.md). So this room sets it,
and is the one from which the package takes onnxruntime. Who wants the telemetry sets ORT_DISABLE_TELEMETRY=0.
"""

import os
import sys

_WAS_LOADED = "onnxruntime" in sys.modules
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime  # noqa: E402  (after the switch)

if _WAS_LOADED and os.environ["ORT_DISABLE_TELEMETRY"] == "1":
    # The application imported it first: its first report may be on its way, the ones about sessions are not made.
    onnxruntime.disable_telemetry_events()

__all__ = ["onnxruntime"]
