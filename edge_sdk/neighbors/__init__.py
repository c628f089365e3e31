"""Search over the datastore: the k stored entries nearest to a query."""

from edge_sdk.neighbors.base import Index, Neighbors
from edge_sdk.neighbors.exact import ExactIndex
from edge_sdk.neighbors.opening import KINDS, check_kind, choose_index, chosen_index, open_index
from edge_sdk.neighbors.recall import Recall, measure_recall

__all__ = [
    "KINDS",
    "ExactIndex",
    "Index",
    "Neighbors",
    "Recall",
    "check_kind",
    "choose_index",
    "chosen_index",
    "measure_recall",
    "open_index",
]
