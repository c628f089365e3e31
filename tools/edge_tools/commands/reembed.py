"""edge-sdk reembed: a datastore rebuilt for a new global model."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from edge_sdk import Encoder, Predictor
from edge_sdk.datastore import Datastore
from edge_sdk.datastore.rebuild import rebuild
from edge_tools.options import DatastoreArgument, JsonOption
from edge_tools.output import print_facts, print_json

EXAMPLE = "edge-sdk reembed me.store --model new.onnx"

NewModelOption = Annotated[Path, typer.Option("--model", help="The new exported model file (.onnx).")]
DropOption = Annotated[bool, typer.Option("--drop-missing", help="Leave out entries whose input was not kept.")]
NoTuneOption = Annotated[bool, typer.Option("--no-tune", help="Do not choose the interpolation weight anew.")]


def reembed_command(
    datastore: DatastoreArgument,
    model: NewModelOption,
    drop_missing: DropOption = False,
    no_tune: NoTuneOption = False,
    as_json: JsonOption = False,
) -> None:
    """Embed the kept inputs of a datastore with a new global model, and put the result in its place.

    The old datastore stays as it is until the new one is complete. Inputs are kept by edge-sdk ingest --keep-inputs.
    Applications that have the datastore open must be started again with the new model file.
    """
    encoder = Encoder.open(model)

    def encode(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        encoded = encoder.encode(samples)
        return encoded.embeddings, encoded.probabilities

    with Datastore.open(datastore) as store:
        rebuilt = rebuild(store, encoder.metadata, encode, drop_missing=drop_missing)
    with Predictor.open(model, datastore) as predictor:
        if rebuilt.entries and not no_tune:
            predictor.tune()
        facts = {
            "datastore": str(datastore),
            "entries": rebuilt.entries,
            "dropped": rebuilt.dropped,
            "interpolation_weight": predictor.interpolation.interpolation_weight,
        }
    if as_json:
        print_json(facts)
    else:
        print_facts(facts)
