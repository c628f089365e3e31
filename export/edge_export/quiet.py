"""Silence: torch's exporters talk through logging, warnings and prints; a user should read our words alone."""

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back warnings, prints and log lines below ERROR; everything is put back afterwards."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


@contextmanager
def quiet_native() -> Iterator[None]:
    """`quiet`, and native code's standard output: torch's older exporter prints its graph from C++ when it fails."""
    sys.stdout.flush()
    kept = os.dup(1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        with quiet():
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
