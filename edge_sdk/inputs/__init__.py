"""Inputs: what people have on their disks -> samples for the model file.

One source is one thing to read (an `.npz`, a folder, a stream); whatever it is, it gives `Batch`es of equal, finite
samples and names what it refused. A new kind of source is one new file in `sources/`: the door finds it there.
"""

from edge_sdk.inputs.base import Batch, Refused, Source
from edge_sdk.inputs.door import open_source

__all__ = ["Batch", "Refused", "Source", "open_source"]
