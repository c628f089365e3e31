"""Every kind of file that people call model.pt becomes the same model file, or says what it is."""

import json
import struct
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

pytest.importorskip("onnxscript")

from edge_export import export_model
from edge_export.quiet import quiet, quiet_native
from tests.workstation.export_help import answers, export_module, normal, refused

SHAPE = (3, 20)
FACTORY = f"{__name__}:SmallNet"


class SmallNet(nn.Module):
    """(n, 3, 20) -> logits (n, 5)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(3, 8, 5), nn.BatchNorm1d(8), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten()
        )
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(x))
        return logits


@pytest.fixture
def net() -> SmallNet:
    torch.manual_seed(3)
    return SmallNet().eval()


def _expected(net: SmallNet, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with torch.no_grad():
        embedding = net.body(torch.from_numpy(x))
        return embedding.numpy(), torch.softmax(net.head(embedding), 1).numpy()


def _holds(path: Path, net: SmallNet) -> None:
    for n in (1, 3, 64):
        x = normal(n, *SHAPE)
        embedding, probabilities = answers(path, x)
        expected_embedding, expected = _expected(net, x)
        np.testing.assert_allclose(embedding, expected_embedding, atol=1e-5)
        np.testing.assert_allclose(probabilities, expected, atol=1e-5)


def _trace(net: nn.Module, x: Tensor) -> torch.jit.ScriptModule:
    module: torch.jit.ScriptModule = torch.jit.trace(net, x, check_trace=False)  # type: ignore[no-untyped-call]
    return module


def _save_program(net: nn.Module, path: Path) -> None:
    with quiet():
        batch = torch.export.Dim("batch")
        torch.export.save(torch.export.export(net, (torch.randn(3, *SHAPE),), dynamic_shapes=({0: batch},)), path)


def _save_onnx(net: nn.Module, path: Path, *, symbolic: bool = True) -> None:
    with quiet():
        torch.onnx.export(
            net,
            (torch.randn(3 if symbolic else 1, *SHAPE),),
            str(path),
            dynamic_shapes=({0: torch.export.Dim("batch")},) if symbolic else None,
            external_data=False,
            dynamo=True,
            verbose=False,
        )


@pytest.mark.parametrize("scripted", [True, False], ids=["script", "trace"])
def test_torchscript_is_exported(net: SmallNet, tmp_path: Path, scripted: bool) -> None:
    with quiet():
        module = torch.jit.script(net) if scripted else _trace(net, torch.randn(2, *SHAPE))
        torch.jit.save(module, tmp_path / "model.pt")
    report = export_model(tmp_path / "model.pt", tmp_path / "model.onnx", input_shape=SHAPE)
    assert report.source == "TorchScript archive"
    _holds(report.path, net)


def test_torchscript_without_a_shape_asks_for_it(net: SmallNet, tmp_path: Path) -> None:
    with quiet():
        torch.jit.save(torch.jit.script(net), tmp_path / "model.pt")
    refused(lambda: export_model(tmp_path / "model.pt", tmp_path / "model.onnx"), "--input-shape")


def test_torchscript_that_onnx_cannot_express_is_refused_in_silence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Autocast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            values, _ = torch.unique(x, return_inverse=True)
            logits: Tensor = self.head(x) + torch.linalg.matrix_rank(x[:, None].expand(-1, 3, -1)).sum() + values.sum()
            return logits

    with quiet():
        torch.jit.save(_trace(Autocast(), torch.randn(2, 4)), tmp_path / "model.pt")
    refused(
        lambda: export_model(tmp_path / "model.pt", tmp_path / "o.onnx", input_shape=(4,)), "TorchScript", "--model"
    )
    assert capfd.readouterr() == ("", "")


def test_program_is_exported_without_options(net: SmallNet, tmp_path: Path) -> None:
    _save_program(net, tmp_path / "model.pt")
    report = export_model(tmp_path / "model.pt", tmp_path / "model.onnx")
    assert report.source == "torch.export archive"
    assert report.embedding == "input of head (linear -> 5)"
    _holds(report.path, net)


def test_program_with_a_frozen_batch_shows_the_way_out(tmp_path: Path) -> None:
    class Frozen(SmallNet):
        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.head(self.body(x).view(int(x.shape[0]), -1))
            return logits

    with quiet():
        torch.export.save(torch.export.export(Frozen().eval(), (torch.randn(1, *SHAPE),)), tmp_path / "model.pt2")
    refused(lambda: export_model(tmp_path / "model.pt2", tmp_path / "model.onnx"), "batch of 3", "dynamic_shapes")


def test_whole_pickled_model_needs_trust(net: SmallNet, tmp_path: Path) -> None:
    refused(
        lambda: export_module(net, tmp_path, SHAPE, trust_pickle=False),
        "whole pickled object",
        "--model",
        "--trust-pickle",
    )
    report = export_module(net, tmp_path, SHAPE)
    assert report.source == "whole pickled module"
    _holds(report.path, net)


def test_trusted_pickle_inside_a_checkpoint_is_found(net: SmallNet, tmp_path: Path) -> None:
    torch.save({"epoch": 3, "model": net}, tmp_path / "model.pt")
    report = export_model(tmp_path / "model.pt", tmp_path / "model.onnx", input_shape=SHAPE, trust_pickle=True)
    _holds(report.path, net)


def _save_safetensors(state: dict[str, Tensor], path: Path) -> None:
    names = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64"}
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, tensor in state.items():
        raw = (
            tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
            if tensor.ndim
            else tensor.numpy().tobytes()
        )
        header[name] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=["f32", "f16", "bf16"])
def test_safetensors_are_exported(net: SmallNet, tmp_path: Path, dtype: torch.dtype) -> None:
    net = net.to(dtype).float()
    state = {name: t.to(dtype) if t.is_floating_point() else t for name, t in net.state_dict().items()}
    _save_safetensors(state, tmp_path / "model.safetensors")
    report = export_model(tmp_path / "model.safetensors", tmp_path / "model.onnx", model=FACTORY, input_shape=SHAPE)
    assert report.source == "safetensors file"
    _holds(report.path, net)
    assert any("float32" in note for note in report.notes) == (dtype is not torch.float32)


def test_safetensors_with_a_lying_header_are_refused(net: SmallNet, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    _save_safetensors(dict(net.state_dict()), path)
    content = path.read_bytes()
    for damaged in (content[:-4], content.replace(b'"shape": [5]', b'"shape": [9]')):
        path.write_bytes(damaged)
        refused(
            lambda: export_model(path, tmp_path / "o.onnx", model=FACTORY, input_shape=SHAPE), "damaged safetensors"
        )


def test_existing_onnx_is_cut_at_the_last_linear_layer(net: SmallNet, tmp_path: Path) -> None:
    _save_onnx(net, tmp_path / "source.onnx")
    report = export_model(tmp_path / "source.onnx", tmp_path / "model.onnx", classes=("a", "b", "c", "d", "e"))
    assert report.source == "ONNX file"
    assert "Gemm" in report.embedding
    _holds(report.path, net)


def test_onnx_with_a_frozen_batch_is_freed(net: SmallNet, tmp_path: Path) -> None:
    _save_onnx(net, tmp_path / "source.onnx", symbolic=False)
    _holds(export_model(tmp_path / "source.onnx", tmp_path / "model.onnx").path, net)


def test_onnx_without_its_weights_file_names_it(net: SmallNet, tmp_path: Path) -> None:
    _save_onnx(net, tmp_path / "inside.onnx")
    onnx.save(
        onnx.load(tmp_path / "inside.onnx"),
        tmp_path / "split.onnx",
        save_as_external_data=True,
        location="split.data",
        size_threshold=0,
    )
    _holds(export_model(tmp_path / "split.onnx", tmp_path / "model.onnx").path, net)
    (tmp_path / "split.data").unlink()
    refused(lambda: export_model(tmp_path / "split.onnx", tmp_path / "model.onnx"), "split.data")


def test_own_model_file_is_exported_again_with_its_classes(net: SmallNet, tmp_path: Path) -> None:
    first = export_module(net, tmp_path, SHAPE, classes=("a", "b", "c", "d", "e"))
    again = export_model(first.path, tmp_path / "again.onnx")
    assert again.classes == ("a", "b", "c", "d", "e")
    assert again.head.startswith("probabilities already")
    _holds(again.path, net)


def _sklearn_graph(*, zipmap: bool) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A two-layer perceptron as skl2onnx writes MLPClassifier: matrix products, softmax, label output, ZipMap."""
    rng = np.random.default_rng(0)
    weights: dict[str, np.ndarray] = {
        "coefficient": rng.standard_normal((6, 10)).astype(np.float32),
        "intercepts": rng.standard_normal((1, 10)).astype(np.float32),
        "coefficient1": rng.standard_normal((10, 3)).astype(np.float32),
        "intercepts1": rng.standard_normal((1, 3)).astype(np.float32),
        "classes": np.array([0, 1, 2], np.int64),
    }
    nodes = [
        helper.make_node("MatMul", ["X", "coefficient"], ["mul_result"]),
        helper.make_node("Add", ["mul_result", "intercepts"], ["add_result"]),
        helper.make_node("Relu", ["add_result"], ["next_activations"]),
        helper.make_node("MatMul", ["next_activations", "coefficient1"], ["mul_result1"]),
        helper.make_node("Add", ["mul_result1", "intercepts1"], ["add_result1"]),
        helper.make_node("Softmax", ["add_result1"], ["probabilities"], axis=1),
        helper.make_node("ArgMax", ["probabilities"], ["argmax"], axis=1),
        helper.make_node("ArrayFeatureExtractor", ["classes", "argmax"], ["extracted"], domain="ai.onnx.ml"),
        helper.make_node("Reshape", ["extracted", "flat"], ["output_label"]),
    ]
    outputs = [helper.make_tensor_value_info("output_label", TensorProto.INT64, [None])]
    if zipmap:
        nodes.append(
            helper.make_node(
                "ZipMap", ["probabilities"], ["output_probability"], domain="ai.onnx.ml", classlabels_int64s=[0, 1, 2]
            )
        )
        element = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
        outputs.append(helper.make_value_info("output_probability", helper.make_sequence_type_proto(element)))
    else:
        outputs.append(helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [None, 3]))
    initialisers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    initialisers.append(numpy_helper.from_array(np.array([-1], np.int64), "flat"))
    graph = helper.make_graph(
        nodes, "sklearn", [helper.make_tensor_value_info("X", TensorProto.FLOAT, [None, 6])], outputs, initialisers
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), weights


