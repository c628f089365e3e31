"""Real architectures, exported without options beyond their input: the right embedding, and equal to torch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("onnxscript")

from edge_export import export_model
from edge_tools.benchmarks.mobilenet import MobileNetV2
from tests.workstation import export_nets as nets
from tests.workstation.export_help import answers, export_module


@pytest.mark.parametrize(
    ("net", "shape", "embedding", "dim"),
    [
        (MobileNetV2(10), (3, 32, 32), "input of classifier.1 (Linear 1280 -> 10)", 1280),
        (nets.ResNet18(10), (3, 32, 32), "input of fc (Linear 512 -> 10)", 512),
    ],
    ids=["mobilenet_v2", "resnet18"],
)
def test_picture_classifiers_are_exported(
    tmp_path: Path, net: nn.Module, shape: tuple[int, ...], embedding: str, dim: int
) -> None:
    report = export_module(net, tmp_path, shape)
    assert (report.embedding, report.dim) == (embedding, dim)
    assert max(row.probabilities for row in report.parity) <= 1e-5


def test_resnet_embedding_can_be_its_pooling_layer(tmp_path: Path) -> None:
    report = export_module(nets.ResNet18(10), tmp_path, (3, 32, 32), embedding="layer3")
    assert report.dim == 256
    assert any("mean over all axes after the second" in note for note in report.notes)


def test_transformer_is_exported(tmp_path: Path) -> None:
    report = export_module(nets.TextTransformer(), tmp_path, (24,), input_dtype="int64")
    assert (report.embedding, report.dim) == ("input of head (Linear 32 -> 4)", 32)


def test_recurrent_states_are_the_key(tmp_path: Path) -> None:
    net = nets.NextCharacterWithStates(characters=30, hidden=8).eval()
    report = export_module(net, tmp_path, (6,), input_dtype="int64", embedding="states")
    assert report.dim == 4 * 8
    x = np.random.default_rng(0).integers(0, 30, (3, 6))
    with torch.no_grad():
        expected = net(torch.from_numpy(x))["states"].numpy()
    np.testing.assert_allclose(answers(report.path, x)[0], expected, atol=1e-5)


def test_recurrent_layer_by_name_gives_the_same_states(tmp_path: Path) -> None:
    net = nets.NextCharacter(characters=30, hidden=8).eval()
    report = export_module(net, tmp_path, (6,), input_dtype="int64", embedding="lstm")
    assert report.embedding == "hidden and cell states of lstm (LSTM)"
    x = np.random.default_rng(0).integers(0, 30, (3, 6))
    with torch.no_grad():
        _, (hidden, cell) = net.lstm(net.embed(torch.from_numpy(x)))
        expected = torch.cat([hidden[0], hidden[1], cell[0], cell[1]], dim=1).numpy()
    np.testing.assert_allclose(answers(report.path, x)[0], expected, atol=1e-5)


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet18"])
def test_torchvision_models_are_exported(tmp_path: Path, name: str) -> None:
    torchvision = pytest.importorskip(
        "torchvision", reason="torchvision is not installed; make test-export installs it"
    )
    torch.manual_seed(0)
    torch.save(getattr(torchvision.models, name)().state_dict(), tmp_path / "model.pt")
    report = export_model(
        tmp_path / "model.pt", tmp_path / "model.onnx", model=f"torchvision.models:{name}", input_shape=(3, 64, 64)
    )
    assert report.dim == {"mobilenet_v2": 1280, "resnet18": 512}[name]


def test_own_mobilenet_has_torchvision_s_names() -> None:
    names = set(MobileNetV2().state_dict())
    assert {
        "features.0.0.weight",
        "features.18.1.running_var",
        "features.1.conv.0.0.weight",
        "classifier.1.bias",
    } <= names
    assert sum(parameter.numel() for parameter in MobileNetV2().parameters()) == 3_504_872  # as published
    assert sum(parameter.numel() for parameter in nets.ResNet18().parameters()) == 11_689_512
