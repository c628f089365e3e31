"""edge-sdk forget: overwrite entries of a datastore, and tune it again on what is left."""

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer

from edge_sdk import ConfigError, DatastoreError, EdgeSDKError, Interpolation
from edge_sdk.datastore import Datastore
from edge_sdk.datastore.storage import PROTOTYPES
from edge_sdk.memory import tune_again
from edge_sdk.neighbors import open_index
from edge_sdk.protonn import Prototypes
from edge_tools.options import DatastoreArgument, JsonOption
from edge_tools.output import print_json, print_table, say, spoken

EXAMPLE = "edge-sdk forget me.store --label typing"

_LEAST_VOTE = 0.5
"""Smaller changes of the prototypes' masses, each a float16, are rounding."""

SequenceOption = Annotated[
    list[int] | None, typer.Option("--sequence", min=1, help="Of an entry; may be given several times.")
]
LabelOption = Annotated[str | None, typer.Option("--label", help="Entries with this label.")]
BeforeOption = Annotated[int | None, typer.Option("--before", min=1, help="Entries with a smaller sequence.")]
OlderOption = Annotated[
    int | None, typer.Option("--older-than", min=0, help="Entries of a greater age: so many were learnt after them.")
]


def forget_command(
    datastore: DatastoreArgument,
    sequence: SequenceOption = None,
    label: LabelOption = None,
    before: BeforeOption = None,
    older_than: OlderOption = None,
    as_json: JsonOption = False,
) -> None:
    """Overwrite entries with zeros on the medium, with everything that was derived from them and their kept inputs.

    Several conditions mean entries that meet all of them. Afterwards λ_m is chosen anew on what is left. What a flash
    card's controller keeps of overwritten blocks, no program can reach.
    """
    if not sequence and label is None and before is None and older_than is None:
        raise ConfigError("say what to forget: --sequence, --label, --before or --older-than")
    if before is not None and older_than is not None:
        raise ConfigError("--before and --older-than both name an age; give one of them")
    with Datastore.open(datastore) as store:
        forgotten = _forget(store, sequence, label, before, older_than)
        settings = _tuned_again(store, forgotten)
    if as_json:
        chosen = None if settings is None else settings.interpolation_weight
        print_json({"datastore": str(datastore), **forgotten.facts, "interpolation_weight": chosen})
    else:
        counts = {name: value for name, value in forgotten.facts.items() if isinstance(value, int)}
        print_table(str(datastore), tuple(spoken(name) for name in counts), [tuple(counts.values())])
    if not forgotten.is_any:
        say("nothing was forgotten: no entry meets the conditions")
    for name in forgotten.emptied:
        say(f'class "{name}" has just lost its last entry')
    if settings is not None:
        weight = f"{settings.interpolation_weight:.3f}"
        if settings.chosen_by == "held-out":  # a compressed datastore without newer entries brings its own
            say(f"λ_m stays {weight}, as held out when the datastore was compressed")
        else:
            say(f"tuned again on what is left: λ_m is {weight} now")


@dataclass(frozen=True)
class _Forgotten:
    """What went, and what is left."""

    entries: int
    left: int
    emptied: list[str]
    prototypes: int | None
    """Of a compressed datastore; None: it is none."""

    prototypes_left: int
    stood_for: float
    """How many entries' votes went with prototypes, whole ones or parts."""

    interpolation: dict[str, Any]
    """The settings before."""

    @property
    def is_any(self) -> bool:
        """Whether anything met the conditions."""
        return bool(self.entries or self.prototypes or self.stood_for >= _LEAST_VOTE)

    @property
    def facts(self) -> dict[str, Any]:
        """For printing."""
        prototypes = {}
        if self.prototypes is not None:
            prototypes = {"prototypes_forgotten": self.prototypes, "prototypes": self.prototypes_left}
        return {"forgotten": self.entries, "entries": self.left, **prototypes, "emptied_classes": self.emptied}


def _forget(
    store: Datastore, sequences: list[int] | None, label: str | None, before: int | None, older_than: int | None
) -> _Forgotten:
    """Forget while no other process writes, so that what is counted is what went."""
    with store.exclusive():
        store.refresh()
        memory = _prototypes(store)
        held, interpolation = store.table.counts.copy(), store.interpolation or {}
        if older_than is not None:
            newest = max(store.table.newest, 0 if memory is None else memory.newest_sequence)
            before = max(0, newest - older_than)
        entries = store.forget(sequences=sequences, label=label, before=before)
        counts = zip(store.classes, held, store.table.counts, strict=True)
        rest = None if memory is None else _prototypes(store)
    return _Forgotten(
        entries=entries,
        left=len(store),
        emptied=[name for name, old, new in counts if old and not new],
        prototypes=None if memory is None else len(memory) - (0 if rest is None else len(rest)),
        prototypes_left=0 if rest is None else len(rest),
        stood_for=_mass(memory) - _mass(rest),
        interpolation=interpolation,
    )


def _prototypes(store: Datastore) -> Prototypes | None:
    """The compressed memory; None where there is none, or a damaged one, about which `Datastore.forget` warns."""
    path = store.folder / PROTOTYPES
    try:
        return Prototypes.load(path) if path.exists() else None
    except DatastoreError:
        return None


def _mass(memory: Prototypes | None) -> float:
    return 0.0 if memory is None else float(memory.masses.sum(dtype=np.float64))


def _tuned_again(store: Datastore, forgotten: _Forgotten) -> Interpolation | None:
    """The settings chosen on what is left; None where nothing was forgotten, or nothing is left to tune on."""
    if not forgotten.is_any or not (forgotten.left or forgotten.prototypes_left):
        return None
    try:
        return tune_again(store, open_index(None, store), saved=forgotten.interpolation)
    except EdgeSDKError as error:
        say(f"warning: forgotten, but λ_m could not be chosen again: {error}")
        return None
