"""A model file that would run code does not run it."""

import json
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

pytest.importorskip("onnxscript")

from edge_export import export_model
from edge_export.program_safety import is_arithmetic
from edge_export.quiet import quiet
from tests.workstation.export_help import refused


class Bomb:
    """Unpickling this touches a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.marker,))


@pytest.mark.parametrize("wrap", [lambda bomb: bomb, lambda bomb: {"state_dict": {"w": torch.zeros(1)}, "extra": bomb}])
@pytest.mark.parametrize("zipped", [True, False])
def test_checkpoint_does_not_run_its_code(tmp_path: Path, wrap: object, zipped: bool) -> None:
    marker, path = tmp_path / "marker", tmp_path / "model.pt"
    torch.save(wrap(Bomb(marker)), path, _use_new_zipfile_serialization=zipped)  # type: ignore[operator]
    refused(
        lambda: export_model(path, tmp_path / "o.onnx", model="torch.nn:Identity", input_shape=(1,)),
        "pickled object",
        "--model",
        "--trust-pickle",
    )
    assert not marker.exists()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "model.pt2"
    with quiet():
        module = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).eval()
        torch.export.save(
            torch.export.export(module, (torch.randn(3, 4),), dynamic_shapes=({0: torch.export.Dim("batch")},)), path
        )
    return path


def _rewrite(path: Path, ending: str, content: bytes) -> None:
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, old in entries.items():
            archive.writestr(name, content if name.endswith(ending) else old)


def _model_json(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if name.endswith("models/model.json"))
        return archive.read(name).decode()


def test_harmless_program_passes(program: Path, tmp_path: Path) -> None:
    assert export_model(program, tmp_path / "o.onnx").dim == 3


def test_program_does_not_unpickle_its_sample_inputs(program: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    torch.save(Bomb(marker), tmp_path / "bomb.pt")
    _rewrite(program, "sample_inputs/model.pt", (tmp_path / "bomb.pt").read_bytes())
    refused(lambda: export_model(program, tmp_path / "o.onnx"), "pickled object", "sample_inputs")
    assert not marker.exists()


def test_program_does_not_unpickle_its_weights(program: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    torch.save(Bomb(marker), tmp_path / "bomb.pt")
    with zipfile.ZipFile(program) as archive:
        name = next(name for name in archive.namelist() if name.endswith("model_weights_config.json"))
        config = json.loads(archive.read(name))
    for entry in config["config"].values():
        entry["use_pickle"] = True
    _rewrite(program, "model_weights_config.json", json.dumps(config).encode())
    _rewrite(program, "weights/weight_0", (tmp_path / "bomb.pt").read_bytes())
    refused(lambda: export_model(program, tmp_path / "o.onnx"), "pickled object", "weight_")
    assert not marker.exists()


def test_program_does_not_evaluate_its_size_expressions(program: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    text = _model_json(program)
    assert "expr_str" in text
    document = json.loads(text)

    def poison(value: object) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                if key == "expr_str":
                    value[key] = f"__import__('pathlib').Path({str(marker)!r}).touch()"
                poison(item)
        elif isinstance(value, list):
            for item in value:
                poison(item)

    poison(document)
    _rewrite(program, "models/model.json", json.dumps(document).encode())
    refused(lambda: export_model(program, tmp_path / "o.onnx"), "not arithmetic")
    assert not marker.exists()


def test_program_does_not_call_other_operators(program: Path, tmp_path: Path) -> None:
    text = _model_json(program).replace("torch.ops.aten.relu.default", "torch.os.system")
    _rewrite(program, "models/model.json", text.encode())
    refused(lambda: export_model(program, tmp_path / "o.onnx"), "torch.os.system")


@pytest.mark.parametrize(
    "text",
    ["s77", "2*s0 + 1", "Symbol('s77', integer=True, positive=True)", "Mul(Integer(2), Symbol('s0'))", "Max(1, s0)"],
)
def test_sizes_are_arithmetic(text: str) -> None:
    assert is_arithmetic(text)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "exec('1')",
        "().__class__",
        "s0.func",
        "open(1)",
        "Symbol('a b')",
        "lambda: 0",
        "[s0]",
        "Max(1)(2)",
    ],
)
def test_code_is_no_arithmetic(text: str) -> None:
    assert not is_arithmetic(text)
