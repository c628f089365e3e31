"""edge-sdk backup: a datastore as one file."""

from pathlib import Path
from typing import Annotated

import typer

from edge_sdk.datastore import Datastore
from edge_sdk.datastore.backup import write_backup
from edge_tools.options import DatastoreArgument, JsonOption
from edge_tools.output import print_facts, print_json

EXAMPLE = "edge-sdk backup me.store me.backup"

BackupArgument = Annotated[Path, typer.Argument(metavar="BACKUP", help="The file to write; replaced when complete.")]


def backup_command(datastore: DatastoreArgument, backup: BackupArgument, as_json: JsonOption = False) -> None:
    """Write a whole datastore to one verified file, for `restore` on this device or another.

    It holds the entries, the settings and the kept inputs; what is derived from them is left out.
    """
    with Datastore.open(datastore, read_only=True) as store:
        n_bytes = write_backup(store, backup)
        facts = {"backup": str(backup), "entries": len(store), "damaged_slots": store.damaged, "bytes": n_bytes}
    if as_json:
        print_json(facts)
    else:
        print_facts(facts)
