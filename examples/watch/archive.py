"""Where the full data set lies on this machine."""

import argparse
import os
from pathlib import Path

ARCHIVE = Path("wisdm-watch", "wisdm-watch.npz")


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """--data, for `archive_path`."""
    parser.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("EDGE_SDK_DATA"),
        help="folder that holds wisdm-watch/ (default: $EDGE_SDK_DATA)",
    )


def archive_path(parser: argparse.ArgumentParser, folder: Path | None) -> Path:
    """The archive in the folder that --data named; ends the program where it is not."""
    if folder is None:
        parser.error("no data: give --data FOLDER or set EDGE_SDK_DATA")
    path = folder / ARCHIVE
    if not path.is_file():
        parser.error(f"no such file: {path}; --data or EDGE_SDK_DATA names the folder that holds wisdm-watch/")
    return path
