"""edge-sdk predict: one label and its probability for every input."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from edge_sdk import ConfigError, Encoder, InputError, Predictor
from edge_sdk.inputs import Batch, Refused, Source, open_source
from edge_sdk.inputs.base import STREAM
from edge_sdk.inputs.ingest import rows_of
from edge_sdk.interpolation import winners
from edge_tools.commands.ingest import REFUSED_EXIT, hush_pillow, inputs_in, name_refused
from edge_tools.options import LambdaOption, ModelOption, require_datastore
from edge_tools.output import print_json, print_line, print_table, say
from edge_tools.progress import progress

BATCH_SIZE = 256
EXAMPLE = "edge-sdk predict test.npz --model watch.onnx --datastore me.store"

AnyInputArgument = Annotated[
    Path,
    typer.Argument(
        metavar="INPUT",
        help="What to answer, without labels: .npz, .npy, CSV, JSON lines, a picture or a sound, a folder of them, "
        "or - for JSON lines on standard input.",
    ),
]
OptionalDatastore = Annotated[Path | None, typer.Option("--datastore", help="The datastore's folder; default: none.")]
UnreadColumnOption = Annotated[
    str | None, typer.Option("--label-column", help="A table's column to leave out, if its name is no usual label.")
]
RejectOption = Annotated[
    float | None,
    typer.Option(
        "--reject-above",
        min=0.0,
        max=1.0,
        help="Answer `none of these` where the novelty is above this; 0.99 costs one known input in a hundred.",
    ),
]
JsonLinesOption = Annotated[bool, typer.Option("--json", help="Print one JSON object a line instead of a table.")]


NONE_OF_THESE = "none of these"

Answering = Callable[[np.ndarray], tuple[list[str | None], np.ndarray]]
"""Samples in; labels (None: rejected) and their probabilities out."""


class Answer(NamedTuple):
    """What was predicted for one input."""

    name: str
    label: str | None
    """None: unlike everything in the datastore (`--reject-above`)."""

    probability: float


def predict_command(
    inputs: AnyInputArgument,
    model: ModelOption,
    datastore: OptionalDatastore = None,
    interpolation_weight: LambdaOption = None,
    reject_above: RejectOption = None,
    label_column: UnreadColumnOption = None,
    as_json: JsonLinesOption = False,
) -> None:
    """Print the most probable label of every input: the global model's, or with --datastore the personalised one.

    Refused inputs are named on stderr, and the exit code is then 4.
    """
    if datastore is None and interpolation_weight is not None:
        raise ConfigError("--lambda mixes in a datastore; name it with --datastore")
    if datastore is None and reject_above is not None:
        raise ConfigError("--reject-above compares with a datastore; name it with --datastore")
    hush_pillow()
    with ExitStack() as stack:
        answer: Answering
        if datastore is None:
            encoder = Encoder.open(model)
            spec = encoder.metadata.input
            answer = _global_answer(encoder)
        else:
            require_datastore(datastore, model)
            predictor = stack.enter_context(
                Predictor.open(model, datastore, read_only=True, interpolation_weight=interpolation_weight)
            )
            spec = predictor.metadata.input
            answer = _personal_answer(predictor, reject_above)
        refused = _predict_all(
            open_source(inputs, spec, labels="ignored", label_column=label_column), answer, as_json=as_json
        )
    if refused:
        raise typer.Exit(REFUSED_EXIT)


def _predict_all(source: Source, answer: Answering, *, as_json: bool) -> int:
    """Print an answer for every input; how many were refused."""
    # Who writes into a pipe waits for the answer to each line: one at a time, and no table at the end.
    is_stream = source.request.path == STREAM
    batches = source.batches(1 if is_stream else BATCH_SIZE)
    refused = 0
    rows: list[tuple[str, str, str]] = []
    for batch in progress(batches, total=source.count, label="predict", size=inputs_in):
        for result in _answers(batch, answer):
            if isinstance(result, Refused):
                name_refused(result)
                refused += 1
            elif as_json:
                print_json(result._asdict())
            else:
                rows.append((result.name, result.label or NONE_OF_THESE, f"{result.probability:.3f}"))
                if is_stream:
                    print_line("  ".join(rows.pop()))
        sys.stdout.flush()
    for note in source.notes:
        say(note)
    if not as_json and not is_stream:
        print_table("", Answer._fields, rows)
    return refused


def _global_answer(encoder: Encoder) -> Answering:
    """Labels and probabilities by the model file alone."""

    def answer(x: np.ndarray) -> tuple[list[str | None], np.ndarray]:
        probabilities = encoder.encode(x).probabilities
        return [encoder.metadata.classes[best] for best in probabilities.argmax(axis=1)], probabilities.max(axis=1)

    return answer


def _personal_answer(predictor: Predictor, reject_above: float | None) -> Answering:
    """Labels and probabilities by the blend; no label where the novelty is above a threshold."""

    def answer(x: np.ndarray) -> tuple[list[str | None], np.ndarray]:
        found = predictor.distributions(x, novelty=reject_above is not None)
        best = winners(found.blended, found.global_probabilities)
        labels: list[str | None] = [found.classes[number] for number in best]
        if reject_above is not None:
            if found.novelty is None:
                folder = predictor.datastore.folder
                raise ConfigError(
                    f"{folder}: --reject-above needs a tuned datastore that is not compressed: edge-sdk tune {folder}"
                )
            labels = [
                label if score <= reject_above else None for label, score in zip(labels, found.novelty, strict=True)
            ]
        return labels, found.blended[np.arange(len(best)), best]

    return answer


def _answers(batch: Batch, answer: Answering) -> Iterator[Answer | Refused]:
    """Answers of a batch; a row that the model cannot take costs that row alone."""
    yield from batch.refused
    if not len(batch):
        return
    try:
        labels, probabilities = answer(batch.x)
    except InputError as error:
        if len(batch) == 1:
            yield Refused(batch.names[0], str(error))
            return
        for row in range(len(batch)):
            yield from _answers(rows_of(batch, [row], refused=[]), answer)
        return
    for name, label, probability in zip(batch.names, labels, probabilities.tolist(), strict=True):
        yield Answer(name, label, round(probability, 6))
