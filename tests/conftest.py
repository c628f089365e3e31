"""Fixtures that every test may use. This file is read on the device too: standard library and pytest only."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout's top folder."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder of the full data sets, named by EDGE_SDK_DATA; they are too large to be committed."""
    named = os.environ.get("EDGE_SDK_DATA")
    if not named:
        pytest.skip("EDGE_SDK_DATA does not name a data folder")
    folder = Path(named)
    if not folder.is_dir():
        pytest.skip(f"EDGE_SDK_DATA names {folder}, which is no folder")
    return folder


@pytest.fixture(scope="session")
def watch(repository: Path) -> Path:
    """The watch example's folder."""
    return repository / "examples" / "watch"


class Outcome(NamedTuple):
    """What a command left behind."""

    code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> Any:
        """What was printed with --json."""
        return json.loads(self.stdout)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Type one command line: its exit code, stdout and stderr."""
    from edge_tools import cli  # not at the top: tests of the runtime alone do not pay for the command line

    def type_command(*words: object) -> Outcome:
        monkeypatch.setattr("sys.argv", ["edge-sdk", *(str(word) for word in words)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        printed = capsys.readouterr()
        return Outcome(int(stopped.value.code or 0), printed.out, printed.err)

    return type_command
