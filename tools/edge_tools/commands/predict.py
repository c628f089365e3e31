"""edge-sdk predict: one label and its probability for every input."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from edge_sdk import ConfigError, Encoder, InputError, Predictor
from edge_sdk.inputs import Batch, Refused, open_source
from edge_sdk.inputs.ingest import rows_of
from edge_tools.commands.ingest import BATCH_SIZE, REFUSED_EXIT, name_refused
from edge_tools.options import InputArgument, LambdaOption, ModelOption
from edge_tools.output import print_json, print_table
from edge_tools.progress import progress

EXAMPLE = "edge-sdk predict test.npz --model watch.onnx --datastore me.store"

OptionalDatastore = Annotated[Path | None, typer.Option("--datastore", help="The datastore's folder; default: none.")]
JsonLinesOption = Annotated[bool, typer.Option("--json", help="Print one JSON object a line instead of a table.")]


class Answer(NamedTuple):
    """What was predicted for one input."""

    name: str
    label: str
    probability: float


def predict_command(
    inputs: InputArgument,
    model: ModelOption,
    datastore: OptionalDatastore = None,
    interpolation_weight: LambdaOption = None,
    as_json: JsonLinesOption = False,
) -> None:
    """Print the most probable label of every input: the global model's, or with --datastore the personalised one.

    Refused inputs are named on stderr, and the exit code is then 4.
    """
    if datastore is None and interpolation_weight is not None:
        raise ConfigError("--lambda mixes in a datastore; name it with --datastore")
    with ExitStack() as stack:
        answer: Callable[[np.ndarray], tuple[list[str], np.ndarray]]
        if datastore is None:
            encoder = Encoder.open(model)
            spec = encoder.metadata.input
            answer = _global_answer(encoder)
        else:
            predictor = stack.enter_context(
                Predictor.open(model, datastore, read_only=True, interpolation_weight=interpolation_weight)
            )
            spec = predictor.metadata.input
            answer = _personal_answer(predictor)
        source = open_source(inputs, spec, labels="ignored")
        total = None if source.count is None else -(-source.count // BATCH_SIZE)
        refused = 0
        answers: list[Answer] = []
        for batch in progress(source.batches(BATCH_SIZE), total=total, label="predict"):
            for result in _answers(batch, answer):
                if isinstance(result, Refused):
                    name_refused(result)
                    refused += 1
                elif as_json:
                    print_json(result._asdict())
                else:
                    answers.append(result)
    if not as_json:
        print_table("", Answer._fields, [(name, label, f"{probability:.3f}") for name, label, probability in answers])
    if refused:
        raise typer.Exit(REFUSED_EXIT)


def _global_answer(encoder: Encoder) -> Callable[[np.ndarray], tuple[list[str], np.ndarray]]:
    """Labels and probabilities by the model file alone."""

    def answer(x: np.ndarray) -> tuple[list[str], np.ndarray]:
        probabilities = encoder.encode(x).probabilities
        return [encoder.metadata.classes[best] for best in probabilities.argmax(axis=1)], probabilities.max(axis=1)

    return answer


def _personal_answer(predictor: Predictor) -> Callable[[np.ndarray], tuple[list[str], np.ndarray]]:
    """Labels and probabilities by the blend."""

    def answer(x: np.ndarray) -> tuple[list[str], np.ndarray]:
        probabilities = predictor.predict_proba(x)
        best = probabilities.max(axis=1)
        labels = [predictor.classes[number] for number in probabilities.argmax(axis=1)]
        # Ties follow the one written rule, which needs the global model's answer too.
        for row in np.flatnonzero((probabilities == best[:, None]).sum(axis=1) > 1).tolist():
            labels[row] = str(predictor.predict(x[row]))
        return labels, best

    return answer


def _answers(batch: Batch, answer: Callable[[np.ndarray], tuple[list[str], np.ndarray]]) -> Iterator[Answer | Refused]:
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
