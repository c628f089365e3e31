"""What personalisation gains on all 11 unseen people of the full data set, through the device's own runtime.

`python -m examples.watch.accuracy --data FOLDER` (or the EDGE_SDK_DATA variable); the last line is one JSON object.
Everything a device does is done: a datastore a person on disk, learn, tune with default settings, predict.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edge_sdk import Predictor
from edge_tools.metrics import bottom_decile, weighted_average
from edge_tools.output import percent, print_table
from edge_tools.progress import progress
from examples.watch.archive import add_data_option, archive_path
from examples.watch.split import split_user, unseen_users

MODEL = Path(__file__).with_name("watch.onnx")


class Windows(NamedTuple):
    """Labelled windows of one person."""

    x: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class UserAccuracy:
    """One person."""

    user: int
    n: int
    """Test windows."""

    global_accuracy: float
    personalised_accuracy: float
    interpolation_weight: float
    entries: int


def main() -> None:
    """Evaluate every unseen person and print the table, then the JSON line."""
    parser = argparse.ArgumentParser(description="Accuracy on the 11 unseen people of the watch data.")
    add_data_option(parser)
    archive = np.load(archive_path(parser, parser.parse_args().data), allow_pickle=False)
    x, names, subject, label = archive["x"], archive["label_names"], archive["subject"], archive["label"]
    users = [int(user) for user in unseen_users(subject)]
    results = []
    for user in progress(users, total=len(users), label="unseen people"):
        split = split_user(subject, label, user)
        learn, test = (Windows(x[rows], names[label[rows]]) for rows in split)
        results.append(evaluate_user(user, learn, test))
    report(results)


def evaluate_user(user: int, learn: Windows, test: Windows) -> UserAccuracy:
    """Learn, tune and predict for one person, in a datastore of his own."""
    with (
        tempfile.TemporaryDirectory(prefix="edge-sdk-accuracy-") as folder,
        Predictor.open(MODEL, datastore=Path(folder) / "user.store") as predictor,
    ):
        predictor.learn(learn.x, learn.labels, sync=False)
        chosen = predictor.tune()
        distributions = predictor.distributions(test.x)
        global_predictions = np.array(distributions.classes)[distributions.global_probabilities.argmax(axis=1)]
        return UserAccuracy(
            user=user,
            n=len(test.labels),
            global_accuracy=float((global_predictions == test.labels).mean()),
            personalised_accuracy=float(np.mean(predictor.predict(test.x) == test.labels)),
            interpolation_weight=chosen.interpolation_weight,
            entries=len(predictor.datastore),
        )


def report(results: list[UserAccuracy]) -> None:
    """The table of all people, then one JSON object."""
    counts = [result.n for result in results]
    before = [result.global_accuracy for result in results]
    after = [result.personalised_accuracy for result in results]
    summary = {
        "users": len(results),
        "global": weighted_average(before, counts),
        "personalised": weighted_average(after, counts),
        "global_decile": bottom_decile(before, counts),
        "personalised_decile": bottom_decile(after, counts),
    }
    rows: list[tuple[object, ...]] = [
        (
            result.user,
            result.n,
            percent(result.global_accuracy),
            percent(result.personalised_accuracy),
            f"{result.interpolation_weight:.2f}",
            result.entries,
        )
        for result in results
    ]
    rows.append(("all", sum(counts), percent(summary["global"]), percent(summary["personalised"]), "", ""))
    rows.append(("worst tenth", "", percent(summary["global_decile"]), percent(summary["personalised_decile"]), "", ""))
    print_table("Unseen people", ("user", "tests", "global", "personalised", "λ_m", "entries"), rows)
    sys.stdout.write(json.dumps({key: round(value, 4) for key, value in summary.items()}) + "\n")


if __name__ == "__main__":
    main()
