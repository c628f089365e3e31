"""Where `edge-sdk` starts: the doctor without the other commands, whose libraries may be what it is to find.

A library that was built for another processor kills the process that imports it, and every command but this one imports
numpy and onnxruntime.
"""

import sys

INTERRUPTED_EXIT = 130
"""As shells count a program that Ctrl-C ended."""


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        _run()
    except KeyboardInterrupt:  # in the first half second, while the libraries load
        sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED_EXIT)


def _run() -> None:
    if sys.argv[1:2] != ["doctor"]:
        from edge_tools.cli import main as run

        run()
        return
    import typer

    from edge_tools.commands.doctor import EXAMPLE, doctor_command

    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command("doctor", epilog=f"Example: {EXAMPLE}")(doctor_command)
    app([argument for argument in sys.argv[2:] if argument != "--debug"], prog_name="edge-sdk doctor")


if __name__ == "__main__":
    main()
