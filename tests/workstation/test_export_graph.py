"""What may be wrong inside a model: frozen batches, training mode, odd outputs, scores that are no logits."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

pytest.importorskip("onnxscript")

from edge_sdk.model import ModelFile
from tests.workstation.export_help import answers, export_module, normal, refused


class Perceptron(nn.Module):
    """(n, 8) -> hidden (n, 10), logits (n, 10): as wide as there are classes, so that shapes tell nothing."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.hidden = nn.Sequential(nn.Linear(8, 10), nn.ReLU())
        self.head = nn.Linear(10, classes)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.hidden(x))


def _expected(net: Perceptron, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    net.eval()
    with torch.no_grad():
        hidden = net.hidden(torch.from_numpy(x))
        return hidden.numpy(), torch.softmax(net.head(hidden), 1).numpy()


def _holds(path: Path, net: Perceptron) -> None:
    x = normal(6, 8)
    embedding, probabilities = answers(path, x)
    hidden, expected = _expected(net, x)
    np.testing.assert_allclose(embedding, hidden, atol=1e-5)
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)


# Batches.


class ViewOne(Perceptron):
    def forward(self, x: Tensor) -> Any:
        return self.head(self.hidden(x.view(1, -1)))


class ViewSize(Perceptron):
    def forward(self, x: Tensor) -> Any:
        return self.head(self.hidden(x).view(x.size(0), -1))


class ViewInt(Perceptron):
    def forward(self, x: Tensor) -> Any:
        return self.head(torch.stack([self.hidden(x[row]) for row in range(int(x.shape[0]))]))


def test_view_by_size_keeps_the_batch_free(tmp_path: Path) -> None:
    report = export_module(ViewSize(), tmp_path, (8,))
    for n in (1, 3, 64):
        assert answers(report.path, normal(n, 8))[1].shape == (n, 10)


def test_view_with_a_fixed_first_size_is_named(tmp_path: Path) -> None:
    refused(lambda: export_module(ViewOne(), tmp_path, (8,)), "x.view(1, -1)")


def test_loop_over_the_batch_is_named(tmp_path: Path) -> None:
    refused(lambda: export_module(ViewInt(), tmp_path, (8,)), "batch size is frozen")
    assert not (tmp_path / "model.onnx").exists()


# Training mode.


class AlwaysDropout(Perceptron):
    def forward(self, x: Tensor) -> Any:
        return self.head(functional.dropout(self.hidden(x)))


class BatchStatistics(Perceptron):
    def forward(self, x: Tensor) -> Any:
        return self.head(functional.batch_norm(self.hidden(x), None, None, training=True))


class BatchSoftmax(Perceptron):
    def forward(self, x: Tensor) -> Any:
        return torch.softmax(super().forward(x), dim=0)


def test_model_left_in_training_mode_is_exported_in_eval_mode(tmp_path: Path) -> None:
    net = Perceptron()
    net.hidden.append(nn.Dropout(0.5)).append(nn.BatchNorm1d(10))
    report = export_module(net.train(), tmp_path, (8,))
    _holds(report.path, net)
    operators = {node.op_type for node in onnx.load(report.path).graph.node}
    assert "Dropout" not in operators


def test_dropout_that_eval_does_not_stop_is_refused(tmp_path: Path) -> None:
    refused(lambda: export_module(AlwaysDropout(), tmp_path, (8,)), "other answers each run", "training=self.training")


def test_sample_that_depends_on_its_batch_is_refused(tmp_path: Path) -> None:
    refused(lambda: export_module(BatchSoftmax(), tmp_path, (8,)), "depends on the rest of its batch")


def test_batch_statistics_are_refused(tmp_path: Path) -> None:
    refused(lambda: export_module(BatchStatistics(), tmp_path, (8,)), "cannot run one sample alone", "training mode")


# Outputs.


class EmbeddingFirst(Perceptron):
    def forward(self, x: Tensor) -> Any:
        hidden = self.hidden(x)
        return {"embedding": hidden, "probs": torch.softmax(self.head(hidden), 1)}


class ProbabilitiesFirst(Perceptron):
    def forward(self, x: Tensor) -> Any:
        hidden = self.hidden(x)
        return {"probs": torch.softmax(self.head(hidden), 1), "embedding": hidden}


@pytest.mark.parametrize("net", [EmbeddingFirst(), ProbabilitiesFirst()], ids=["embedding first", "probs first"])
def test_dictionary_order_does_not_swap_the_outputs(tmp_path: Path, net: Perceptron) -> None:
    _holds(export_module(net, tmp_path, (8,)).path, net)
    report = export_module(net, tmp_path, (8,), embedding="embedding")
    assert report.embedding == 'the model\'s own output["embedding"]'
    _holds(report.path, net)


