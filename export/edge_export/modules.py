"""Modules: an `nn.Module`, however it was loaded -> a traced graph."""

import torch
from torch import Tensor, nn

from edge_export.embedding import ScoresAndEmbedding, check_scores, choose_embedding, pooling_note
from edge_export.graph import SAMPLE_BATCH, capture, export_graph, module_run, reason
from edge_export.metadata import LARGEST_FILE
from edge_export.program import trace_graph_module
from edge_export.quiet import quiet
from edge_export.samples import Sampler
from edge_export.traced import SourceOptions, Traced
from edge_sdk.errors import ExportError

_FLOATS = (torch.float16, torch.bfloat16, torch.float64)


def trace_module(module: nn.Module, options: SourceOptions, *, kind: str, notes: list[str]) -> Traced:
    """Trace a module with a symbolic batch.

    Args:
        module: the model with its weights; changed (moved to the CPU, float32, eval mode).
        options: the input's shape must be given.
        kind: what the source is, for people.
        notes: what was adapted so far.

    Raises:
        ExportError: what stands in the way, and the option that helps.
    """
    if options.input_shape is None:
        raise ExportError(f"a {kind} does not say its input; give --input-shape, for example --input-shape 6,100")
    refuse_too_large(sum(tensor.numel() for tensor in module.state_dict().values()))
    notes = [*notes, *settle(module)]
    dtype = options.input_dtype or "float32"
    vocabulary = min((part.num_embeddings for part in module.modules() if isinstance(part, nn.Embedding)), default=256)
    x = torch.from_numpy(Sampler(options.input_shape, dtype, vocabulary).batch(SAMPLE_BATCH))
    _refuse_wrong_input(module, x, dtype)
    scores, columns = check_scores(module, x, chosen=options.scores)
    if options.embedding is None and not _has_linear_layers(module, columns):
        # The scores are made by F.linear or a matrix product: only the captured program shows it.
        with quiet():
            program = capture(module, x).module(check_guards=False)
        return trace_graph_module(program, options, x, kind=kind, vocabulary=vocabulary, notes=notes)
    choice = choose_embedding(module, x, scores=scores, layer=options.embedding)
    pooled = pooling_note(module, x, choice)
    wrapper = ScoresAndEmbedding(module, choice, scores).eval()
    return Traced(
        model=export_graph(wrapper, x),
        kind=kind,
        input_shape=options.input_shape,
        input_dtype=dtype,
        vocabulary=vocabulary,
        embedding=choice.description,
        run=module_run(wrapper),
        notes=(*notes, *([pooled] if pooled else [])),
    )


def settle(module: nn.Module) -> list[str]:
    """Put a module on the CPU, in float32 and in eval mode, plain tensor attributes included; says what it changed."""
    notes = []
    dtypes = sorted({_name(tensor.dtype) for tensor in module.state_dict().values() if tensor.dtype in _FLOATS})
    if dtypes:
        notes.append(f"{' and '.join(dtypes)} weights converted to float32")
    if any(part.training for part in module.modules()):
        module.eval()
    module.to("cpu").float()
    for name, part in module.named_modules():
        for attribute, value in vars(part).items():
            if isinstance(value, Tensor) and (value.dtype in _FLOATS or value.device.type != "cpu"):
                path = f"{name}.{attribute}".lstrip(".")
                notes.append(f"{path} is a plain tensor, no buffer: moved to the CPU as float32 (use register_buffer)")
                setattr(part, attribute, value.to("cpu", torch.float32 if value.is_floating_point() else value.dtype))
    return notes


def refuse_too_large(numbers: int) -> None:
    """Estimate before anything is written.

    Raises:
        ExportError: as float32 the weights do not fit into one ONNX file.
    """
    if 4 * numbers > LARGEST_FILE:
        raise ExportError(
            f"the weights take {4 * numbers / 1e9:.1f} GB as float32, an ONNX file holds 2 GB; use a smaller model"
        )


def _has_linear_layers(module: nn.Module, columns: int) -> bool:
    return any(
        (isinstance(part, nn.Linear) and part.out_features == columns)
        or (isinstance(part, (nn.Conv1d, nn.Conv2d)) and part.out_channels == columns)
        for part in module.modules()
    )


def _refuse_wrong_input(module: nn.Module, x: Tensor, dtype: str) -> None:
    """Run the model once, so that a wrong shape is named before the exporter wraps the message."""
    for batch in (x, x[:2]):
        try:
            with torch.no_grad():
                module(batch)
        except Exception as error:  # a model's own code may raise anything
            shape = ",".join(str(size) for size in x.shape[1:])
            if "dtype" in str(error) or "scalar type" in str(error) or "Long" in str(error):
                cure = f"check --input-dtype (now {dtype})"
            else:
                cure = "check --input-shape; a batch size frozen in the model (x.view(1, -1)) looks like this too"
            raise ExportError(
                f"the model cannot run {len(batch)} samples of shape ({shape}): {reason(error)}; {cure}"
            ) from error


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
