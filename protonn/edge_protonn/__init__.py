"""ProtoNN training in numpy, with scikit-learn's k-means for the start; runs on a 64-bit Pi, without torch.

The door of the room: the only place that looks whether scikit-learn is there.
"""

from importlib.util import find_spec

from edge_sdk.errors import MissingExtraError

if find_spec("sklearn") is None:
    raise MissingExtraError("scikit-learn", "protonn")

from edge_protonn.settings import ProtoNNSettings
from edge_protonn.trainer import ProtoNN

__all__ = ["ProtoNN", "ProtoNNSettings"]
