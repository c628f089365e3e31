"""open_index: the index that a datastore is searched with, by name or as it was chosen for that datastore.

What was chosen stands in the datastore's manifest and not in its `index/` folder, because that may be deleted at any
time, and then another index would answer without anybody having said so.
"""

import importlib.util
from typing import Any

from edge_sdk.datastore import Datastore
from edge_sdk.errors import ConfigError, DatastoreError, MissingExtraError
from edge_sdk.neighbors.base import Index
from edge_sdk.neighbors.exact import ExactIndex

KINDS = ("exact", "annoy")
"""What `kind` may be, the default first."""

_EXTENSION = "index"


def open_index(kind: str | None, datastore: Datastore, **options: Any) -> Index:
    """Search over a datastore.

    Args:
        kind: one of `KINDS`; None: what was chosen for this datastore (`choose_index`), "exact" at first.
        datastore: what to search.
        options: of `ExactIndex` (`ram_budget`) or `AnnoyIndex` (`trees`, `search_k`, `segment_entries`). Those that are
            left out are as they were chosen for this datastore, if they were chosen for this kind.

    Raises:
        ConfigError: unknown kind or option, or an option is out of range.
        MissingExtraError: "annoy" is asked for, or was chosen, and is not installed.
        DatastoreError: what was chosen is no index of this version.
    """
    chosen = chosen_index(datastore)
    if kind is None:
        kind = chosen["kind"]
        if kind not in KINDS:
            raise DatastoreError(
                f'{datastore.folder}: searched with the index "{kind}", this version has {", ".join(KINDS)}; '
                f"upgrade edge-sdk, or choose another: edge-sdk index {datastore.folder} --kind exact"
            )
    check_kind(kind)
    if chosen["kind"] == kind:
        options = {**{name: value for name, value in chosen.items() if name != "kind"}, **options}
    try:
        if kind == "exact":
            return ExactIndex(datastore, **options)
        from edge_sdk.neighbors.annoy import AnnoyIndex  # the only file that imports annoy, and only when asked for

        return AnnoyIndex(datastore, **options)
    except TypeError as error:
        raise ConfigError(f"index {kind}: {error}") from error


def check_kind(kind: str) -> None:
    """Whether there is such an index here.

    Raises:
        ConfigError: unknown.
        MissingExtraError: its package is not installed.
    """
    if kind not in KINDS:
        raise ConfigError(f'index is one of {", ".join(KINDS)}, got "{kind}"')
    if kind == "annoy" and importlib.util.find_spec("annoy") is None:
        raise MissingExtraError("annoy", "annoy")


def chosen_index(datastore: Datastore) -> dict[str, Any]:
    """What was chosen for a datastore: its "kind" and the options."""
    stored = datastore.manifest.extensions.get(_EXTENSION)
    return {**stored} if isinstance(stored, dict) and isinstance(stored.get("kind"), str) else {"kind": KINDS[0]}


def choose_index(datastore: Datastore, kind: str, **options: Any) -> None:
    """From now on, in every process, this index answers for the datastore; written only where it is news.

    Args:
        datastore: writable.
        kind: one of `KINDS`.
        options: as those of `open_index`.

    Raises:
        ConfigError: unknown kind.
        MissingExtraError: "annoy" is not installed.
        DatastoreError: read-only, locked, or no room. What was chosen before stays.
    """
    check_kind(kind)
    before = chosen_index(datastore)
    wanted = {**(before if before["kind"] == kind else {}), "kind": kind, **options}
    if wanted != before:
        datastore.save_extension(_EXTENSION, wanted)