@dataclass
class Outputs:
    hidden: Tensor
    logits: Tensor
    loss: None = None


class WithNone(Perceptron):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x), None


class Nested(Perceptron):
    def forward(self, x: Tensor) -> Any:
        return {"a": {"b": super().forward(x)}}


class Dataclass(Perceptron):
    def forward(self, x: Tensor) -> Any:
        hidden = self.hidden(x)
        return Outputs(hidden, self.head(hidden))


class TwoFit(Perceptron):
    def forward(self, x: Tensor) -> Any:
        hidden = self.hidden(x)
        return hidden, self.head(hidden)


class Text(Perceptron):
    def forward(self, x: Tensor) -> Any:
        return "a string"


class Predicted(Perceptron):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x).argmax(dim=1)


@pytest.mark.parametrize("net", [WithNone(), Nested(), Dataclass()], ids=["None beside", "nested", "dataclass"])
def test_scores_are_found_in_what_the_model_returns(tmp_path: Path, net: Perceptron) -> None:
    _holds(export_module(net, tmp_path, (8,)).path, net)


def test_two_outputs_that_fit_must_be_told_apart(tmp_path: Path) -> None:
    refused(lambda: export_module(TwoFit(), tmp_path, (8,)), "output[0] (3, 10)", "output[1] (3, 10)", "--scores")
    _holds(export_module(TwoFit(), tmp_path, (8,), scores="1").path, TwoFit())


def test_outputs_that_are_no_scores_are_named(tmp_path: Path) -> None:
    refused(lambda: export_module(Text(), tmp_path, (8,)), "output (str)")
    refused(lambda: export_module(Predicted(), tmp_path, (8,)), "int64", "before argmax")


# Heads.


class LogSoftmax(Perceptron):
    def forward(self, x: Tensor) -> Any:
        return functional.log_softmax(super().forward(x), dim=1)


class Softmax(Perceptron):
    def forward(self, x: Tensor) -> Any:
        return torch.softmax(super().forward(x), dim=1)


class OwnSoftmax(Perceptron):
    def forward(self, x: Tensor) -> Any:
        powers = super().forward(x).exp()
        return powers / powers.sum(dim=1, keepdim=True)


class Sigmoids(Perceptron):
    def forward(self, x: Tensor) -> Any:
        return torch.sigmoid(super().forward(x))


class OneSigmoid(Perceptron):
    def __init__(self) -> None:
        super().__init__(classes=1)

    def forward(self, x: Tensor) -> Any:
        return torch.sigmoid(super().forward(x)).squeeze(1)


class OneLogit(Perceptron):
    def __init__(self) -> None:
        super().__init__(classes=1)


@pytest.mark.parametrize(
    ("net", "head"),
    [
        (Perceptron(), "softmax added"),
        (Softmax(), "nothing added"),
        (OwnSoftmax(), "nothing added"),
        (LogSoftmax(), "exp added"),
    ],
    ids=["logits", "softmax", "own softmax", "log_softmax"],
)
def test_probabilities_sum_to_one_whatever_the_head(tmp_path: Path, net: Perceptron, head: str) -> None:
    report = export_module(net, tmp_path, (8,))
    assert head in report.head
    _holds(report.path, net)


def test_several_sigmoids_are_refused(tmp_path: Path) -> None:
    refused(lambda: export_module(Sigmoids(), tmp_path, (8,)), "sigmoid", "logits")


@pytest.mark.parametrize("net", [OneSigmoid(), OneLogit()], ids=["sigmoid", "logit"])
def test_one_score_becomes_two_columns(tmp_path: Path, net: Perceptron) -> None:
    report = export_module(net, tmp_path, (8,), classes=("no", "yes"))
    x = normal(4, 8)
    with torch.no_grad():
        yes = torch.sigmoid(net.head(net.hidden(torch.from_numpy(x)))).numpy()
    np.testing.assert_allclose(answers(report.path, x)[1], np.concatenate([1 - yes, yes], axis=1), atol=1e-5)


# Embeddings.


class Tokens(nn.Module):
    """(n, 6, 8) -> logits for each step, averaged."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = nn.Linear(8, 12)
        self.head = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.relu(self.steps(x))).mean(dim=1)
        return logits


class EveryStep(Tokens):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.head(self.steps(x)))


class Maps(nn.Module):
    """SqueezeNet's kind of head: a 1 x 1 convolution, then the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 7, 3), nn.ReLU())
        self.classifier = nn.Conv2d(7, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(x)).mean(dim=(2, 3))
        return logits


