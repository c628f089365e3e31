"""The exporter: source file -> model file, step by step, nothing written before everything was checked."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from edge_export import head as heads
from edge_export.checkpoint import load_into, load_state
from edge_export.classes import check_classes
from edge_export.embedding import ScoresAndEmbedding, check_scores, choose_embedding, pooling_note
from edge_export.factory import build_module
from edge_export.graph import INPUT, OPSET, SAMPLE_BATCH, SCORES, export_graph, reason
from edge_export.kinds import Kind, recognise
from edge_export.metadata import LARGEST_FILE, describe, write_checked
from edge_export.parity import BatchParity, Reference, check_deterministic, check_parity
from edge_export.samples import DTYPES, Sampler, sampler_for
from edge_sdk.errors import ConfigError, ExportError
from edge_sdk.model import InputSpec


@dataclass(frozen=True)
class ExportReport:
    """What was written, and how it compares with its source."""

    path: Path
    source: str
    """Kind of the source file."""

    classes: tuple[str, ...]
    input_shape: tuple[int, ...]
    input_dtype: str
    dim: int
    embedding: str
    """Where the embedding comes from."""

    head: str
    """What the class scores were, and what was added."""

    parity: tuple[BatchParity, ...]
    size_bytes: int
    opset: int
    ir_version: int
    fingerprint: str
    notes: tuple[str, ...]
    """What was adapted on the way, one sentence each."""

    seconds: float


def export_model(
    source: Path,
    output: Path,
    *,
    model: str | None = None,
    input_shape: tuple[int, ...] | None = None,
    input_dtype: str = "float32",
    classes: tuple[str, ...] | None = None,
    embedding: str | None = None,
    scores: str | None = None,
) -> ExportReport:
    """Export a trained model to one verified ONNX file.

    Args:
        source: the trained model.
        output: where the model file goes; replaced only when everything was checked.
        model: `module:factory` that builds the network for a state_dict.
        input_shape: shape of one sample, without the batch.
        input_dtype: NumPy name of the input's dtype.
        classes: one label a score column; None for "0", "1", ...
        embedding: layer whose output is the embedding, or path of a returned tensor; None for the input of the last
            linear layer. scores: which of the model's outputs are the class scores, if it returns several.

    Raises:
        ExportError: what stands in the way, and the option that helps. `output` is as it was.
    """
    started = time.perf_counter()
    if input_dtype not in DTYPES:
        raise ConfigError(f"input dtype {input_dtype}: expected one of {', '.join(DTYPES)}")
    kind = recognise(source)
    if kind is not Kind.CHECKPOINT:
        raise ExportError(
            f"{source}: a {kind.value}; this version exports a state_dict: torch.save(model.state_dict(), ...)"
        )
    if model is None:
        raise ExportError(f"{source}: a state_dict holds no code; give --model MODULE:NAME that builds the network")
    if input_shape is None:
        raise ExportError(
            f"{source}: a state_dict does not say its input; give --input-shape, for example --input-shape 6,100"
        )
    state = load_state(source)
    module = build_module(model)
    notes = load_into(module, state, source=str(source))
    module = module.to("cpu").float().eval()
    _refuse_too_large(module)

    spec = InputSpec(name=INPUT, shape=input_shape, dtype=input_dtype)
    sampler = sampler_for(spec, high=_vocabulary(module))
    x = torch.from_numpy(sampler.batch(SAMPLE_BATCH))
    _refuse_wrong_input(module, x)
    path, columns = check_scores(module, x, chosen=scores)
    choice = choose_embedding(module, x, scores=path, layer=embedding)
    pooled = pooling_note(module, x, choice)
    wrapper = ScoresAndEmbedding(module, choice, path).eval()
    check_deterministic(_reference(wrapper, None), sampler)

    graph = export_graph(wrapper, x)
    head = heads.recognise_head(graph.graph, SCORES, _scores(wrapper, sampler))
    n_classes = head.n_classes(columns)
    if classes is None:
        classes = tuple(str(number) for number in range(n_classes))
    classes = check_classes(list(classes), source="classes", unit="name")
    if len(classes) != n_classes:
        raise ExportError(
            f"{len(classes)} labels, but the model has {n_classes} classes; give one label a class, in column order"
        )
    heads.add_head(graph, SCORES, head)
    metadata = describe(graph, spec, classes)
    parity = write_checked(graph, output, lambda beside: check_parity(beside, _reference(wrapper, head), sampler))
    return ExportReport(
        path=output,
        source="state_dict",
        classes=classes,
        input_shape=spec.shape,
        input_dtype=spec.dtype,
        dim=metadata.dim,
        embedding=choice.description,
        head=head.value,
        parity=parity,
        size_bytes=output.stat().st_size,
        opset=OPSET,
        ir_version=graph.ir_version,
        fingerprint=metadata.fingerprint,
        notes=(*notes, *([pooled] if pooled else [])),
        seconds=time.perf_counter() - started,
    )


def _reference(wrapper: nn.Module, head: heads.Head | None) -> Reference:
    """The source as a function of arrays; without a head its raw scores stand for the probabilities."""

    def reference(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            embedding, scores = wrapper(torch.from_numpy(x))
        values = scores.numpy()
        return embedding.numpy(), values if head is None else head.probabilities(values)

    return reference


def _scores(wrapper: nn.Module, sampler: Sampler) -> np.ndarray:
    return _reference(wrapper, None)(sampler.batch(16, seed=3))[1]


def _refuse_wrong_input(module: nn.Module, x: torch.Tensor) -> None:
    """Run the model once, so that a wrong shape is named before the exporter wraps the message."""
    try:
        with torch.no_grad():
            module(x)
    except Exception as error:  # a model's own code may raise anything
        shape = ",".join(str(size) for size in x.shape[1:])
        raise ExportError(
            f"the model cannot run {x.shape[0]} samples of shape ({shape}): {reason(error)}; check --input-shape"
        ) from error


def _refuse_too_large(module: nn.Module) -> None:
    size = 4 * sum(tensor.numel() for tensor in module.state_dict().values())
    if size > LARGEST_FILE:
        raise ExportError(
            f"the weights take {size / 1e9:.1f} GB as float32, an ONNX file holds at most 2 GB; use a smaller model"
        )


def _vocabulary(module: nn.Module) -> int:
    """Bound for random token ids: the smallest embedding table."""
    return min((part.num_embeddings for part in module.modules() if isinstance(part, nn.Embedding)), default=256)
