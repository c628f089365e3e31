"""On-device personalisation: a global model, a bounded memory of the user's examples, and their blend.

from edge_sdk import Predictor

with Predictor.open("watch.onnx", datastore="me.store") as predictor:
    predictor.learn(window, "typing")
    predictor.predict(window)

Every name is loaded when it is first used: `import edge_sdk` costs a program nothing, and one that only looks into a
datastore never loads onnxruntime.
"""

import os
from typing import TYPE_CHECKING

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # before anybody imports onnxruntime, see edge_sdk.runtime

if TYPE_CHECKING:
    from edge_sdk.datastore import Datastore
    from edge_sdk.encoder import Encoder
    from edge_sdk.errors import (
        ConfigError,
        DatastoreError,
        DatastoreLockedError,
        EdgeSDKError,
        ExportError,
        InputError,
        MissingExtraError,
        ModelFileError,
    )
    from edge_sdk.interpolation import Interpolation
    from edge_sdk.model import InputSpec, ModelFile, ModelMetadata
    from edge_sdk.neighbors import Index, Neighbors
    from edge_sdk.prediction import Distributions, Learnt, Prediction, Voter
    from edge_sdk.predictor import Predictor
    from edge_sdk.record import Record
    from edge_sdk.session import SessionSettings
else:
    from importlib import import_module

    _ROOMS = {
        "ConfigError": "edge_sdk.errors",
        "Datastore": "edge_sdk.datastore",
        "DatastoreError": "edge_sdk.errors",
        "DatastoreLockedError": "edge_sdk.errors",
        "Distributions": "edge_sdk.prediction",
        "EdgeSDKError": "edge_sdk.errors",
        "Encoder": "edge_sdk.encoder",
        "ExportError": "edge_sdk.errors",
        "Index": "edge_sdk.neighbors",
        "InputError": "edge_sdk.errors",
        "InputSpec": "edge_sdk.model",
        "Interpolation": "edge_sdk.interpolation",
        "Learnt": "edge_sdk.prediction",
        "MissingExtraError": "edge_sdk.errors",
        "ModelFile": "edge_sdk.model",
        "ModelFileError": "edge_sdk.errors",
        "ModelMetadata": "edge_sdk.model",
        "Neighbors": "edge_sdk.neighbors",
        "Prediction": "edge_sdk.prediction",
        "Predictor": "edge_sdk.predictor",
        "Record": "edge_sdk.record",
        "SessionSettings": "edge_sdk.session",
        "Voter": "edge_sdk.prediction",
    }

    def __getattr__(name):  # noqa: ANN001, ANN202 (hidden from type checkers, which read the imports above)
        """Load a public name from its room, once."""
        if name not in _ROOMS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value = getattr(import_module(_ROOMS[name]), name)
        return value

    def __dir__():  # noqa: ANN202
        """The public names, loaded or not."""
        return sorted({*(name for name in globals() if name.startswith("__")), *_ROOMS})


__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "Datastore",
    "DatastoreError",
    "DatastoreLockedError",
    "Distributions",
    "EdgeSDKError",
    "Encoder",
    "ExportError",
    "Index",
    "InputError",
    "InputSpec",
    "Interpolation",
    "Learnt",
    "MissingExtraError",
    "ModelFile",
    "ModelFileError",
    "ModelMetadata",
    "Neighbors",
    "Prediction",
    "Predictor",
    "Record",
    "SessionSettings",
    "Voter",
    "__version__",
]
