"""Columns: which columns of a table are the sample, which the label, which a path.

The width of the model's input decides. A column called `y` is a label in a table of n + 1 columns and the second axis
of an accelerometer in one of n, and a pandas index that slipped into the file is an error instead of a shift by one.
"""

from collections.abc import Sequence
from typing import NamedTuple

from edge_sdk.errors import InputError
from edge_sdk.inputs.samples import shown

LABEL_NAMES = ("label", "labels", "class", "target", "y")
"""Columns that are labels, the first that fits; `--label-column` names another."""

_CERTAIN_LABELS = ("label", "labels")
"""The others may be a feature, as the axis y is."""

PATH_NAMES = ("path", "file", "filename", "file_name", "filepath", "image", "sound", "audio")
"""Columns that are paths of files with one sample each."""


class Columns(NamedTuple):
    """Positions of columns."""

    features: list[int]
    """The sample's numbers in order; empty in a manifest."""

    path: int | None
    label: int | None


def find(names: Sequence[str], label: str | None) -> int | None:
    """Position of the column called `label` (or by a usual name when it is None)."""
    lowered = [name.strip().lower() for name in names]
    for wanted in LABEL_NAMES if label is None else (label.strip().lower(),):
        if wanted in lowered:
            return lowered.index(wanted)
    return None


def choose(names: Sequence[str], width: int, *, label: str | None, reads_labels: bool, where: str) -> Columns:
    """Read a header.

    Args:
        names: of all columns.
        width: numbers of one sample.
        label: the label's column, if the user named it.
        reads_labels: whether labels are wanted.
        where: for messages.

    Raises:
        InputError: a name twice, no such label column, or another number of columns than the model takes.
    """
    lowered = [name.strip().lower() for name in names]
    twice = sorted({name for name in lowered if name and lowered.count(name) > 1}) if len(lowered) < 100_000 else []
    if twice:
        raise InputError(f'{where}: two columns are called "{shown(twice[0][:40])}"; name every column once')
    label_at = find(names, label)
    if label is not None and label_at is None:
        raise InputError(f'{where}: no column "{label}", found {listed(names)}')
    path_at = next((lowered.index(name) for name in PATH_NAMES if name in lowered), None)
    if path_at is not None and len(names) not in (width, width + 1):
        return Columns([], path_at, label_at if reads_labels else None)
    if label is None and len(names) == width and label_at is not None and lowered[label_at] not in _CERTAIN_LABELS:
        label_at = None
    features = [number for number in range(len(names)) if number != label_at]
    if len(features) != width:
        raise InputError(f"{where}: {_miscounted(names, features, label_at, width)}")
    return Columns(features, None, label_at if reads_labels else None)


def _miscounted(names: Sequence[str], features: list[int], label_at: int | None, width: int) -> str:
    """Why the number of columns does not fit, and what may help."""
    beside = f' beside "{shown(names[label_at].strip()[:40])}"' if label_at is not None else ""
    text = f"has {len(features)} columns{beside}, the model file takes {width} numbers a row"
    if not names[0].strip() or names[0].strip().lower().startswith("unnamed"):
        return f"{text}; the first column has no name: a pandas index? save with index=False"
    if not names[-1].strip():
        return f"{text}; the last column has no name: a separator at the end of every line?"
    if len(features) == width + 1 and label_at is None:
        return f"{text}; is one of them the label? name it with --label-column"
    return f"{text}; found {listed(names)}"


def listed(names: Sequence[str]) -> str:
    """The first names, for a message."""
    first = ", ".join(shown(name.strip()[:40]) or "(no name)" for name in names[:8])
    return first + (f", ... ({len(names)} in all)" if len(names) > 8 else "")
