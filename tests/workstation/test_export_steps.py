"""The steps after tracing: preprocessing, target runtime, int8, projection, self-check reference."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("onnxscript")

from edge_export import AgreementError, ExportReport, parse_preprocess
from edge_export.input_kind import parse_rules
from edge_export.target import fit_target, oldest_reader, parse_target
from edge_sdk.encoder import Encoder
from edge_sdk.errors import ConfigError
from edge_sdk.model import ModelFile
from edge_sdk.selfcheck import self_check
from tests.workstation.export_help import answers, export_module, normal, refused

SHAPE = (3, 12, 12)


class Pictures(nn.Module):
    """(n, 3, 12, 12) -> logits (n, 4); embedding 24 wide."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 24, 3, stride=2), nn.ReLU()
        )
        self.fc = nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.features(x).mean(dim=(2, 3)))
        return logits


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs of four kinds, with the labels of the kinds."""
    path = tmp_path_factory.mktemp("calibration") / "data.npz"
    rng = np.random.default_rng(2)
    kinds = rng.standard_normal((4, *SHAPE)) * 2
    label = rng.integers(0, 4, 160)
    np.savez(path, x=(kinds[label] + rng.standard_normal((160, *SHAPE))).astype(np.float32), label=label)
    return path


@pytest.fixture
def export(tmp_path: Path) -> Callable[..., ExportReport]:
    return lambda **options: export_module(Pictures(), tmp_path, SHAPE, **options)


# Preprocessing.


def test_preprocessing_is_inside_the_graph(export: Callable[..., ExportReport]) -> None:
    report = export(preprocess=parse_preprocess(["imagenet"]))
    assert (report.input_shape, report.input_dtype) == ((12, 12, 3), "uint8")
    pictures = np.random.default_rng(1).integers(0, 256, (5, 12, 12, 3), np.uint8)
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    x = torch.from_numpy(((pictures / 255 - mean) / std).transpose(0, 3, 1, 2).astype(np.float32).copy())
    with torch.no_grad():
        expected = torch.softmax(Pictures().eval()(x), dim=1).numpy()
    np.testing.assert_allclose(answers(report.path, pictures)[1], expected, atol=1e-5)
    spec = ModelFile.open(report.path).metadata.input
    assert spec.kind == "image"
    assert spec.preprocessing == {"layout": "nhwc", "colour": "rgb"}


def test_preprocessing_changes_the_fingerprint(export: Callable[..., ExportReport]) -> None:
    prints = {
        export(preprocess=parse_preprocess(steps)).fingerprint
        for steps in ([], ["scale=1/255"], ["scale=1/256"], ["mean=0.5"], ["mean=0.5", "std=0.5"], ["nhwc"])
    }
    assert len(prints) == 6


@pytest.mark.parametrize("step", ["flip", "scale=", "mean=a,b", "scale=1/0", "std=0", "mean"])
def test_unknown_step_is_named(step: str) -> None:
    refused(lambda: parse_preprocess([step]), "--preprocess")


def test_statistics_for_other_channels_are_refused(export: Callable[..., ExportReport]) -> None:
    refused(lambda: export(preprocess=parse_preprocess(["mean=0.5,0.5"])), "2 numbers", "3 channels")


# Input kinds.


def test_rules_for_files_reach_the_device(export: Callable[..., ExportReport]) -> None:
    report = export(preprocess=parse_preprocess(["imagenet"]), input_rules=parse_rules(["resize=16", "fit=pad"]))
    rules = ModelFile.open(report.path).metadata.input.preprocessing
    assert rules == {"layout": "nhwc", "colour": "rgb", "resize": 16, "fit": "pad"}


def test_sound_says_its_rate(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(400, 6), nn.ReLU(), nn.Linear(6, 2))
    report = export_module(net, tmp_path, (400,), input_kind="audio", input_rules={"rate": 8000, "fit": "pad-or-crop"})
    spec = ModelFile.open(report.path).metadata.input
    assert (spec.kind, spec.preprocessing) == ("audio", {"rate": 8000, "fit": "pad-or-crop"})
    refused(lambda: export_module(net, tmp_path, (400,), input_kind="audio"), "rate", "--input-rule")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"input_kind": "video"}, ("array, image, audio",)),
        ({"input_kind": "image", "input_rules": {"zoom": 2}}, ("zoom",)),
        ({"input_rules": {"resize": 2}}, ("--input-kind",)),
    ],
)
def test_rules_that_no_device_follows_are_refused(
    export: Callable[..., ExportReport], options: dict[str, object], words: tuple[str, ...]
) -> None:
    refused(lambda: export(**options), *words)


def test_rule_without_a_value_is_refused() -> None:
    refused(lambda: parse_rules(["resize"]), "NAME=VALUE")


# Target runtime.


def test_file_says_which_runtime_reads_it(export: Callable[..., ExportReport]) -> None:
    report = export(target="1.16")
    assert (report.opset, report.ir_version, report.onnxruntime) == (18, 8, "1.14")
    assert ModelFile.open(report.path).metadata.extensions["onnxruntime"] == "1.14"


def test_older_target_gets_an_older_opset(export: Callable[..., ExportReport]) -> None:
    report = export(target="1.12")
    assert report.opset == 17
    assert onnx.load(report.path).opset_import[0].version == 17


@pytest.mark.parametrize("target", ["1.5", "latest", "13", "1.x"])
def test_target_that_is_no_version_is_refused(target: str) -> None:
    refused(lambda: parse_target(target), "--target-onnxruntime")


def test_opset_that_cannot_be_lowered_is_refused() -> None:
    node = onnx.helper.make_node("Gelu", ["x"], ["y"])  # new in opset 20
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", values[:1], values[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)])
    refused(lambda: fit_target(model, (1, 14)), "opset 20", "reads 18", "1.17")
    assert oldest_reader(fit_target(model, (1, 17))) == "1.17"


def test_opset_of_the_future_is_named() -> None:
    model = onnx.helper.make_model(
        onnx.helper.make_graph([], "g", [], []), opset_imports=[onnx.helper.make_opsetid("", 99)]
    )
    model.ir_version = 8
    assert oldest_reader(model).endswith("+")


# int8.


def test_int8_is_small_and_reports_what_it_costs(export: Callable[..., ExportReport], calibration: Path) -> None:
    report = export(int8=True, calibration=calibration, min_agreement=0.9)
    int8 = report.quantisation
    assert int8 is not None
    assert int8.weight_bytes_before > 3 * int8.weight_bytes_after
    assert int8.agreement >= 0.9
    assert int8.cosine_mean > 0.99
    assert int8.accuracy_before is not None
    assert int8.latency_ratio > 0
    operators = {node.op_type for node in onnx.load(report.path).graph.node}
    assert {"QuantizeLinear", "DequantizeLinear"} <= operators
    assert "DynamicQuantizeLinear" not in operators
    assert answers(report.path, normal(5, *SHAPE))[1].shape == (5, 4)


def test_int8_that_disagrees_is_not_written(
    export: Callable[..., ExportReport], calibration: Path, tmp_path: Path
) -> None:
    with pytest.raises(AgreementError, match=r"at least 110\.0 %"):
        export(int8=True, calibration=calibration, min_agreement=1.1)
    assert not (tmp_path / "model.onnx").exists()


def test_int8_has_another_fingerprint(export: Callable[..., ExportReport], calibration: Path) -> None:
    plain = export()
    assert export(int8=True, calibration=calibration, min_agreement=0.5).fingerprint != plain.fingerprint


@pytest.mark.parametrize("options", [{"int8": True}, {"project": 4}])
def test_calibration_data_is_asked_for(export: Callable[..., ExportReport], options: dict[str, object]) -> None:
    refused(lambda: export(**options), "--calibration")


def test_calibration_of_another_shape_is_refused(export: Callable[..., ExportReport], tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", x=normal(9, 3, 10, 10))
    refused(lambda: export(project=4, calibration=tmp_path / "other.npz"), "other.npz", "3, 12, 12")


# Projection.


def test_projection_keeps_the_leading_directions(export: Callable[..., ExportReport], calibration: Path) -> None:
    whole = answers(export().path, np.load(calibration)["x"])
    report = export(project=5, calibration=calibration)
    assert report.dim == 5
    kept = report.projection
    assert kept is not None
    embedding, probabilities = answers(report.path, np.load(calibration)["x"])
    np.testing.assert_allclose(probabilities, whole[1], atol=1e-6)
    variances = np.linalg.eigvalsh(np.cov(whole[0].astype(np.float64), rowvar=False))[::-1]
    np.testing.assert_allclose(embedding.var(axis=0, ddof=1), variances[:5], rtol=1e-3)
    np.testing.assert_allclose(kept.retained_variance, variances[:5].sum() / variances.sum(), rtol=1e-6)
    assert kept.accuracy_before is not None
    assert kept.accuracy_after is not None


def test_projection_of_all_but_one_keeps_distances(export: Callable[..., ExportReport], calibration: Path) -> None:
    x = np.load(calibration)["x"][:20]
    before = answers(export().path, x)[0]
    after = answers(export(project=23, calibration=calibration).path, x)[0]
    distances = [np.linalg.norm(e[:, None] - e[None], axis=2) for e in (before, after)]
    np.testing.assert_allclose(distances[1], distances[0], atol=0.02 * float(distances[0].max()))


@pytest.mark.parametrize("r", [0, 24, 100])
def test_projection_to_no_fewer_numbers_is_refused(
    export: Callable[..., ExportReport], calibration: Path, r: int
) -> None:
    with pytest.raises(ConfigError, match="expected from 1 to 23"):
        export(project=r, calibration=calibration)


def test_int8_can_be_projected(export: Callable[..., ExportReport], calibration: Path) -> None:
    report = export(int8=True, project=6, calibration=calibration, min_agreement=0.5)
    assert report.dim == 6
    assert ModelFile.open(report.path).metadata.extensions["projection"]["dim_before"] == 24


# Self-check.


def test_exported_file_passes_its_own_check(export: Callable[..., ExportReport]) -> None:
    encoder = Encoder.open(export().path)
    result = self_check(encoder.encode, encoder.metadata)
    assert result is not None
    assert result.passed
    assert result.embedding < 1e-5


def test_other_answers_are_found(export: Callable[..., ExportReport]) -> None:
    encoder = Encoder.open(export().path)

    def wrong(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        embeddings, probabilities = encoder.encode(x)
        return embeddings * np.float32(1.02), probabilities

    result = self_check(wrong, encoder.metadata)
    assert result is not None
    assert not result.passed
    assert "0.02" in result.message
