"""Exporting a state_dict: what is written, and what is refused in one line."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("onnxscript")

from edge_export import ExportReport, export_model
from edge_export.classes import read_classes
from edge_export.parity import open_session, run
from edge_sdk.errors import EdgeSDKError, ExportError, InputError
from edge_sdk.model import ModelFile

CLASSES = 5


class WindowNet(nn.Module):
    """Windows (n, 3, 20) -> logits (n, 5); embedding 16 wide."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(8)
        self.convolution = nn.Conv1d(3, 8, 5, padding=2)
        self.embed = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(16, CLASSES)

    def embedding(self, x: Tensor) -> Tensor:
        embedded: Tensor = self.embed(torch.relu(self.norm(self.convolution(x))).mean(dim=2))
        return embedded

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.embedding(x))
        return logits


class NeedsSettings(WindowNet):
    def __init__(self, width: int) -> None:
        super().__init__()


NOT_A_MODEL = 3


@pytest.fixture
def net() -> WindowNet:
    torch.manual_seed(1)
    net = WindowNet()
    nn.init.uniform_(net.norm.weight, 0.5, 2)
    nn.init.uniform_(net.norm.bias, -1, 1)
    return net


@pytest.fixture
def export(tmp_path: Path, net: WindowNet) -> Callable[..., ExportReport]:
    """Save something as model.pt and export it to model.onnx."""

    def export(content: object = None, **options: object) -> ExportReport:
        torch.save(net.state_dict() if content is None else content, tmp_path / "model.pt")
        settings = {"model": f"{__name__}:WindowNet", "input_shape": (3, 20), **options}
        return export_model(tmp_path / "model.pt", tmp_path / "model.onnx", **settings)  # type: ignore[arg-type]

    return export


def test_exported_file_gives_what_torch_gives(export: Callable[..., ExportReport], net: WindowNet) -> None:
    report = export()
    x = np.random.default_rng(5).standard_normal((7, 3, 20)).astype(np.float32)
    embedding, probabilities = run(open_session(report.path), x)
    net.eval()
    with torch.no_grad():
        expected = net.embedding(torch.from_numpy(x))
        np.testing.assert_allclose(embedding, expected.numpy(), atol=1e-5)
        np.testing.assert_allclose(probabilities, torch.softmax(net.head(expected), 1).numpy(), atol=1e-5)


def test_report_and_metadata_agree(export: Callable[..., ExportReport]) -> None:
    report = export(classes=("a", "b", "c", "d", "é"))
    metadata = ModelFile.open(report.path).metadata
    assert metadata.classes == report.classes == ("a", "b", "c", "d", "é")
    assert metadata.dim == report.dim == 16
    assert metadata.input.shape == (3, 20)
    assert metadata.fingerprint == report.fingerprint
    assert report.embedding == "input of head (Linear 16 -> 5)"
    assert [row.batch for row in report.parity] == [1, 2, 5, 64]


def test_without_labels_classes_are_numbers(export: Callable[..., ExportReport]) -> None:
    assert export().classes == ("0", "1", "2", "3", "4")


def test_file_names_no_machine_and_no_stack(export: Callable[..., ExportReport]) -> None:
    content = export().path.read_bytes()
    for word in (b"stack_trace", b".py", b"/home", b"/tmp", b"/root", b"pkg.torch", b"source."):
        assert word not in content, word


def test_batch_is_symbolic_and_weights_are_inside(export: Callable[..., ExportReport], tmp_path: Path) -> None:
    report = export()
    model = onnx.load(report.path, load_external_data=False)
    onnx.checker.check_model(model, full_check=True)
    assert [v.type.tensor_type.shape.dim[0].dim_param for v in (*model.graph.input, *model.graph.output)] == [
        "batch"
    ] * 3
    assert [v.name for v in model.graph.output] == ["embedding", "probabilities"]
    assert not any(tensor.external_data for tensor in model.graph.initializer)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "model.pt"]


def test_two_exports_are_the_same_bytes(export: Callable[..., ExportReport]) -> None:
    first = export().path.read_bytes()
    assert export().path.read_bytes() == first


def test_fingerprint_changes_with_any_weight_and_class_order(
    export: Callable[..., ExportReport], net: WindowNet
) -> None:
    prints = {export().fingerprint, export(classes=("1", "0", "2", "3", "4")).fingerprint}
    for name in ("convolution.weight", "norm.running_var", "embed.0.bias", "head.bias"):
        state = {key: value.clone() for key, value in net.state_dict().items()}
        state[name].view(-1)[0] += 1e-3
        prints.add(export(state).fingerprint)
    assert len(prints) == 6


