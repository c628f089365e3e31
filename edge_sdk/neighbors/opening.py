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

_OPTIONS = {"exact": ("ram_budget",), "annoy": ("trees", "search_k", "segment_entries")}
"""What each kind may be given. By name and not by its constructor, so that nothing has to be imported to tell."""

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
        check_kind(kind, instead=f"search it exactly: edge-sdk index {datastore.folder} --kind exact")
    check_kind(kind)
    _check_options(kind, options)
    if chosen["kind"] == kind:
        stored = {name: value for name, value in chosen.items() if name != "kind"}
        try:
            _check_options(kind, stored)
        except ConfigError as error:
            raise DatastoreError(
                f"{datastore.folder}: its stored choice of an index is of another version: {error}; "
                f"choose anew: edge-sdk index {datastore.folder} --kind exact"
            ) from error
        options = {**stored, **options}
    if kind == "exact":
        return ExactIndex(datastore, **options)
    from edge_sdk.neighbors.annoy import AnnoyIndex  # the only file that imports annoy, and only when asked for

    return AnnoyIndex(datastore, **options)


def check_kind(kind: str, *, instead: str = "") -> None:
    """Whether there is such an index here.

    Args:
        kind: one of `KINDS`.
        instead: what helps where its package is not installed, besides installing it.

    Raises:
        ConfigError: unknown.
        MissingExtraError: its package is not installed.
    """
    if kind not in KINDS:
        raise ConfigError(f'index is one of {", ".join(KINDS)}, got "{kind}"')
    if kind == "annoy" and importlib.util.find_spec("annoy") is None:
        raise MissingExtraError("annoy", "annoy", instead=instead)


def _check_options(kind: str, options: dict[str, Any]) -> None:
    """Whether an index of this kind can be given these options.

    Raises:
        ConfigError: one is unknown, of the other kind, or no whole number.
    """
    for name, value in options.items():
        if name not in _OPTIONS[kind]:
            owner = next((other for other, names in _OPTIONS.items() if name in names), None)
            cure = f"; {name} is an option of kind {owner}" if owner else ""
            raise ConfigError(f"index {kind}: takes {', '.join(_OPTIONS[kind])}, got {name}{cure}")
        if type(value) is not int and not (name in ("search_k", "segment_entries") and value is None):
            raise ConfigError(f"index {kind}: {name} is a whole number, got {value!r}")


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
        ConfigError: unknown kind or option.
        MissingExtraError: "annoy" is not installed.
        DatastoreError: read-only, locked, or no room. What was chosen before stays.
    """
    check_kind(kind)
    _check_options(kind, options)
    before = chosen_index(datastore)
    wanted = {**(before if before["kind"] == kind else {}), "kind": kind, **options}
    if wanted != before:
        datastore.save_extension(_EXTENSION, wanted)
