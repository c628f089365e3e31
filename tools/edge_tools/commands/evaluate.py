"""edge-sdk evaluate: what personalisation gains on examples that were not learnt."""

from dataclasses import asdict

import numpy as np

from edge_sdk import Predictor
from edge_tools.evaluation import Evaluation, Scores, evaluate
from edge_tools.options import DatastoreOption, InputArgument, JsonOption, LambdaOption, ModelOption
from edge_tools.output import percent, print_json, print_table

EXAMPLE = "edge-sdk evaluate test.npz --model watch.onnx --datastore me.store"


def evaluate_command(
    examples: InputArgument,
    model: ModelOption,
    datastore: DatastoreOption,
    interpolation_weight: LambdaOption = None,
    as_json: JsonOption = False,
) -> None:
    """Score the global model and the personalised one on labelled examples that were not learnt."""
    with Predictor.open(model, datastore, read_only=True, interpolation_weight=interpolation_weight) as predictor:
        result = evaluate(predictor, examples)
    if as_json:
        print_json(_as_document(result))
        return
    print_table(
        f"{result.n} examples, λ_m = {result.interpolation_weight:.3f}",
        ("model", "accuracy", "log-loss", "calibration error"),
        [_row("global", result.global_scores), _row("personalised", result.personalised_scores)],
    )
    print_table("Per class", ("label", "examples", "global", "personalised"), _per_class(result))


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
