"""edge-sdk forget: overwrite entries of a datastore."""

from typing import Annotated

import typer

from edge_sdk import ConfigError
from edge_sdk.datastore import Datastore
from edge_tools.options import DatastoreArgument, JsonOption
from edge_tools.output import print_json, print_table, say

EXAMPLE = "edge-sdk forget me.store --label typing"

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

    Several conditions mean entries that meet all of them. What a flash card's controller keeps of overwritten blocks,
    no program can reach.
    """
    if not sequence and label is None and before is None and older_than is None:
        raise ConfigError("say what to forget: --sequence, --label, --before or --older-than")
    if before is not None and older_than is not None:
        raise ConfigError("--before and --older-than both name an age; give one of them")
    with Datastore.open(datastore) as store:
        had = store.table.counts.copy()
        if older_than is not None:
            before = max(0, store.table.newest - older_than)
        forgotten = store.forget(sequences=sequence, label=label, before=before)
        emptied = [
            name for name, old, new in zip(store.classes, had, store.table.counts, strict=True) if old and not new
        ]
        left = len(store)
    if as_json:
        print_json({"datastore": str(datastore), "forgotten": forgotten, "entries": left, "emptied_classes": emptied})
    else:
        print_table(str(datastore), ("forgotten", "entries"), [(forgotten, left)])
    for name in emptied:
        say(f'warning: class "{name}" has just lost its last entry')
