"""Classes: the names of a model's score columns, from what the user typed."""

import os
from pathlib import Path

from edge_sdk.errors import InputError
from edge_sdk.labels import normalise_label


def read_classes(labels: str) -> tuple[str, ...]:
    """The class names that `--labels` means: a file with one a line, or names with commas between them.

    Raises:
        InputError: no such file, not text, an empty line or name, or the same name twice.
    """
    path = Path(labels)
    if path.is_file():
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: cannot read labels: {error}; save it as UTF-8 text, one label a line") from error
        return check_classes(text.rstrip().splitlines(), source=str(path), unit="line")
    if os.sep in labels or path.suffix in (".txt", ".csv", ".json", ".names"):
        raise InputError(
            f"{path}: no such file of labels; give a file with one label a line, or names with commas between them"
        )
    return check_classes(labels.split(","), source=f"--labels {labels}", unit="name")


def check_classes(names: list[str], *, source: str, unit: str) -> tuple[str, ...]:
    """Normalise `names` by the one label rule and refuse the same name twice.

    Raises:
        InputError: a name is empty or there twice; the message counts from 1.
    """
    seen: dict[str, int] = {}
    for number, name in enumerate(names, start=1):
        try:
            label = normalise_label(name)
        except InputError as error:
            raise InputError(f"{source}: {unit} {number}: {error}") from error
        if label in seen:
            raise InputError(
                f'{source}: "{label}" is there twice ({unit}s {seen[label]} and {number}); name every class once'
            )
        seen[label] = number
    return tuple(seen)
