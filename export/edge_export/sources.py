"""Sources: a file of any kind -> a traced graph."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from edge_export.checkpoint import find_state, load_into, load_state
from edge_export.factory import build_module, current_folder_importable
from edge_export.graph import reason
from edge_export.kinds import Kind, recognise
from edge_export.modules import trace_module
from edge_export.onnx_source import trace_onnx
from edge_export.program import trace_program
from edge_export.safetensors import load_safetensors
from edge_export.torchscript import trace_torchscript
from edge_export.traced import SourceOptions, Traced
from edge_sdk.errors import ExportError


def trace(source: Path, options: SourceOptions) -> Traced:
    """Recognise a source file by its bytes, load it safely, and trace it.

    Raises:
        ExportError: what stands in the way, and the option that helps.
    """
    kind = recognise(source)
    if kind is Kind.ONNX:
        return trace_onnx(source, options, kind=kind.value)
    if kind is Kind.TORCHSCRIPT:
        return trace_torchscript(source, options, kind=kind.value)
    if kind is Kind.PROGRAM:
        return trace_program(source, options, kind=kind.value)
    if kind is Kind.SAFETENSORS:
        state: Any = load_safetensors(source)
        name = "safetensors file"
    elif options.trust_pickle:
        state = _load_trusted(source)
        name = "state_dict"
        if isinstance(state, nn.Module):
            return trace_module(state, options, kind="whole pickled module", notes=[])
        state = find_state(state, source)
    else:
        state = load_state(source)
        name = "state_dict"
    if options.model is None:
        raise ExportError(f"{source}: a {name} holds no code; give --model MODULE:NAME that builds the network")
    if options.input_shape is None:
        raise ExportError(
            f"{source}: a {name} does not say its input; give --input-shape, for example --input-shape 6,100"
        )
    module = build_module(options.model)
    notes = load_into(module, state, source=str(source))
    return trace_module(module, options, kind=name, notes=notes)


def _load_trusted(source: Path) -> Any:
    """Unpickle a file whose code the user said to trust; a module inside a checkpoint is found too.

    Raises:
        ExportError: damaged, or its classes cannot be imported here.
    """
    try:
        with current_folder_importable():
            value = torch.load(source, map_location="cpu", weights_only=False)
    except Exception as error:  # unpickling runs the file's own code, which may raise anything
        raise ExportError(
            f"{source}: cannot unpickle: {reason(error)}; run where the model's own code can be imported"
        ) from error
    if isinstance(value, dict):
        for key in ("model", "module", "net", "ema"):
            if isinstance(value.get(key), nn.Module):
                return value[key]
    return value
