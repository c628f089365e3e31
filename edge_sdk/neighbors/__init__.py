"""Search over the datastore: the k stored entries nearest to a query."""

from edge_sdk.neighbors.base import Index, Neighbors
from edge_sdk.neighbors.exact import ExactIndex

__all__ = ["ExactIndex", "Index", "Neighbors"]