@pytest.mark.parametrize("zipmap", [True, False])
def test_scikit_learn_perceptron_is_exported(tmp_path: Path, zipmap: bool) -> None:
    model, weights = _sklearn_graph(zipmap=zipmap)
    onnx.save(model, tmp_path / "source.onnx")
    report = export_model(tmp_path / "source.onnx", tmp_path / "model.onnx", classes=("sit", "stand", "walk"))
    x = normal(4, 6)
    embedding, probabilities = answers(report.path, x)
    hidden = np.maximum(x @ weights["coefficient"] + weights["intercepts"], 0)
    logits = hidden @ weights["coefficient1"] + weights["intercepts1"]
    np.testing.assert_allclose(embedding, hidden, atol=1e-5)
    np.testing.assert_allclose(probabilities, np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), atol=1e-5)


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT16, TensorProto.DOUBLE], ids=["half", "double"])
def test_onnx_of_another_precision_becomes_float32(tmp_path: Path, dtype: int) -> None:
    model, _ = _sklearn_graph(zipmap=False)
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            array = numpy_helper.to_array(tensor).astype(helper.tensor_dtype_to_np_dtype(dtype))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    model.graph.input[0].type.tensor_type.elem_type = dtype
    model.graph.output[1].type.tensor_type.elem_type = dtype
    onnx.save(model, tmp_path / "source.onnx")
    report = export_model(tmp_path / "source.onnx", tmp_path / "model.onnx")
    assert report.input_dtype == "float32"
    assert any("converted to float32" in note for note in report.notes)


