"""The device's story on real people's data: what a watch gains from the first half of its wearer's examples.

For each of three people whom the global model has never seen: ingest the first half of each activity, tune, evaluate
on the rest, and look at the store. Everything runs through the command line that a device developer would type.
"""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_tools.output import percent, print_table, say, size

HERE = Path(__file__).parent
MODEL = HERE / "watch.onnx"
USERS = ("1603", "1619", "1636")


@dataclass(frozen=True)
class UserResult:
    """One line of the table."""

    user: str
    n: int
    global_accuracy: float
    personalised_accuracy: float
    interpolation_weight: float
    entries: int
    store_bytes: int
    milliseconds: tuple[float, float, float]
    """Median of encode, search, blend."""


def main() -> None:
    """Run the story and print the table; exits with a failing command's code."""
    with tempfile.TemporaryDirectory(prefix="edge-sdk-demo-") as folder:
        results = [tell_story(user, Path(folder) / f"{user}.store") for user in USERS]
    print_table(
        "Three people the global model has never seen", COLUMNS, [row(result) for result in results] + [total(results)]
    )


def tell_story(user: str, store: Path) -> UserResult:
    """Learn, tune, evaluate and look, for one person."""
    say(f"\n== user {user}: the watch learns the first half of each activity, and is tested on the rest ==")
    learn, test = HERE / "users" / user / "learn.npz", HERE / "users" / user / "test.npz"
    at = ("--model", MODEL, "--datastore", store)
    run("ingest", learn, *at)
    run("tune", store)
    evaluation = run("evaluate", test, *at)
    info = run("info", store)
    latency = run("profile", MODEL, "--datastore", store)["latency_ms"]
    return UserResult(
        user=user,
        n=evaluation["n"],
        global_accuracy=evaluation["global"]["accuracy"],
        personalised_accuracy=evaluation["personalised"]["accuracy"],
        interpolation_weight=evaluation["interpolation_weight"],
        entries=info["entries"],
        store_bytes=info["bytes"]["total"],
        milliseconds=(latency["encode"]["p50"], latency["search"]["p50"], latency["blend"]["p50"]),
    )


def run(command: str, *arguments: object) -> dict[str, Any]:
    """Run one edge-sdk command with --json, say what was run, and return what it printed."""
    words = [command, *(str(argument) for argument in arguments)]
    say("$ edge-sdk " + " ".join(_short(word) for word in words))
    finished = subprocess.run(
        [sys.executable, "-m", "edge_tools", *words, "--json"], stdout=subprocess.PIPE, text=True, check=False
    )
    if finished.returncode:
        sys.exit(finished.returncode)
    document: dict[str, Any] = json.loads(finished.stdout)
    return document


def _short(word: str) -> str:
    """A path as one would type it here, or where the temporary folder is of no interest."""
    path = Path(word)
    if path.suffix == ".store":
        return path.name
    return str(path.relative_to(Path.cwd())) if path.is_absolute() and path.is_relative_to(Path.cwd()) else word


COLUMNS = ("user", "tests", "global", "personalised", "gain", "λ_m", "entries", "store", "encode / search / blend, ms")


def row(result: UserResult) -> tuple[str, ...]:
    """One user's line."""
    return (
        result.user,
        str(result.n),
        percent(result.global_accuracy),
        percent(result.personalised_accuracy),
        f"{100 * (result.personalised_accuracy - result.global_accuracy):+.1f}",
        f"{result.interpolation_weight:.2f}",
        str(result.entries),
        size(result.store_bytes),
        " / ".join(f"{value:.2f}" for value in result.milliseconds),
    )


def total(results: list[UserResult]) -> tuple[str, ...]:
    """All users together: every test example counts the same."""
    n = sum(result.n for result in results)
    global_accuracy = sum(result.n * result.global_accuracy for result in results) / n
    personalised_accuracy = sum(result.n * result.personalised_accuracy for result in results) / n
    gain = f"{100 * (personalised_accuracy - global_accuracy):+.1f}"
    return ("together", str(n), percent(global_accuracy), percent(personalised_accuracy), gain, "", "", "", "")


if __name__ == "__main__":
    main()
