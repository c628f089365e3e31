"""TorchScript: an archive of `torch.jit` -> a traced graph, by torch's older exporter.

This is the only file that uses `torch.jit` and `dynamo=False`, which torch has announced to remove: torch's new
exporter takes no TorchScript. When they go, this file goes, and `sources.py` loses one branch.
"""

import io
from pathlib import Path

import numpy as np
import onnx
import torch

from edge_export.graph import OPSET, SAMPLE_BATCH, reason
from edge_export.modules import refuse_too_large
from edge_export.onnx_source import trace_graph
from edge_export.outputs import scores_path, tensors_by_path
from edge_export.quiet import quiet, quiet_native
from edge_export.samples import Sampler
from edge_export.traced import INPUT, SCORES, Run, SourceOptions, Traced
from edge_sdk.errors import ExportError


def trace_torchscript(path: Path, options: SourceOptions, *, kind: str) -> Traced:
    """Load and trace a scripted or traced module.

    Raises:
        ExportError: what stands in the way, and the option that helps.
    """
    if options.input_shape is None:
        raise ExportError(
            f"{path}: a {kind} does not say its input; give --input-shape, for example --input-shape 6,100"
        )
    try:
        with quiet():
            module = torch.jit.load(str(path), map_location="cpu")  # type: ignore[no-untyped-call]
    except Exception as error:  # RuntimeError, and whatever an extension raises
        raise ExportError(f"{path}: damaged TorchScript archive ({reason(error)}); copy or save it again") from error
    refuse_too_large(sum(tensor.numel() for tensor in module.state_dict().values()))
    halves = sorted(
        {str(t.dtype)[6:] for t in module.state_dict().values() if t.dtype in (torch.float16, torch.bfloat16)}
    )
    notes = [f"{' and '.join(halves)} weights converted to float32"] if halves else []
    module = module.eval().float()
    dtype = options.input_dtype or "float32"
    vocabulary = min(
        (len(t) for name, t in module.state_dict().items() if "embed" in name.lower() and t.ndim == 2), default=256
    )
    x = torch.from_numpy(Sampler(options.input_shape, dtype, vocabulary).batch(SAMPLE_BATCH))
    try:
        with torch.no_grad():
            value = module(x)
    except Exception as error:  # a script's errors are RuntimeErrors with a listing of its code
        shape = ",".join(str(length) for length in options.input_shape)
        lines = [line.strip() for line in str(error).splitlines() if "Error" in line]
        raise ExportError(
            f"{path}: cannot run {len(x)} samples of shape ({shape}): {(lines or [reason(error)])[-1][:200]}; "
            "check --input-shape and --input-dtype"
        ) from error
    outputs = list(tensors_by_path(value))
    scores = scores_path(value, batch=len(x), chosen=options.scores)
    names = [SCORES if name == scores else f"output_{number}" for number, name in enumerate(outputs)]
    model = _translate(module, x, names, path)
    return trace_graph(
        model,
        SourceOptions(embedding=options.embedding, scores=SCORES, input_shape=options.input_shape),
        kind=kind,
        notes=notes,
        name=str(path),
        run=_run(module, scores),
    )


def _translate(module: torch.jit.ScriptModule, x: torch.Tensor, names: list[str], path: Path) -> onnx.ModelProto:
    buffer = io.BytesIO()
    try:
        with quiet_native():
            torch.onnx.export(
                module,
                (x,),
                buffer,  # type: ignore[arg-type]  # the older exporter takes it, the annotation is the newer one's
                dynamo=False,
                input_names=[INPUT],
                output_names=names,
                dynamic_axes={name: {0: "batch"} for name in (INPUT, *names)},
                opset_version=OPSET,
            )
    except Exception as error:  # the exporter raises whatever a translation raises
        raise ExportError(
            f"{path}: torch.onnx cannot translate this TorchScript: {reason(error)}; export the state_dict with --model"
        ) from error
    return onnx.load_from_string(buffer.getvalue())


def _run(module: torch.jit.ScriptModule, scores: str) -> Run:
    def run(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            value = tensors_by_path(module(torch.from_numpy(x)))[scores].numpy()
        return value, value.reshape(len(x), -1)

    return run
