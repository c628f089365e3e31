"""Run in a fresh interpreter: one edge-sdk command, and what it used at its peak as the last line of stdout.

    python -m edge_tools.benchmarks.command_peak compress me.store --budget 64KB --yes
"""

import sys

from edge_tools.probe import Reporter


def main() -> None:
    """Run the command and report; its exit code is this program's."""
    from edge_tools.cli import main as run

    code: object = 0
    try:
        run()
    except SystemExit as stopped:
        code = stopped.code
    Reporter(0.0).step("command")
    sys.exit(code if isinstance(code, int) or code is None else 1)


if __name__ == "__main__":
    main()
