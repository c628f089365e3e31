"""Source: one thing to read samples from, and the batches it gives.

What is wrong as a whole (no such array, wrong width) is an `InputError` when the source is opened, before anything is
learnt. What is wrong with one input costs that input alone: it is named in `Batch.refused` and the rest goes on. Memory
is bounded by the batch, never by the source: a batch holds at most `BATCH_BYTES`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from edge_sdk.errors import InputError
from edge_sdk.labels import normalise_label
from edge_sdk.model import InputSpec

BATCH_BYTES = 16 << 20
"""Most bytes of samples in one batch; large samples come in batches of fewer rows, at least one."""

Labels = Literal["optional", "required", "ignored"]
"""What a caller wants of labels: those that are there, an error when there are none, or not to look at them."""

STREAM = Path("-")
"""The path that means standard input."""


class Refused(NamedTuple):
    """One input that was not taken."""

    name: str
    """Where it is: `learn.npz[17]`, `windows.csv line 12`, `photos/cat/a.jpg`."""

    reason: str
    """One line: what was found, what was expected, the cure."""


class Example(NamedTuple):
    """One sample as a source read it."""

    name: str
    x: np.ndarray
    """Of the spec's shape; numbers of any kind, not yet screened."""

    label: object = None


@dataclass(frozen=True)
class Batch:
    """Samples that may go into the model as they are."""

    x: np.ndarray
    """(n, *spec.shape) in the spec's dtype, finite, C-contiguous; n may be 0 when all were refused."""

    labels: list[str] | None
    """n normalised labels, or None when the source has none."""

    names: list[str]
    """n names, for messages and results."""

    refused: list[Refused]
    """What was read with these samples and not taken."""

    def __len__(self) -> int:
        """Samples that were taken."""
        return len(self.x)


@dataclass(frozen=True)
class Request:
    """What the door asks a source to open."""

    path: Path
    """A file, a folder, or `STREAM`."""

    spec: InputSpec
    """What one sample must be."""

    label: str | None
    """One label for every sample; labels in the source are then not read."""

    labels: Labels
    """Whether the caller needs labels."""

    label_column: str | None = None
    """Name of the column, array or key with the labels, where the source has several."""

    @property
    def reads_labels(self) -> bool:
        """Whether the source itself must look for labels."""
        return self.label is None and self.labels != "ignored"


class Source(ABC):
    """One thing to read samples from; may be read more than once, unless it is a stream."""

    kind: ClassVar[str]
    """What it is, for `--help` and messages: "NumPy archive (.npz)"."""

    suffixes: ClassVar[tuple[str, ...]] = ()
    """Lower-case file suffixes that are this kind."""

    def __init__(self, request: Request) -> None:
        """Keep the request; a subclass checks its file here.

        Raises:
            InputError: wrong as a whole.
        """
        self.request = request

    @classmethod
    def recognises(cls, path: Path, head: bytes) -> bool:
        """Whether a file whose suffix nobody claims, or a folder (`head` is empty), is this kind.

        Args:
            path: the file or folder.
            head: its first 512 bytes.
        """
        return False

    @property
    @abstractmethod
    def count(self) -> int | None:
        """Inputs in all, refused ones included, or None when that is only known at the end."""

    @property
    @abstractmethod
    def has_labels(self) -> bool:
        """Whether the source itself holds labels."""

    @property
    def notes(self) -> list[str]:
        """What a person should know once everything was read, one sentence each."""
        return []

    @abstractmethod
    def examples(self) -> Iterator[Example | Refused]:
        """Every input in order: what could be read, and what could not."""

    def batches(self, size: int = 256) -> Iterator[Batch]:
        """Every input, at most `size` to a batch, screened.

        Raises:
            InputError: the source broke off while it was read; names the last good input.
        """
        return collect(self.examples(), self.request, has_labels=self.has_labels, size=size)


def rows_of_batch(size: int, spec: InputSpec) -> int:
    """Rows of a batch of `size` that stay within `BATCH_BYTES`.

    Raises:
        InputError: size below 1.
    """
    if size < 1:
        raise InputError(f"batch size must be at least 1, got {size}")
    sample_bytes = math.prod(spec.shape) * np.dtype(spec.dtype).itemsize
    return min(size, max(1, BATCH_BYTES // max(1, sample_bytes)))


def collect(examples: Iterable[Example | Refused], request: Request, *, has_labels: bool, size: int) -> Iterator[Batch]:
    """Batches from single examples; see `Source.batches`."""
    rows = rows_of_batch(size, request.spec)
    taken: list[Example] = []
    refused: list[Refused] = []
    for example in examples:
        if isinstance(example, Refused):
            refused.append(example)
        elif example.x.shape != request.spec.shape:
            refused.append(Refused(example.name, f"has shape {example.x.shape}, expected {request.spec.shape}"))
        else:
            taken.append(example)
        if len(taken) + len(refused) >= rows:
            yield _batch_of(taken, refused, request, has_labels)
            taken, refused = [], []
    if taken or refused:
        yield _batch_of(taken, refused, request, has_labels)


def _batch_of(taken: list[Example], refused: list[Refused], request: Request, has_labels: bool) -> Batch:
    x = np.stack([example.x for example in taken]) if taken else np.empty((0, *request.spec.shape), request.spec.dtype)
    labels = [example.label for example in taken] if has_labels else None
    return screened(x, labels, [example.name for example in taken], request, refused=refused)


def screened(
    x: np.ndarray, labels: list[object] | None, names: list[str], request: Request, *, refused: Iterable[Refused] = ()
) -> Batch:
    """The rows that the model file can take, the others as refused.

    Args:
        x: (n, *spec.shape), numbers of any kind.
        labels: n labels as they were read, or None.
        names: n names.
        request: spec, and the one label for all if there is one.
        refused: inputs that were refused before.
    """
    reasons: dict[int, str] = {}
    cast = _cast(x, np.dtype(request.spec.dtype), reasons)
    texts: list[str] | None = None
    if request.label is not None:
        texts = [request.label] * len(x)
    elif labels is not None and request.reads_labels:
        texts = []
        for row, label in enumerate(labels):
            try:
                texts.append(normalise_label(label))
            except InputError as error:
                texts.append("")
                reasons.setdefault(row, str(error))
    if not reasons:
        return Batch(cast, texts, names, list(refused))
    kept = [row for row in range(len(x)) if row not in reasons]
    return Batch(
        x=np.ascontiguousarray(cast[kept]),
        labels=[texts[row] for row in kept] if texts is not None else None,
        names=[names[row] for row in kept],
        refused=[*refused, *(Refused(names[row], reasons[row]) for row in sorted(reasons))],
    )


def _cast(x: np.ndarray, dtype: np.dtype[np.generic], reasons: dict[int, str]) -> np.ndarray:
    """`x` in `dtype`; rows that `dtype` cannot hold go into `reasons`."""
    with np.errstate(over="ignore", invalid="ignore"):
        cast = np.ascontiguousarray(x, dtype)
        # A sum is non-finite whenever a value is, and needs no second array as isfinite does.
        total = float(cast.sum(dtype=np.float64)) if cast.dtype.kind == "f" else 0.0
    if cast.dtype.kind == "f":
        if math.isfinite(total):
            return cast
        held = np.isfinite(cast)
    elif x.dtype == dtype:
        return cast
    else:
        held = cast == x
    for row in np.flatnonzero(~held.reshape(len(x), -1).all(axis=1)).tolist():
        where = np.argwhere(~held[row])[0].tolist()
        value = x[row][tuple(where)]
        reasons[row] = f"holds {value} at {where}, expected finite {dtype} values; leave it out or mend it"
    return cast
