"""edge-sdk: the command line.

Exit codes: 0 done · 1 an EdgeSDKError, one line · 2 wrong usage · 3 a stated budget or threshold not met · 4 finished,
but some inputs were refused · 130 interrupted · 141 nobody reads the output any more. `--debug`, anywhere on the line,
shows the traceback behind an error.
"""

import importlib
import os
import pkgutil
import sys
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from edge_sdk import EdgeSDKError, __version__
from edge_tools import commands
from edge_tools.output import say
from edge_tools.start import INTERRUPTED_EXIT

_UNREAD_EXIT = 141  # as shells count a program that a closed pipe ended


class _Commands(TyperGroup):
    """All commands."""

    def invoke(self, ctx: Any) -> Any:
        """Run one command; what reads its output may close the pipe at any time, as `head` does."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt as error:
            say("interrupted")
            raise typer.Exit(INTERRUPTED_EXIT) from error
        except BrokenPipeError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains at exit
            raise typer.Exit(_UNREAD_EXIT) from error
        return result


class _Command(TyperCommand):
    """One command, whose usage line shows the options that must be given."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words after the command's name."""
        required = [
            f"{parameter.opts[0]} {parameter.opts[0].removeprefix('--').upper()}"
            for parameter in self.params
            if parameter.param_type_name == "option" and parameter.required
        ]
        return [*required, *super().collect_usage_pieces(ctx)]


app = typer.Typer(
    name="edge-sdk",
    cls=_Commands,
    help="On-device personalisation: export a model, let it learn on the device, see what it gained.",
    epilog="Example: edge-sdk ingest learn.npz --model watch.onnx --datastore me.store",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _root(
    version: bool = typer.Option(False, "--version", help="Print the version and stop."),
    debug: bool = typer.Option(False, "--debug", help="Anywhere on the line: show the traceback behind an error."),
) -> None:
    del debug  # taken off the line by `main`
    if version:
        typer.echo(__version__)
        raise typer.Exit


def _register_commands() -> None:
    """Every module of `edge_tools.commands` is a command: NAME.py holds `NAME_command` and its `EXAMPLE`."""
    for module in pkgutil.iter_modules(commands.__path__):
        name = module.name
        loaded = importlib.import_module(f"{commands.__name__}.{name}")
        app.command(name, cls=_Command, epilog=f"Example: {loaded.EXAMPLE}")(getattr(loaded, f"{name}_command"))


_register_commands()


def main() -> None:
    """Run the command line and exit with its code."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        app(arguments)
    except EdgeSDKError as error:
        if len(arguments) < len(sys.argv) - 1:
            raise
        say(f"edge-sdk: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