def test_embedding_tensor_of_an_onnx_file_can_be_named(tmp_path: Path) -> None:
    model, weights = _sklearn_graph(zipmap=False)
    onnx.save(model, tmp_path / "source.onnx")
    report = export_model(tmp_path / "source.onnx", tmp_path / "model.onnx", embedding="add_result")
    x = normal(2, 6)
    np.testing.assert_allclose(
        answers(report.path, x)[0], x @ weights["coefficient"] + weights["intercepts"], atol=1e-5
    )
    refused(
        lambda: export_model(tmp_path / "source.onnx", tmp_path / "o.onnx", embedding="nothing"),
        "nothing",
        "add_result1",
    )


def test_half_precision_checkpoint_becomes_float32(net: SmallNet, tmp_path: Path) -> None:
    report = export_module(net.half(), tmp_path, SHAPE)
    assert "float16 weights converted to float32" in report.notes
    _holds(report.path, net.float())


def test_older_pickle_format_is_opened(net: SmallNet, tmp_path: Path) -> None:
    torch.save(net.state_dict(), tmp_path / "model.pt", _use_new_zipfile_serialization=False)
    report = export_model(tmp_path / "model.pt", tmp_path / "model.onnx", model=FACTORY, input_shape=SHAPE)
    _holds(report.path, net)


def test_checkpoint_saved_on_a_gpu_is_opened_without_one(net: SmallNet, tmp_path: Path) -> None:
    torch.save(net.state_dict(), tmp_path / "cpu.pt")
    with zipfile.ZipFile(tmp_path / "cpu.pt") as old, zipfile.ZipFile(tmp_path / "model.pt", "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("data.pkl"):  # where each tensor lived is a string in the pickle
                assert b"X\x03\x00\x00\x00cpu" in content
                content = content.replace(b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
            new.writestr(name, content)
    report = export_model(tmp_path / "model.pt", tmp_path / "model.onnx", model=FACTORY, input_shape=SHAPE)
    _holds(report.path, net)


def test_quiet_puts_everything_back(capfd: pytest.CaptureFixture[str]) -> None:
    with quiet_native():
        print("hidden", flush=True)  # noqa: T201
    print("seen", flush=True)  # noqa: T201
    assert capfd.readouterr().out == "seen\n"
