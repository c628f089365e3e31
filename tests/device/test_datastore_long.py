"""The datastore over a long time (a short run of `make soak`), and a Predictor beside a process that learns."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from edge_sdk import Predictor
from edge_tools.benchmarks.soak import MOST_PRIVATE_GROWTH, PLANTED, run_soak


def test_neither_file_nor_memory_grows_over_many_learns(tmp_path: Path) -> None:
    report = run_soak(tmp_path / "soak.store", 15_000, dim=16)
    assert (report.wrong, report.newest) == (0, PLANTED + 15_000)
    assert (report.file_growth_bytes, report.disk_growth_bytes) == (0, 0)
    assert report.private_growth_bytes <= MOST_PRIVATE_GROWTH


# Entry s has the label of s mod 3, and lies s mod 64 / 16 below the label's corner: the sequence gives the distance.
_CORNERS = {"left": (-100.0, 0.0), "right": (100.0, 0.0), "up": (0.0, 100.0)}
_LEARN = """
import sys
import numpy as np
from edge_sdk import ModelFile
from edge_sdk.datastore import Datastore
corners = [(-100.0, 0.0), (100.0, 0.0), (0.0, 100.0)]
with Datastore.open(sys.argv[2], model=ModelFile.open(sys.argv[1]).metadata) as store:
    print("ready", flush=True)
    for sequence in range(31, 10_031):
        x, y = corners[sequence % 3]
        key = np.array([[x, y - sequence % 64 / 16]], np.float32)
        store.add(key, [("left", "right", "up")[sequence % 3]], np.full((1, 3), 1 / 3, np.float32), sync=False)
"""


def test_a_predictor_reads_only_whole_entries_while_another_process_learns(repository: Path, tmp_path: Path) -> None:
    model, folder = repository / "tests" / "data" / "tiny.onnx", tmp_path / "me.store"
    with Predictor.open(model, folder, capacity=31) as first:
        for sequence in range(1, 31):
            x, y = list(_CORNERS.values())[sequence % 3]
            sample = np.array([x, y - sequence % 64 / 16], np.float32)
            first.learn(sample, list(_CORNERS)[sequence % 3], sync=False, tune=False)
    command = [sys.executable, "-c", _LEARN, str(model), str(folder)]
    wrong: list[object] = []
    reads = 0
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as learner,
        Predictor.open(model, folder, read_only=True, interpolation_weight=1.0) as predictor,
    ):
        assert learner.stdout is not None
        learner.stdout.readline()
        while learner.poll() is None:
            for label, corner in _CORNERS.items():
                prediction = predictor.explain(np.array(corner, np.float32))
                reads += 1
                if prediction.label != label:
                    wrong.append((label, prediction))
                for voter in prediction.voters:
                    planted = list(_CORNERS)[voter.sequence % 3]
                    x, y = _CORNERS[planted]
                    distance = np.hypot(x - corner[0], y - voter.sequence % 64 / 16 - corner[1])
                    if voter.label != planted or abs(voter.distance - distance) > 0.01:
                        wrong.append((label, voter, distance))
        assert learner.returncode == 0
        assert wrong == []
        assert reads > 30
        predictor.predict(np.zeros(2, np.float32))
        assert predictor.datastore.table.newest == 10_030
