"""On-device personalisation: a global model, a bounded memory of the user's examples, and their blend.

from edge_sdk import Predictor

with Predictor.open("watch.onnx", datastore="me.store") as predictor:
    predictor.learn(window, "typing")
    predictor.predict(window)
"""

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
from edge_sdk.predictor import Learnt, Prediction, Predictor, Voter
from edge_sdk.session import SessionSettings

__version__ = "0.1.0"

__all__ = [
    "ConfigError",
    "Datastore",
    "DatastoreError",
    "DatastoreLockedError",
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
    "SessionSettings",
    "Voter",
    "__version__",
]
