"""Encoder: the running model file, one ONNX Runtime session.

One `run` gives both outputs, so personalising costs no second forward pass. Rows go through in blocks
(`SessionSettings`), so that memory is bounded whatever the caller hands over.
"""

import os
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from edge_sdk.errors import ConfigError, InputError, ModelFileError
from edge_sdk.model import EMBEDDING_OUTPUT, PROBABILITIES_OUTPUT, InputSpec, ModelFile, ModelMetadata
from edge_sdk.runtime import onnxruntime
from edge_sdk.session import SessionSettings
from edge_sdk.unused_memory import give_back

BATCH_SIZE = 32
"""Most rows of one session run; large inputs go fewer at a time (`SessionSettings.most_rows`)."""


class Encoded(NamedTuple):
    """What the model file says about a batch."""

    embeddings: np.ndarray
    """float32 (n, dim)."""

    probabilities: np.ndarray
    """float32 (n, n_classes), rows summing to 1."""


class Encoder:
    """Input in, (embeddings, probabilities) out. Safe to share between threads."""

    def __init__(
        self, model_file: ModelFile, *, threads: int | None = None, session: SessionSettings | None = None
    ) -> None:
        """Open the session.

        Args:
            model_file: a checked model file.
            threads: threads of one run, instead of the session's.
            session: how to run it; default: `SessionSettings()`.

        Raises:
            ConfigError: `threads` is below 1.
            ModelFileError: this onnxruntime cannot run the file.
        """
        settings = session or SessionSettings()
        if threads is not None and threads < 1:
            raise ConfigError(f"threads is at least 1, got {threads}; leave it out for the default")
        self._settings = settings if threads is None else replace(settings, threads=threads)
        self._model_file = model_file
        self._rows = self._settings.n_rows(model_file.metadata.input)
        self._session = _open_session(model_file, self._settings.options())
        give_back()

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, threads: int | None = None, session: SessionSettings | None = None
    ) -> "Encoder":
        """Check the model file and open its session; see `ModelFile.open` and `Encoder`."""
        return cls(ModelFile.open(path), threads=threads, session=session)

    @property
    def model_file(self) -> ModelFile:
        """The file that is running."""
        return self._model_file

    @property
    def settings(self) -> SessionSettings:
        """How it is run."""
        return self._settings

    @property
    def metadata(self) -> ModelMetadata:
        """What the file says about itself."""
        return self._model_file.metadata

    def encode(self, batch: np.ndarray) -> Encoded:
        """Run the model on a batch.

        Args:
            batch: (n, *input shape) of the input's dtype, as `as_batch` makes it; n may be 0.

        Raises:
            InputError: the model gives NaN or infinity for a row.
        """
        metadata = self.metadata
        embeddings = np.empty((len(batch), metadata.dim), np.float32)
        probabilities = np.empty((len(batch), len(metadata.classes)), np.float32)
        for start in range(0, len(batch), self._rows):
            rows = slice(start, start + self._rows)
            embeddings[rows], probabilities[rows] = self._session.run(
                [EMBEDDING_OUTPUT, PROBABILITIES_OUTPUT], {metadata.input.name: batch[rows]}
            )
        _refuse_non_finite(embeddings, probabilities)
        return Encoded(embeddings, probabilities)


def as_batch(x: object, spec: InputSpec) -> tuple[np.ndarray, bool]:
    """Convert at the door: whatever the caller has, as a C-contiguous batch.

    Args:
        x: one sample of shape `spec.shape`, or a batch with one more axis in front; numbers of any kind that
            `spec.dtype` can hold. For a model file of pictures or sounds also a path, the bytes of a file, a Pillow
            image, an array of uint8 pixels of any size, or a list of these.
        spec: the model file's input.

    Returns:
        The batch (n, *spec.shape) in `spec.dtype`, and whether `x` was one sample.

    Raises:
        InputError: wrong shape, not numbers, non-finite, or out of the dtype's range; names the row.
    """
    if spec.kind in ("image", "audio"):
        from edge_sdk.inputs.samples import decoded  # here, so that models of numbers never pay for it

        x = decoded(x, spec)
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise InputError(
            f"input is ragged ({error}); expected shape {spec.shape} or (n, {_listed(spec.shape)})"
        ) from error
    if array.dtype.kind not in "fiub":
        raise InputError(f"input holds {array.dtype}, expected numbers ({spec.dtype})")
    is_sample = array.shape == spec.shape
    if not is_sample and array.shape[1:] != spec.shape:
        raise InputError(f"input has shape {array.shape}, expected {spec.shape} or (n, {_listed(spec.shape)})")
    batch = array[None] if is_sample else array
    return np.ascontiguousarray(_cast(batch, np.dtype(spec.dtype))), is_sample


def _listed(shape: tuple[int, ...]) -> str:
    return ", ".join(str(size) for size in shape)


def _cast(batch: np.ndarray, dtype: np.dtype[np.generic]) -> np.ndarray:
    """The batch in `dtype`, or an InputError that names the first row that does not survive."""
    if batch.dtype == dtype and dtype.kind != "f":
        return batch
    with np.errstate(over="ignore", invalid="ignore"):
        cast = batch.astype(dtype, copy=False)
    kept = np.isfinite(cast) if dtype.kind == "f" else cast == batch
    if kept.all():
        return cast
    row = int(np.flatnonzero(~kept.reshape(len(batch), -1).all(axis=1))[0])
    value = batch[row][~kept[row]].flat[0]
    raise InputError(
        f"row {row} of the input holds {value}, expected finite {dtype} values; leave the row out or mend it"
    )


def _refuse_non_finite(embeddings: np.ndarray, probabilities: np.ndarray) -> None:
    finite = np.isfinite(embeddings).all(axis=1) & np.isfinite(probabilities).all(axis=1)
    if not finite.all():
        row = int(np.flatnonzero(~finite)[0])
        raise InputError(
            f"the model gives NaN or infinity for row {row}; the input is outside the range it was trained on"
        )


def _open_session(model_file: ModelFile, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    path = str(model_file.path)
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors share no base class below Exception
        reason = str(error).splitlines()[0]
        raise ModelFileError(
            f"{path}: onnxruntime {onnxruntime.__version__} cannot run this model file "
            f"(IR version {model_file.ir_version}): {reason}; upgrade onnxruntime or export for this version"
        ) from error
    names = {output.name for output in session.get_outputs()}
    missing = {EMBEDDING_OUTPUT, PROBABILITIES_OUTPUT} - names
    if missing:
        raise ModelFileError(
            f"{path}: output {sorted(missing)[0]!r} is missing, found {sorted(names)}; export it again"
        )
    return session
