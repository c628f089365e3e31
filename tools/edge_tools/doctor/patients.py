"""Run in a child process: opens a model file and a datastore, and prints what it finds as one JSON line.

    python -m edge_tools.doctor.patients model MODEL
    python -m edge_tools.doctor.patients datastore DATASTORE [MODEL]
"""

import json
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Examine one patient."""
    kind, path, *rest = arguments
    answer = _model(Path(path)) if kind == "model" else _datastore(Path(path), Path(rest[0]) if rest else None)
    sys.stdout.write(json.dumps(answer) + "\n")


def _model(path: Path) -> dict[str, object]:
    from edge_sdk import EdgeSDKError, Encoder, ModelFile
    from edge_sdk.selfcheck import self_check

    try:
        file = ModelFile.open(path)
        check = self_check(Encoder(file, threads=1).encode, file.metadata)
    except EdgeSDKError as error:
        return {"error": str(error)}
    if check is None:
        return {"checked": False}
    return {"checked": True, "passed": check.passed, "message": check.message}


def _datastore(path: Path, model: Path | None) -> dict[str, object]:
    from edge_sdk import Datastore, EdgeSDKError, ModelFile

    try:
        metadata = None if model is None else ModelFile.open(model).metadata
        with Datastore.open(path, model=metadata, read_only=True) as store:
            return {"entries": len(store), "capacity": store.capacity, "damaged": store.damaged}
    except EdgeSDKError as error:
        return {"error": str(error)}


if __name__ == "__main__":
    main(sys.argv[1:])
