"""edge-sdk: the command line.

Exit codes: 0 done · 1 an EdgeSDKError, one line · 2 wrong usage · 3 a stated budget or threshold not met · 4 finished,
but some inputs were refused. `--debug`, anywhere on the line, shows the traceback behind an error.
"""

import importlib
import pkgutil
import sys

import typer

from edge_sdk import EdgeSDKError, __version__
from edge_tools import commands
from edge_tools.output import say

app = typer.Typer(
    name="edge-sdk",
    help="On-device personalisation: export a model, let it learn on the device, see what it gained.",
    epilog="Example: edge-sdk ingest learn.npz --model watch.onnx --datastore me.store",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _root(version: bool = typer.Option(False, "--version", help="Print the version and stop.")) -> None:
    if version:
        typer.echo(__version__)
        raise typer.Exit


def _register_commands() -> None:
    """Every module of `edge_tools.commands` is a command: NAME.py holds `NAME_command` and its `EXAMPLE`."""
    for module in pkgutil.iter_modules(commands.__path__):
        name = module.name
        loaded = importlib.import_module(f"{commands.__name__}.{name}")
        app.command(name, epilog=f"Example: {loaded.EXAMPLE}")(getattr(loaded, f"{name}_command"))


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
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