class Functional(nn.Module):
    """No layer makes the scores."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 6), nn.ReLU())
        self.weight = nn.Parameter(torch.randn(4, 6))

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(self.body(x), self.weight)


class SideBranch(Perceptron):
    """A later linear layer of the same width that makes no scores."""

    def __init__(self) -> None:
        super().__init__()
        self.auxiliary = nn.Linear(10, 10)

    def forward(self, x: Tensor) -> Any:
        logits = super().forward(x)
        self.auxiliary(logits)
        return logits


def test_steps_are_pooled_and_said_so(tmp_path: Path) -> None:
    net = Tokens().eval()
    report = export_module(net, tmp_path, (6, 8))
    assert any("pooled" in note for note in report.notes)
    x = normal(3, 6, 8)
    with torch.no_grad():
        expected = torch.relu(net.steps(torch.from_numpy(x))).mean(dim=1).numpy()
    np.testing.assert_allclose(answers(report.path, x)[0], expected, atol=1e-5)


def test_scores_for_every_step_are_refused(tmp_path: Path) -> None:
    refused(lambda: export_module(EveryStep(), tmp_path, (6, 8)), "(3, 6, 4)", "one row of class scores a sample")


def test_feature_maps_are_pooled_over_their_places(tmp_path: Path) -> None:
    net = Maps().eval()
    report = export_module(net, tmp_path, (3, 9, 9))
    x = normal(2, 3, 9, 9)
    with torch.no_grad():
        expected = net.features(torch.from_numpy(x)).mean(dim=(2, 3)).numpy()
    np.testing.assert_allclose(answers(report.path, x)[0], expected, atol=1e-5)
    assert report.embedding == "input of classifier (Conv2d 7 -> 4)"


def test_functional_head_is_found_in_the_program(tmp_path: Path) -> None:
    net = Functional().eval()
    report = export_module(net, tmp_path, (8,))
    x = normal(2, 8)
    with torch.no_grad():
        np.testing.assert_allclose(answers(report.path, x)[0], net.body(torch.from_numpy(x)).numpy(), atol=1e-5)


def test_layer_that_makes_no_scores_is_passed_over(tmp_path: Path) -> None:
    report = export_module(SideBranch(), tmp_path, (8,))
    assert report.embedding == "input of head (Linear 10 -> 10)"


def test_embedding_layer_can_be_chosen(tmp_path: Path) -> None:
    net = Perceptron()
    report = export_module(net, tmp_path, (8,), embedding="hidden.0")
    x = normal(2, 8)
    with torch.no_grad():
        np.testing.assert_allclose(answers(report.path, x)[0], net.hidden[0](torch.from_numpy(x)).numpy(), atol=1e-5)
    refused(lambda: export_module(net, tmp_path, (8,), embedding="nothere"), "--embedding nothere", "hidden.0")


# Other faults.


class PlainTensor(Perceptron):
    def __init__(self) -> None:
        super().__init__()
        self.scale = torch.tensor(2.0, dtype=torch.float64)

    def forward(self, x: Tensor) -> Any:
        return super().forward(x * self.scale)


def test_tensor_that_is_no_buffer_is_named_and_converted(tmp_path: Path) -> None:
    report = export_module(PlainTensor(), tmp_path, (8,))
    assert any("scale is a plain tensor" in note for note in report.notes)


def test_not_a_number_in_the_weights_is_refused(tmp_path: Path) -> None:
    net = Perceptron()
    nn.init.constant_(net.head.bias, float("nan"))
    refused(lambda: export_module(net, tmp_path, (8,)), "NaN")


def test_model_of_more_than_two_gigabytes_is_refused_before_the_work(tmp_path: Path) -> None:
    from edge_export.modules import refuse_too_large

    refused(lambda: refuse_too_large(600_000_000), "2.4 GB", "2 GB")


def test_dry_run_checks_everything_and_writes_nothing(tmp_path: Path) -> None:
    report = export_module(Perceptron(), tmp_path, (8,), dry_run=True)
    assert report.size_bytes > 0
    assert not (tmp_path / "model.onnx").exists()


def test_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    from edge_export import export_model

    torch.save(Perceptron(), tmp_path / "model.pt")
    refused(
        lambda: export_model(tmp_path / "model.pt", tmp_path / "no" / "m.onnx", input_shape=(8,), trust_pickle=True),
        "no such folder",
    )


def test_integer_tokens_are_taken(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Embedding(11, 4), nn.Flatten(), nn.Linear(20, 6), nn.ReLU(), nn.Linear(6, 3))
    report = export_module(net, tmp_path, (5,), input_dtype="int64")
    assert ModelFile.open(report.path).metadata.input.dtype == "int64"
    refused(lambda: export_module(net, tmp_path, (5,)), "--input-dtype")
