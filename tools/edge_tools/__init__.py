"""The command line, measurements and evaluation around edge-sdk."""

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # before any command imports onnxruntime, see edge_sdk.runtime
