"""The embedding of a torch module: which layer gives it, and a wrapper that returns it beside the class scores.

By default it is the input of the last linear layer that makes the class scores. "Makes" is tried and not guessed:
noise is added to the layer's output, and the scores must change. The wrapper returns a fixed tuple, so that the
exporter, which names outputs by position, cannot put a name on the wrong tensor.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edge_export.outputs import scores_path, tensors_by_path
from edge_sdk.errors import ExportError

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_LISTED = 8


@dataclass(frozen=True)
class EmbeddingChoice:
    """Where the embedding comes from."""

    layer: str
    """Name of a submodule, or path of an output."""

    side: str
    """"input" or "output" of that layer, or "returned" for one of the model's own outputs."""

    description: str
    """For people: `input of out (Linear 128 -> 18)`."""

    channels_last: bool = True
    """In which axis of a tensor with more than two axes the features lie: the last, or the second."""


class ScoresAndEmbedding(nn.Module):
    """A model that returns (embedding, scores): float32 (batch, dim) and (batch, classes)."""

    def __init__(self, source: nn.Module, choice: EmbeddingChoice, scores: str) -> None:
        super().__init__()
        self.source = source
        self.choice = choice
        self.scores = scores

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Run the source once and catch the embedding on the way."""
        caught: list[Any] = []
        if self.choice.side == "returned":
            value = self.source(x)
            caught.append(tensors_by_path(value)[self.choice.layer])
        else:
            with _Hooked(self.source.get_submodule(self.choice.layer), self.choice.side, caught.append):
                value = self.source(x)
        scores = tensors_by_path(value)[self.scores]
        return self._pooled(self._flat(caught[-1], x.shape[0])), _as_columns(scores)

    def _flat(self, value: Any, batch: int | torch.SymInt) -> Tensor:
        """The one tensor of what a layer gave; of a recurrent layer its last hidden (and cell) states side by side."""
        layer = self.source.get_submodule(self.choice.layer) if self.choice.side == "output" else None
        if isinstance(layer, nn.RNNBase):
            states = value[1] if isinstance(value[1], tuple) else (value[1],)  # each (layers, batch, hidden)
            return torch.cat([state.transpose(0, 1).reshape(batch, -1) for state in states], dim=1)
        if isinstance(value, (tuple, list)):
            value = value[0]
        if not isinstance(value, Tensor):
            raise ExportError(
                f"--embedding {self.choice.layer}: the layer gives a {type(value).__name__}, expected a tensor"
            )
        return value

    def _pooled(self, features: Tensor) -> Tensor:
        """(batch, dim): the mean over all axes but the batch and the features."""
        if features.ndim <= 2:
            return features
        axes = list(range(1, features.ndim - 1)) if self.choice.channels_last else list(range(2, features.ndim))
        return features.mean(dim=axes)


def choose_embedding(module: nn.Module, x: Tensor, *, scores: str, layer: str | None) -> EmbeddingChoice:
    """Find the embedding of a model.

    Args:
        module: the source, in eval mode.
        x: a batch of at least 2.
        scores: path of the class scores in what it returns.
        layer: name of a submodule (its output is taken) or path of a returned tensor, or None to find it.

    Raises:
        ExportError: no such layer, or no linear layer makes the scores; the layers that are there are listed.
    """
    if layer is not None:
        return _named(module, x, layer)
    calls = _linear_calls(module, x)
    with torch.no_grad():
        reference = tensors_by_path(module(x))[scores]
    classes = _as_columns(reference).shape[1]
    for name, part in reversed(calls):
        out = part.out_features if isinstance(part, nn.Linear) else part.out_channels
        if out == classes and _changes(module, x, part, scores, reference):
            return EmbeddingChoice(
                name, "input", f"input of {name or 'the model'} ({_sizes(part)})", isinstance(part, nn.Linear)
            )
    found = ", ".join(f"{name} ({_sizes(part)})" for name, part in calls[-_LISTED:]) or "none"
    raise ExportError(
        f"no linear layer makes the {classes} class scores (linear layers found: {found}); "
        f"name the layer whose output is the embedding: --embedding LAYER"
    )


def _named(module: nn.Module, x: Tensor, layer: str) -> EmbeddingChoice:
    parts = dict(module.named_modules())
    if layer in parts and layer:
        part = parts[layer]
        channels_last = not any(
            isinstance(inner, (*_CONVOLUTIONS, nn.BatchNorm1d, nn.BatchNorm2d)) for inner in part.modules()
        )
        kind = type(part).__name__
        if isinstance(part, nn.RNNBase):
            states = "hidden and cell states" if isinstance(part, nn.LSTM) else "hidden states"
            return EmbeddingChoice(layer, "output", f"{states} of {layer} ({kind})")
        return EmbeddingChoice(layer, "output", f"output of {layer} ({kind})", channels_last)
    with torch.no_grad():
        outputs = tensors_by_path(module(x))
    for path in outputs:
        if layer in (path, path.removeprefix("output"), path.removeprefix("output").strip('[]".')):
            return EmbeddingChoice(path, "returned", f"the model's own {path}", outputs[path].ndim != 4)
    names = [name for name, part in parts.items() if name and not any(part.children())]
    listed = ", ".join(names[-_LISTED:])
    raise ExportError(f"--embedding {layer}: no such layer or output; the last layers are {listed}")


def pooling_note(module: nn.Module, x: Tensor, choice: EmbeddingChoice) -> str | None:
    """What was done to a layer's features to make them (batch, dim), if anything.

    Raises:
        ExportError: the first axis of the features is not the batch.
    """
    wrapper = ScoresAndEmbedding(module, choice, "")
    caught: list[Any] = []
    with torch.no_grad():
        if choice.side == "returned":
            caught.append(tensors_by_path(module(x))[choice.layer])
        else:
            with _Hooked(module.get_submodule(choice.layer), choice.side, caught.append):
                module(x)
    features = wrapper._flat(caught[-1], x.shape[0])
    if features.ndim < 2 or features.shape[0] != x.shape[0]:
        raise ExportError(
            f"embedding ({choice.description}) has shape {tuple(features.shape)} for a batch of {x.shape[0]}; "
            "choose a layer whose first axis is the batch: --embedding LAYER"
        )
    if features.ndim == 2:
        return None
    axes = "all but the last axis" if choice.channels_last else "all axes after the second"
    return f"features of shape {tuple(features.shape[1:])} pooled: mean over {axes}"


def _linear_calls(module: nn.Module, x: Tensor) -> list[tuple[str, Any]]:
    """The linear layers (and 1 x 1 convolutions, which are linear layers over a map) in the order of their calls."""
    calls: list[tuple[str, Any]] = []
    handles = []
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear) or (isinstance(part, _CONVOLUTIONS) and set(part.kernel_size) == {1}):
            handles.append(part.register_forward_hook(lambda part, _, __, name=name: calls.append((name, part))))
    try:
        with torch.no_grad():
            module(x)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _changes(module: nn.Module, x: Tensor, part: nn.Module, scores: str, reference: Tensor) -> bool:
    """Whether noise on a layer's output changes the scores."""

    def add_noise(_: nn.Module, __: Any, output: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(0)  # not a constant, which softmax would cancel
        return output + torch.randn(output.shape, generator=generator)

    handle = part.register_forward_hook(add_noise)
    try:
        with torch.no_grad():
            return not torch.equal(tensors_by_path(module(x))[scores], reference)
    finally:
        handle.remove()


def _as_columns(scores: Tensor) -> Tensor:
    """(batch,) and (batch, classes, 1, 1) as (batch, classes)."""
    if scores.ndim == 1:
        return scores[:, None]
    if scores.ndim > 2 and all(size == 1 for size in scores.shape[2:]):
        return scores.flatten(1)
    return scores


def check_scores(module: nn.Module, x: Tensor, *, chosen: str | None) -> tuple[str, int]:
    """Path and number of columns of the class scores.

    Raises:
        ExportError: no output fits, or it is not (batch, classes).
    """
    with torch.no_grad():
        value = module(x)
    path = scores_path(value, batch=x.shape[0], chosen=chosen)
    scores = _as_columns(tensors_by_path(value)[path])
    if scores.ndim != 2 or scores.shape[0] != x.shape[0]:
        raise ExportError(
            f"the model's {path} has shape {tuple(scores.shape)} for a batch of {x.shape[0]}, expected "
            f"({x.shape[0]}, classes): one row of class scores a sample"
        )
    if not scores.is_floating_point():
        raise ExportError(
            f"the model's {path} is {str(scores.dtype).removeprefix('torch.')}, expected floating-point class scores; "
            "return them before argmax"
        )
    return path, int(scores.shape[1])


def _sizes(part: nn.Module) -> str:
    if isinstance(part, nn.Linear):
        return f"Linear {part.in_features} -> {part.out_features}"
    if isinstance(part, _CONVOLUTIONS):
        return f"{type(part).__name__} {part.in_channels} -> {part.out_channels}"
    return type(part).__name__


class _Hooked:
    """A layer whose input or output is handed to `catch` while the context lasts."""

    def __init__(self, part: nn.Module, side: str, catch: Callable[[Any], None]) -> None:
        self._part, self._side, self._catch = part, side, catch

    def __enter__(self) -> None:
        if self._side == "input":
            self._handle = self._part.register_forward_pre_hook(lambda _, args: self._catch(args[0]))
        else:
            self._handle = self._part.register_forward_hook(lambda _, __, output: self._catch(output))

    def __exit__(self, *_: object) -> None:
        self._handle.remove()
