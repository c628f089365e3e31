"""What `edge-sdk inspect` shows, and the cost that the exporter counts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
import torch
from torch import nn

pytest.importorskip("onnxscript")

from edge_export import export_model
from edge_export.macs import estimate_macs
from edge_export.quiet import quiet
from edge_sdk.model import METADATA_KEY
from tests.workstation.export_help import export_module


@pytest.fixture(scope="module")
def model_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv1d(3, 8, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 2)
    )
    return export_module(net, tmp_path_factory.mktemp("inspect"), (3, 20), classes=("rest", "run")).path


def _inspect(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "edge_tools", "inspect", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=_environment())


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def test_multiply_accumulates_are_counted(model_file: Path) -> None:
    assert estimate_macs(onnx.load(model_file)) == 8 * 8 * (3 * 5) + 64 * 16 + 16 * 2


def test_recurrent_layers_are_counted(tmp_path: Path) -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(4, 6, batch_first=True)
            self.head = nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = self.head(self.lstm(x)[0][:, -1])
            return logits

    with quiet():
        torch.jit.save(torch.jit.script(Last().eval()), tmp_path / "model.pt")
    report = export_model(tmp_path / "model.pt", tmp_path / "model.onnx", input_shape=(5, 4))
    assert estimate_macs(onnx.load(report.path)) == 5 * 4 * 6 * (4 + 6) + 6 * 3


def test_everything_is_shown_and_the_file_runs(model_file: Path) -> None:
    result = _inspect(model_file)
    assert result.returncode == 0, result.stderr
    for word in ("rest, run", "16 numbers", "opset 18", "IR 8", "multiply-accumulates", "runs here", "as it should"):
        assert word in result.stdout, result.stdout


def test_json_holds_the_metadata(model_file: Path) -> None:
    found = json.loads(_inspect(model_file, "--json").stdout)
    assert found["classes"] == ["rest", "run"]
    assert found["runs"] is True
    assert found["self_check"]["passed"] is True
    assert found["extensions"]["macs"] > 0


def test_file_that_answers_otherwise_is_found(model_file: Path, tmp_path: Path) -> None:
    model = onnx.load(model_file)
    text = json.loads(model.metadata_props[0].value)
    assert model.metadata_props[0].key == METADATA_KEY
    text["extensions"]["reference"]["high"] = 3.0
    model.metadata_props[0].value = json.dumps(text)
    onnx.save(model, tmp_path / "other.onnx")
    result = _inspect(tmp_path / "other.onnx")
    assert result.returncode == 1
    assert "not what the exporting machine computed" in result.stdout.replace("\n", " ").replace("  ", " ")


def test_file_for_a_newer_runtime_is_named(model_file: Path, tmp_path: Path) -> None:
    model = onnx.load(model_file)
    model.ir_version = 99
    onnx.save(model, tmp_path / "newer.onnx")
    result = _inspect(tmp_path / "newer.onnx")
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "no:" in result.stdout


def test_foreign_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "picture.onnx").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(50))
    result = _inspect(tmp_path / "picture.onnx")
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "not an ONNX file" in result.stderr
