"""`edge-sdk export` as typed: exit codes, one line for every error, results on stdout."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("onnxscript")

from edge_tools import cli

Run = Callable[..., tuple[int, str, str]]


class TwoLayers(nn.Sequential):
    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Type a command in an empty folder that holds model.pt; gives (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    torch.save(TwoLayers().state_dict(), "model.pt")

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["edge-sdk", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return run


MODEL = ("export", "model.pt", "--model", f"{__name__}:TwoLayers", "--input-shape", "6", "-o", "m.onnx")


def test_report_names_what_was_done(run: Run) -> None:
    code, out, err = run(*MODEL, "--labels", "sit,stand,walk")
    assert code == 0
    for word in ("input of 2 (Linear 8 -> 3)", "sit, stand, walk", "softmax added", "opset 18", "onnxruntime 1.14"):
        assert word in out, out
    assert "exporting model.pt" in err


def test_json_is_one_document(run: Run) -> None:
    code, out, _ = run(*MODEL, "--json")
    assert code == 0
    report = json.loads(out)
    assert report["classes"] == ["0", "1", "2"]
    assert [row["batch"] for row in report["parity"]] == [1, 2, 5, 64]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("model.pt", "nothere.pt"), ("nothere.pt", "No such file")),
        (("6", "7"), ("--input-shape", "(7)")),
        (("6", "six"), ("--input-shape six", "for example")),
        (("--model", "--labels"), ("no such file of labels",)),
    ],
)
def test_wrong_arguments_are_one_line(run: Run, change: tuple[str, str], words: tuple[str, ...]) -> None:
    arguments = [change[1] if argument == change[0] else argument for argument in MODEL]
    if change[1] == "--labels":
        arguments[arguments.index("--labels") + 1] = "nothere.txt"
    code, out, err = run(*arguments)
    assert code == 1
    assert out == ""
    line = err.strip().splitlines()[-1]
    assert line.startswith("edge-sdk: ")
    assert "Traceback" not in err
    for word in words:
        assert word in line, line
    assert not Path("m.onnx").exists()


def test_int8_below_the_threshold_exits_3(run: Run) -> None:
    np.savez("data.npz", x=np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32))
    code, out, err = run(*MODEL, "--quantize", "int8", "--calibration", "data.npz", "--min-agreement", "1.01")
    assert code == 3
    assert out == ""
    assert "at least 101.0 % wanted" in err
    assert not Path("m.onnx").exists()


def test_only_int8_is_offered(run: Run) -> None:
    code, _, err = run(*MODEL, "--quantize", "dynamic")
    assert code == 1
    assert "expected int8" in err
