"""The durable, bounded memory of labelled embeddings on a device: a folder (see docs/datastore.md).

`backup` and `rebuild` are doors of their own: what a device does once a year shall not be loaded every day.
"""

from edge_sdk.datastore.kept_inputs import InputsSpec, KeptInputs
from edge_sdk.datastore.manifest import POLICIES, Manifest
from edge_sdk.datastore.reader import Block
from edge_sdk.datastore.slots import DTYPES, HEADER_BYTES, entries_bytes, slot_bytes
from edge_sdk.datastore.store import DEFAULT_LOCK_WAIT, Datastore
from edge_sdk.datastore.table import SlotTable

__all__ = [
    "DEFAULT_LOCK_WAIT",
    "DTYPES",
    "HEADER_BYTES",
    "POLICIES",
    "Block",
    "Datastore",
    "InputsSpec",
    "KeptInputs",
    "Manifest",
    "SlotTable",
    "entries_bytes",
    "slot_bytes",
]
