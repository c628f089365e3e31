"""The device's story on this machine and on emulated ARM, each with the other's datastore.

A datastore made here is opened there and learnt into, and the other way round; both machines answer the same recording.
Labels are the same wherever the two best classes differ by more than 1e-4, probabilities within 1e-4; an int8 model has
a tolerance of its own, 0.01: where kernels round a sum of 8-bit products the other way, an activation moves by a step
of 256.

    python tools/arm/story.py .arm [INT8_MODEL]     exit code 3 when a tolerance is not kept
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
WATCH = CHECKOUT / "examples" / "watch"
USER = WATCH / "users" / "1603"
TOLERANCE = 1e-4
INT8_TOLERANCE = 0.01
_BUDGET_EXIT = 3


class Comparison(NamedTuple):
    """Two machines' answers to the same recording with the same datastore."""

    model: str
    datastore: str
    windows: int
    blended: float
    """Largest difference of the personalised probabilities."""

    alone: float
    """Largest difference of the global model's probabilities."""

    other_labels: int
    """Labels that differ although the two best classes differ by more than the tolerance."""

    tolerance: float

    @property
    def is_met(self) -> bool:
        """Whether both machines give the same answers."""
        return max(self.blended, self.alone) <= self.tolerance and self.other_labels == 0


def main(folder: Path, int8: Path | None) -> None:
    """Tell the story, print each comparison and at the end one JSON line."""
    machines = {"x86-64": sys.executable, "aarch64": str(folder.absolute() / "python")}
    models = [(WATCH / "watch.onnx", TOLERANCE)] + ([(int8, INT8_TOLERANCE)] if int8 is not None else [])
    comparisons = []
    with tempfile.TemporaryDirectory(prefix="edge-sdk-arm-") as temporary:
        for model, tolerance in models:
            for maker, other in (("x86-64", "aarch64"), ("aarch64", "x86-64")):
                store = Path(temporary) / f"{model.stem}-{maker}.store"
                tell(machines[maker], model, store)
                comparisons.append(compare(machines, model, store, f"made on {maker}", tolerance))
                carry_on(machines[other], model, store)
                comparisons.append(compare(machines, model, store, f"{maker}, learnt on {other}", tolerance))
        camera(machines["aarch64"], Path(temporary))
    say(
        json.dumps(
            {
                "comparisons": [{**each._asdict(), "met": each.is_met} for each in comparisons],
                "largest_difference": max(max(c.blended, c.alone) for c in comparisons if c.tolerance == TOLERANCE),
                "met": all(each.is_met for each in comparisons),
            }
        )
    )
    if not all(each.is_met for each in comparisons):
        sys.exit(_BUDGET_EXIT)


def tell(python: str, model: Path, store: Path) -> None:
    """Ingest, tune, look and evaluate, by the command line."""
    at = ("--model", str(model), "--datastore", str(store))
    run(python, "-m", "edge_tools", "ingest", str(USER / "learn.npz"), *at)
    run(python, "-m", "edge_tools", "tune", str(store))
    run(python, "-m", "edge_tools", "info", str(store))


def carry_on(python: str, model: Path, store: Path) -> None:
    """What the other machine does with the datastore: forget an activity, and learn some of it anew."""
    run(python, "-m", "edge_tools", "forget", str(store), "--label", "typing")
    at = ("--model", str(model), "--datastore", str(store))
    run(python, "-m", "edge_tools", "ingest", str(WATCH / "users" / "1619" / "learn.npz"), *at)
    run(python, "-m", "edge_tools", "doctor", *at)


def camera(python: str, folder: Path) -> None:
    """Pictures, decoded there too."""
    run(python, "-m", "examples.raspberry_pi.draw_pictures", str(folder / "pictures"))
    where = ("--folder", str(folder / "pictures"), "--datastore", str(folder / "camera.store"))
    said = run(python, "-m", "examples.raspberry_pi.camera", *where, "--teach")
    say(f"aarch64: camera.py: {said.splitlines()[-1]}")


def compare(machines: dict[str, str], model: Path, store: Path, named: str, tolerance: float) -> Comparison:
    """Let both machines answer, and compare."""
    answers = {}
    for machine, python in machines.items():
        file = store.with_name(f"{machine}.npz")
        run(python, str(HERE / "answers.py"), str(model), str(store), str(USER / "test.npz"), str(file))
        with np.load(file, allow_pickle=False) as archive:
            answers[machine] = dict(archive)
    here, there = answers.values()
    best = np.sort(here["blended"], axis=1)
    is_clear = best[:, -1] - best[:, -2] > tolerance
    comparison = Comparison(
        model=model.name,
        datastore=named,
        windows=len(is_clear),
        blended=float(np.abs(here["blended"] - there["blended"]).max()),
        alone=float(np.abs(here["alone"] - there["alone"]).max()),
        other_labels=int((here["labels"] != there["labels"])[is_clear].sum()),
        tolerance=tolerance,
    )
    say(
        f"{comparison.model}, datastore {named}: {comparison.windows} windows, personalised within "
        f"{comparison.blended:.1e}, global within {comparison.alone:.1e} (allowed {tolerance:g}), "
        f"{comparison.other_labels} other labels"
    )
    return comparison


def say(text: str) -> None:
    """Tell the person at the terminal at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def run(python: str, *arguments: str) -> str:
    """Run one program of the story; what it says is shown when it fails."""
    finished = subprocess.run([python, *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if finished.returncode:
        said = finished.stdout[-2000:] + finished.stderr[-2000:]
        raise SystemExit(f"{' '.join(arguments)} failed on {python}:\n{said}")
    return finished.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None)
