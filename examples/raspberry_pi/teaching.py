"""Who says "that was wrong, it is X": keys at a terminal, or one push button a label.

Both are asked at the application's own pace and never block it.
"""

import os
import queue
import select
import sys
from collections.abc import Mapping
from typing import Protocol

from edge_sdk import EdgeSDKError, Predictor


class Teacher(Protocol):
    """Somebody who may correct the last answer."""

    def correction(self) -> str | None:
        """The label that was meant, if anybody said so since the last question."""


class Nobody:
    """No corrections."""

    def correction(self) -> str | None:
        return None


class Keys:
    """A label typed on a line of its own; its beginning is enough where that is clear."""

    def __init__(self, labels: tuple[str, ...], descriptor: int | None = None) -> None:
        self._labels = labels
        self._descriptor = sys.stdin.fileno() if descriptor is None else descriptor
        self._text = b""
        self._ended = False

    def correction(self) -> str | None:
        while not self._ended and select.select([self._descriptor], [], [], 0)[0]:
            read = os.read(self._descriptor, 4096)
            self._text += read
            self._ended = not read
        line, newline, rest = self._text.partition(b"\n")
        if not newline:
            return None
        self._text = rest
        return self._meant(line.decode("utf-8", "replace").strip())

    def _meant(self, typed: str) -> str | None:
        if not typed or typed in self._labels:
            return typed or None
        known = [label for label in self._labels if label.startswith(typed)]
        return known[0] if len(known) == 1 else typed


class Buttons:
    """Push buttons between a pin and ground, one a label."""

    def __init__(self, labels_by_pin: Mapping[int, str]) -> None:
        from gpiozero import Button  # only a board has it

        self._pressed: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._buttons = []
        for pin, label in labels_by_pin.items():
            button = Button(pin, bounce_time=0.05)
            button.when_pressed = lambda label=label: self._pressed.put(label)
            self._buttons.append(button)

    def correction(self) -> str | None:
        try:
            return self._pressed.get_nowait()
        except queue.Empty:
            return None

    def close(self) -> None:
        for button in self._buttons:
            button.close()


def teacher_of(predictor: Predictor, *, buttons: str | None) -> Teacher:
    """Whoever can correct this application: the push buttons, as `parse_buttons` reads them, or who sits at it."""
    if buttons:
        return Buttons(parse_buttons(buttons))
    return Keys(predictor.classes) if sys.stdin is not None and sys.stdin.isatty() else Nobody()


def correct(predictor: Predictor, shown: object, meant: str | None) -> None:
    """Learn that what was shown last was something else."""
    if shown is None or meant is None:
        return
    try:
        predictor.learn(shown, meant)
        print(f"       learnt: that was {meant}", flush=True)
    except EdgeSDKError as error:
        print(f"       not learnt: {error}", file=sys.stderr, flush=True)


def parse_buttons(text: str) -> dict[int, str]:
    """Read "17=walking,27=typing"."""
    buttons = {}
    for pair in text.split(","):
        pin, _, label = pair.partition("=")
        if not pin.strip().isdigit() or not label.strip():
            raise SystemExit(f'--buttons wants PIN=LABEL,..., got "{text}"')
        buttons[int(pin)] = label.strip()
    return buttons
