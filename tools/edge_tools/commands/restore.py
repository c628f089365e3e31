"""edge-sdk restore: a datastore from its backup."""

from pathlib import Path
from typing import Annotated

import typer

from edge_sdk import ModelFile
from edge_sdk.datastore import Datastore
from edge_sdk.datastore.backup import restore_backup
from edge_tools.options import JsonOption
from edge_tools.output import print_facts, print_json

EXAMPLE = "edge-sdk restore me.backup me.store --model watch.onnx"

BackupArgument = Annotated[Path, typer.Argument(metavar="BACKUP", help="What edge-sdk backup wrote.")]
FolderArgument = Annotated[Path, typer.Argument(metavar="DATASTORE", help="The folder to make; must not exist.")]
ModelCheckOption = Annotated[
    Path | None, typer.Option("--model", help="The model file of this device: another model's backup is refused.")
]


def restore_command(
    backup: BackupArgument,
    datastore: FolderArgument,
    model: ModelCheckOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a datastore from a backup; it goes on counting sequences where the backup stopped."""
    metadata = None if model is None else ModelFile.open(model).metadata
    restore_backup(backup, datastore, model=metadata)
    with Datastore.open(datastore, read_only=True) as store:
        facts = {
            "datastore": str(datastore),
            "entries": len(store),
            "damaged_slots": store.damaged,
            "next_sequence": store.highest_sequence + 1,
        }
    if as_json:
        print_json(facts)
    else:
        print_facts(facts)
