"""open_index: the kinds of index by their names on the command line."""

from typing import Any

from edge_sdk.datastore import Datastore
from edge_sdk.errors import ConfigError
from edge_sdk.neighbors.base import Index
from edge_sdk.neighbors.exact import ExactIndex

KINDS = ("exact", "annoy")
"""What `kind` may be, the default first."""


def open_index(kind: str, datastore: Datastore, **options: Any) -> Index:
    """Search over a datastore.

    Args:
        kind: one of `KINDS`.
        datastore: what to search.
        options: of `ExactIndex` (`ram_budget`) or `AnnoyIndex` (`trees`, `search_k`, `segment_entries`).

    Raises:
        ConfigError: unknown kind or option, or an option is out of range.
        MissingExtraError: "annoy" is asked for and not installed.
    """
    if kind not in KINDS:
        raise ConfigError(f'index is one of {", ".join(KINDS)}, got "{kind}"')
    try:
        if kind == "exact":
            return ExactIndex(datastore, **options)
        from edge_sdk.neighbors.annoy import AnnoyIndex  # the only file that imports annoy, and only when asked for

        return AnnoyIndex(datastore, **options)
    except TypeError as error:
        raise ConfigError(f"index {kind}: {error}") from error
