"""Outputs: which of the things a model returns are the class scores.

Exporters name outputs by position, so a dictionary in another order silently swaps two names. Here every tensor of the
returned value gets a path (`output["logits"]`, `output[1]`, `output.logits`), and one is chosen by that path.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor

from edge_sdk.errors import ExportError

_SCORE_NAMES = (
    "logits",
    "logit",
    "probabilities",
    "probs",
    "prob",
    "scores",
    "score",
    "log_probs",
    "pred",
    "predictions",
)


def tensors_by_path(value: Any, path: str = "output") -> dict[str, Tensor]:
    """Every tensor inside a returned value, by the Python expression that reaches it."""
    return {name: leaf for name, leaf in _leaves(value, path).items() if isinstance(leaf, Tensor)}


def scores_path(value: Any, *, batch: int, chosen: str | None) -> str:
    """Path of the class scores in what the model returned for `batch` samples.

    Args:
        value: returned by the model.
        batch: number of samples it was given.
        chosen: path or last name typed by the user, or None to find it: the only output, the only one called logits,
            probabilities or the like, or the only one of shape (batch, classes).

    Raises:
        ExportError: none or several fit; every output is listed with its type.
    """
    leaves = _leaves(value, "output")
    tensors = {path: leaf for path, leaf in leaves.items() if isinstance(leaf, Tensor)}
    if chosen is not None:
        found = [path for path in tensors if chosen in (path, _last_name(path))]
        if len(found) != 1:
            raise ExportError(f"--scores {chosen}: the model returns {_described(leaves)}; give one of its tensors")
        return found[0]
    if not tensors:
        raise ExportError(
            f"the model returns {_described(leaves)}; it must return a tensor of class scores (batch, classes)"
        )
    if len(tensors) == 1:
        return next(iter(tensors))
    by_name = [path for path in tensors if _last_name(path).lower() in _SCORE_NAMES]
    if len(by_name) == 1:
        return by_name[0]
    by_shape = [path for path, tensor in tensors.items() if tensor.ndim == 2 and tensor.shape[0] == batch]
    if len(by_shape) == 1:
        return by_shape[0]
    raise ExportError(f"the model returns {_described(leaves)}; say which are the class scores: --scores OUTPUT")


def _leaves(value: Any, path: str) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return _merged(_leaves(item, f'{path}["{key}"]') for key, item in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return _merged(_leaves(item, f"{path}.{name}") for name, item in zip(value._fields, value, strict=True))
    if isinstance(value, (list, tuple)):
        return _merged(_leaves(item, f"{path}[{position}]") for position, item in enumerate(value))
    if is_dataclass(value) and not isinstance(value, type):
        return _merged(_leaves(getattr(value, item.name), f"{path}.{item.name}") for item in fields(value))
    return {path: value}


def _merged(parts: Any) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for part in parts:
        merged.update(part)
    return merged


def _last_name(path: str) -> str:
    """`logits` of `output["logits"]` and `output.logits`, `1` of `output[1]`."""
    return path.replace('"]', "").replace("]", "").replace('["', ".").replace("[", ".").rpartition(".")[2]


def _described(leaves: Mapping[str, Any]) -> str:
    if not leaves:
        return "nothing"
    return ", ".join(
        f"{path} {tuple(leaf.shape)}" if isinstance(leaf, Tensor) else f"{path} ({type(leaf).__name__})"
        for path, leaf in leaves.items()
    )