@pytest.mark.parametrize(
    "wrap", [lambda s: {"state_dict": s, "epoch": 3}, lambda s: {"model": {"module." + k: v for k, v in s.items()}}]
)
def test_training_checkpoints_are_opened(
    export: Callable[..., ExportReport], net: WindowNet, wrap: Callable[[dict[str, Tensor]], object]
) -> None:
    plain = export().fingerprint
    assert export(wrap(net.state_dict())).fingerprint == plain


def _refused(call: Callable[[], object], *words: str) -> None:
    with pytest.raises(EdgeSDKError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert isinstance(caught.value, (ExportError, InputError))
    for word in words:
        assert word in message, message


def test_missing_and_unexpected_keys_are_listed(
    export: Callable[..., ExportReport], net: WindowNet, tmp_path: Path
) -> None:
    state = {**net.state_dict(), "tail.weight": torch.zeros(1)}
    del state["head.bias"]
    _refused(lambda: export(state), "missing head.bias", "unexpected tail.weight", "--model")
    assert not (tmp_path / "model.onnx").exists()


def test_weight_of_another_shape_is_named(export: Callable[..., ExportReport], net: WindowNet) -> None:
    state = {**net.state_dict(), "head.bias": torch.zeros(6)}
    _refused(lambda: export(state), "head.bias", "(6,)", "(5,)")


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        ("WindowNet", ("MODULE:NAME",)),
        ("no_such_module:Net", ("cannot import", "no_such_module")),
        (f"{__name__}:Windownet", ("has no Windownet", "WindowNet")),
        (f"{__name__}:NeedsSettings", ("width", "without arguments")),
        (f"{__name__}:NOT_A_MODEL", ("int",)),
        (f"{__name__}:dict", ("has no dict",)),
    ],
)
def test_factory_that_does_not_build_is_explained(
    export: Callable[..., ExportReport], factory: str, words: tuple[str, ...]
) -> None:
    _refused(lambda: export(model=factory), *words)


def test_wrong_input_shape_is_named(export: Callable[..., ExportReport], tmp_path: Path) -> None:
    _refused(lambda: export(input_shape=(4, 20)), "(4,20)", "--input-shape")
    assert not (tmp_path / "model.onnx").exists()


def test_wrong_number_of_labels_is_named(export: Callable[..., ExportReport]) -> None:
    _refused(lambda: export(classes=("a", "b")), "2 labels", "5 classes")


def test_refused_export_leaves_the_old_file(export: Callable[..., ExportReport], tmp_path: Path) -> None:
    before = export().path.read_bytes()
    _refused(lambda: export(classes=("a", "b")))
    assert (tmp_path / "model.onnx").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx", "model.pt"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ("cannot read", "No such file")),
        (b"", ("0 bytes",)),
        (b"\x89PNG\r\n\x1a\n" + bytes(40), ("PNG", "torch.save")),
        (b"hello world, no model here", ("not a model",)),
    ],
)
def test_rubbish_named_model_pt_is_recognised(tmp_path: Path, content: bytes | None, words: tuple[str, ...]) -> None:
    path = tmp_path / "rubbish.pt"
    if content is not None:
        path.write_bytes(content)
    _refused(lambda: export_model(path, tmp_path / "out.onnx", model="a:b", input_shape=(1,)), str(path), *words)


@pytest.mark.parametrize("kept", [0.2, 0.5, 0.99])
def test_file_cut_short_is_recognised(export: Callable[..., ExportReport], tmp_path: Path, kept: float) -> None:
    export()
    content = (tmp_path / "model.pt").read_bytes()
    path = tmp_path / "half.pt"
    path.write_bytes(content[: int(len(content) * kept)])
    _refused(
        lambda: export_model(path, tmp_path / "out.onnx", model=f"{__name__}:WindowNet", input_shape=(3, 20)),
        "cut short",
    )


def test_labels_come_from_a_file_or_from_the_line(tmp_path: Path) -> None:
    file = tmp_path / "labels.txt"
    file.write_text("﻿ walking \njogging\ne\u0301t\u00e9\n\n", encoding="utf-8")
    assert read_classes(str(file)) == ("walking", "jogging", "été")
    assert read_classes("walking, jogging") == ("walking", "jogging")
    file.write_text("walking\n\njogging\nwalking\n")
    _refused(lambda: read_classes(str(file)), "line 2", "empty")
    _refused(lambda: read_classes("a,b,a"), '"a"', "twice")
    _refused(lambda: read_classes("nothere.txt"), "no such file")
