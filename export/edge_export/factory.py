"""Factories: `module:name` as typed on the command line -> a torch module built by the user's own code.

The current folder is put in front of `sys.path` while the module is imported, because a console script (unlike
`python -m`) does not have it there, and `--model net:Net` beside `net.py` is what people type.
"""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import nn

from edge_sdk.errors import ExportError


def build_module(factory: str) -> nn.Module:
    """Call `module:name` without arguments and return the module it makes.

    Args:
        factory: dotted module, a colon, and the name of an `nn.Module` subclass, a function returning one, or one
            itself.

    Raises:
        ExportError: badly written, cannot be imported, needs arguments, or is not an `nn.Module`.
    """
    module_name, colon, name = factory.partition(":")
    if not (module_name and colon and name):
        raise ExportError(f"--model {factory}: expected MODULE:NAME, for example --model net:Net")
    with current_folder_importable():
        try:
            value = importlib.import_module(module_name)
        except Exception as error:  # the user's module may raise anything while it is imported
            raise ExportError(
                f"--model {factory}: cannot import {module_name} from {Path.cwd()}: {_one_line(error)}"
            ) from error
        for part in name.split("."):
            if not hasattr(value, part):
                raise ExportError(f"--model {factory}: {module_name} has no {name}{_names_like_models(value)}")
            value = getattr(value, part)
        if not isinstance(value, nn.Module):
            if not callable(value):
                raise ExportError(
                    f"--model {factory}: {name} is a {type(value).__name__}, expected an nn.Module or a function"
                )
            try:
                value = value()
            except Exception as error:  # the user's constructor may raise anything
                raise ExportError(
                    f"--model {factory}: {name}() failed: {_one_line(error)}; "
                    "give a function without arguments that builds the model with its settings"
                ) from error
    if not isinstance(value, nn.Module):
        raise ExportError(f"--model {factory}: {name}() returned a {type(value).__name__}, expected an nn.Module")
    return value


@contextmanager
def current_folder_importable() -> Iterator[None]:
    """The current folder in front of `sys.path` while the context lasts."""
    folder = str(Path.cwd())
    if folder in sys.path:
        yield
        return
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _names_like_models(module: object) -> str:
    """The nn.Module subclasses that the user may have meant, as the end of a message."""
    names = [
        name
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, nn.Module)
        and value.__module__ == getattr(module, "__name__", None)
    ]
    return f"; it defines {', '.join(names)}" if names else ""


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
