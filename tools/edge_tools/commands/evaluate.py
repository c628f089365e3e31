"""edge-sdk evaluate: what personalisation gains on examples that were not learnt, for one user or for many."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from edge_sdk import ConfigError, Predictor
from edge_tools.evaluation import Evaluation, Scores, evaluate, read_client
from edge_tools.metrics import bottom_decile, weighted_average
from edge_tools.options import JsonOption, LambdaOption, ModelOption, require_datastore
from edge_tools.output import percent, print_json, print_table, say

if TYPE_CHECKING:
    from edge_tools.benchmarks.reproduce.curves import Curves

EXAMPLE = "edge-sdk evaluate test.npz --model watch.onnx --datastore me.store"

ExamplesArgument = Annotated[
    list[Path],
    typer.Argument(metavar="INPUT", help="Labelled examples that were not learnt, one source a datastore."),
]
DatastoresOption = Annotated[
    list[Path],
    typer.Option("--datastore", help="The datastore's folder; given once for each INPUT, in the same order."),
]
CurvesOption = Annotated[bool, typer.Option("--curves", help="Also accuracy over λ, n, k, bandwidth and capacity.")]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", metavar="FOLDER", help="Draw the curves as PNG files (needs matplotlib).")
]


def evaluate_command(
    examples: ExamplesArgument,
    model: ModelOption,
    datastore: DatastoresOption,
    interpolation_weight: LambdaOption = None,
    curves: CurvesOption = False,
    plot: PlotOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score the global model and the personalised one on labelled examples that were not learnt.

    Several users: give an INPUT and a --datastore for each; the average and the bottom decile are over them.
    """
    if len(examples) != len(datastore):
        raise ConfigError(
            f"{len(examples)} inputs and {len(datastore)} datastores; give one --datastore for each input"
        )
    for folder in datastore:
        require_datastore(folder, model)
    if plot is not None:
        require_matplotlib()
    with ExitStack() as stack:
        predictors = [
            stack.enter_context(
                Predictor.open(model, folder, read_only=True, interpolation_weight=interpolation_weight)
            )
            for folder in datastore
        ]
        results = [evaluate(predictor, path) for predictor, path in zip(predictors, examples, strict=True)]
        found = _curves(predictors, examples) if curves or plot is not None else None
    if plot is not None and found is not None:
        from edge_tools.benchmarks.reproduce.pictures import draw_all

        for path in draw_all(plot, [], found, None):
            say(f"wrote {path}")
    if as_json:
        print_json(_document(results, examples, found))
        return
    _print_results(results, examples)
    if found is not None:
        _print_curves(found)


def require_matplotlib() -> None:
    """Raises MissingExtraError, before minutes of work, where the pictures could not be drawn."""
    import importlib.util

    from edge_sdk import MissingExtraError

    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib", "plot")


def _curves(predictors: Sequence[Predictor], examples: Sequence[Path]) -> "Curves":
    from edge_tools.benchmarks.reproduce.curves import make_curves

    return make_curves([read_client(predictor, path) for predictor, path in zip(predictors, examples, strict=True)])


def _print_results(results: Sequence[Evaluation], examples: Sequence[Path]) -> None:
    for result, path in zip(results, examples, strict=True):
        title = f"{result.n} examples, λ_m = {result.interpolation_weight:.3f}"
        print_table(
            title if len(results) == 1 else f"{path}: {title}",
            ("model", "accuracy", "log-loss", "calibration error"),
            [_row("global", result.global_scores), _row("personalised", result.personalised_scores)],
        )
        if len(results) == 1:
            print_table("Per class", ("label", "examples", "global", "personalised"), _per_class(result))
    if len(results) > 1:
        rows = [
            (name, percent(scores["average"]), percent(scores["decile"])) for name, scores in _summary(results).items()
        ]
        print_table(f"{len(results)} users", ("model", "average", "bottom decile"), rows)


def _print_curves(found: "Curves") -> None:
    from edge_tools.benchmarks.reproduce.report import sections

    for section in sections([], found, None, []):
        print_table(section.heading, section.columns, section.rows)


def _summary(results: Sequence[Evaluation]) -> dict[str, dict[str, float]]:
    """Model -> average accuracy over all examples, and the (M/10)-th worst user's."""
    counts = [result.n for result in results]
    before = [result.global_scores.accuracy for result in results]
    after = [result.personalised_scores.accuracy for result in results]
    return {
        name: {"average": weighted_average(values, counts), "decile": bottom_decile(values, counts)}
        for name, values in (("global", before), ("personalised", after))
    }


def _document(results: Sequence[Evaluation], examples: Sequence[Path], found: "Curves | None") -> dict[str, object]:
    curves = {} if found is None else {"curves": asdict(found)}
    if len(results) == 1:
        return {**_as_document(results[0]), **curves}
    users = [{"input": str(path), **_as_document(result)} for result, path in zip(results, examples, strict=True)]
    return {"users": users, **_summary(results), **curves}


def _row(name: str, scores: Scores) -> tuple[str, str, str, str]:
    return name, percent(scores.accuracy), f"{scores.log_loss:.3f}", f"{scores.calibration_error:.3f}"


def _per_class(result: Evaluation) -> list[tuple[str, int, str, str]]:
    rows = []
    for number, name in enumerate(result.classes):
        mine = result.labels == number
        if mine.any():
            before, after = (
                percent(float((predicted[mine] == number).mean()))
                for predicted in (result.global_predictions, result.personalised_predictions)
            )
            rows.append((name, int(mine.sum()), before, after))
    return rows


def _as_document(result: Evaluation) -> dict[str, object]:
    return {
        "n": result.n,
        "interpolation_weight": result.interpolation_weight,
        "global": asdict(result.global_scores),
        "personalised": asdict(result.personalised_scores),
        "per_class": {
            result.classes[number]: {
                "n": int((result.labels == number).sum()),
                "global": float((result.global_predictions[result.labels == number] == number).mean()),
                "personalised": float((result.personalised_predictions[result.labels == number] == number).mean()),
            }
            for number in np.unique(result.labels).tolist()
        },
    }
