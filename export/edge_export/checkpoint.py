"""Checkpoints: what `torch.save` wrote -> the tensors of a model.

Loading is always `weights_only=True`, which builds tensors and plain containers and runs no code of the file.
Everything is mapped to the CPU, so a checkpoint saved on a GPU opens where there is none.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edge_sdk.errors import ExportError

_NESTED_KEYS = ("state_dict", "model_state_dict", "model", "module", "net", "network", "ema")
_PREFIXES = ("module.", "_orig_mod.", "model.", "net.")
_LISTED = 6


def load_state(path: Path) -> dict[str, Tensor]:
    """The state_dict inside a checkpoint, wherever in it it lies.

    Raises:
        ExportError: the file holds a whole pickled object, is damaged, or has no state_dict.
    """
    try:
        value = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # UnpicklingError, RuntimeError, EOFError, ValueError ... for what a file may hold
        if "weights_only" in str(error) or "Weights only" in str(error):
            raise ExportError(
                f"{path}: a whole pickled object, and loading one runs its code; save model.state_dict() and give "
                "--model MODULE:NAME that builds the model, or pass --trust-pickle if you made the file yourself"
            ) from error
        raise ExportError(
            f"{path}: damaged or cut short ({_first_line(error)}); copy or save the model again"
        ) from error
    return find_state(value, path)


def find_state(value: Any, path: Path) -> dict[str, Tensor]:
    """The state_dict in a loaded checkpoint: itself, or under one of the usual keys of training scripts.

    Raises:
        ExportError: there is none; the message lists the keys that are there.
    """
    if isinstance(value, Mapping):
        if value and all(isinstance(item, Tensor) for item in value.values()):
            return {str(name): item for name, item in value.items()}
        for key in _NESTED_KEYS:
            if isinstance(value.get(key), Mapping):
                return find_state(value[key], path)
        tensors = {str(name): item for name, item in value.items() if isinstance(item, Tensor)}
        if tensors:  # a state_dict with extra state beside the tensors (quantisers, version numbers)
            return tensors
        keys = ", ".join(str(key) for key in list(value)[:_LISTED])
        raise ExportError(f"{path}: no state_dict in this checkpoint (its keys: {keys}); save model.state_dict()")
    raise ExportError(f"{path}: holds a {type(value).__name__}, expected a state_dict; save model.state_dict()")


def load_into(module: nn.Module, state: Mapping[str, Tensor], *, source: str) -> list[str]:
    """Copy `state` into `module`, every key and shape accounted for.

    Args:
        module: the model that the user's factory built; changed.
        state: tensors by name, possibly all under a wrapper's prefix (`module.` of DataParallel, `_orig_mod.` of
            compile). source: name of the file, for messages.

    Returns:
        What was adapted, one sentence each, for the report.

    Raises:
        ExportError: keys missing or unexpected, or of another shape; the first few are listed.
    """
    wanted = module.state_dict()
    notes = []
    prefix = _matching_prefix(wanted, state)
    if prefix:
        state = {name.removeprefix(prefix): item for name, item in state.items()}
        notes.append(f'prefix "{prefix}" removed from the names of the state_dict')
    # A counter that no evaluation reads; checkpoints of before torch 0.4.1 do not have it.
    missing = [name for name in wanted if name not in state and not name.endswith("num_batches_tracked")]
    unexpected = [name for name in state if name not in wanted]
    if missing or unexpected:
        parts = [
            f"{word} {_listed(names)}" for word, names in (("missing", missing), ("unexpected", unexpected)) if names
        ]
        raise ExportError(f"{source}: the state_dict does not fit the model: {'; '.join(parts)}; check --model")
    for name, item in state.items():
        if item.shape != wanted[name].shape:
            raise ExportError(
                f"{source}: {name} has shape {tuple(item.shape)}, the model has {tuple(wanted[name].shape)}; "
                "check the settings that --model builds it with"
            )
    halves = sorted({str(item.dtype).removeprefix("torch.") for item in state.values() if item.dtype in _HALVES})
    if halves:
        notes.append(f"{' and '.join(halves)} weights converted to float32")
    module.load_state_dict({**wanted, **state})
    return notes


_HALVES = (torch.float16, torch.bfloat16)


def _matching_prefix(wanted: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> str:
    """The prefix without which the names fit better, or ""."""
    for prefix in _PREFIXES:
        if state and all(name.startswith(prefix) for name in state) and not any(name in wanted for name in state):
            return prefix
    return ""


def _listed(names: list[str]) -> str:
    rest = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + rest


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).strip().splitlines()[0]
