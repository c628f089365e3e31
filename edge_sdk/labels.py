"""The one rule for labels.

A label is text. A string is taken as it is, an integer as its decimal digits (so that an array of class numbers means
the classes "0", "1", ...); floats, booleans and missing values are refused, because `1`, `1.0` and `True` would
silently merge or silently differ. Then: surrounding white space is removed, Unicode is composed (NFC), and nothing
empty is left over.
"""

import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np

from edge_sdk.errors import InputError


def normalise_label(label: object) -> str:
    """The label's canonical text.

    Raises:
        InputError: not a string or an integer, empty, or with control characters.
    """
    if isinstance(label, (int, np.integer)) and not isinstance(label, bool):
        return str(int(label))
    if not isinstance(label, str):
        raise InputError(f"a label is text, got {type(label).__name__} {label!r}; write it as a string")
    text = unicodedata.normalize("NFC", label.strip())
    if not text:
        raise InputError("empty label; give every example a name")
    # Surrogates stand for bytes that were no UTF-8; a terminal cannot print them.
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
        raise InputError(f"label {text!r} holds control characters or undecodable bytes; remove them")
    return text


def normalise_labels(labels: Iterable[object]) -> list[str]:
    """`normalise_label` for each; the message of an error names the position."""
    texts = []
    seen: dict[str, str] = {}  # a batch has few different labels, and each takes 4 µs
    for position, label in enumerate(labels):
        text = seen.get(label) if type(label) is str else None
        if text is None:
            try:
                text = normalise_label(label)
            except InputError as error:
                raise InputError(f"label {position}: {error}") from error
            if type(label) is str:
                seen[label] = text
        texts.append(text)
    return texts


def unknown_label_message(label: str, known: Sequence[str], *, cure: str = "", brief: bool = False) -> str:
    """One line that names an unknown label, the nearest known one, and the known ones (the first 30).

    Args:
        label: the unknown one.
        known: the others.
        cure: what would let it be taken, if anything would.
        brief: leave out the known ones and the cure, because they were said before.
    """
    import difflib  # here: only who mistypes needs it

    near = difflib.get_close_matches(label, known, n=1)
    unknown = f'unknown label "{label}"'
    suggestion = f'did you mean "{near[0]}"?' if near else ""
    if brief:
        return f"{unknown}: {suggestion}" if suggestion else unknown
    listed = ", ".join(known[:30]) + (f", ... ({len(known)} in all)" if len(known) > 30 else "")
    return f"{unknown}: {suggestion}{' ' if suggestion else ''}known are {listed}{f'; {cure}' if cure else ''}"
