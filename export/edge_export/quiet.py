"""Silence: torch's exporters talk through logging, warnings and prints; a user should read our words alone."""

import logging
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
