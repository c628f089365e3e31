"""What is committed works on any computer: no path of one machine, no package index, nothing large."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

LARGEST = 1_000_000
"""Bytes. Data sets and models beyond this come from a folder that the user names."""

# In pieces, so that this file does not find itself.
ONE_MACHINE = re.compile(
    "|".join(
        (
            r"(?<![\w.~])/(?:wo" r"rk|ro" r"ot|ho" r"me/(?!pi/)\w+|Us" r"ers/\w+|tm" r"p/\w+|op" r"t/\w+)/",
            r"index" r"-url|find" r"-links|extra" r"_index",
            r"pypi\.org" r"/simple|files\.python" r"hosted|download\.py" r"torch|pi" r"wheels\.org",
        )
    ),
    re.IGNORECASE,
)


@pytest.fixture(scope="module")
def committed(repository: Path) -> list[Path]:
    if shutil.which("git") is None:
        pytest.skip("git is not installed, so what is committed is not known")
    run = subprocess.run(["git", "ls-files", "-z"], cwd=repository, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        pytest.skip(f"not a git checkout: {run.stderr.strip()}")
    files = [repository / name for name in run.stdout.split("\0") if name]
    return [file for file in files if file.is_file()]


def test_committed_text_names_no_machine_and_no_package_index(committed: list[Path], repository: Path) -> None:
    found = [
        f"{file.relative_to(repository)}:{number} names {match.group()}"
        for file in committed
        if b"\0" not in (content := file.read_bytes())
        for number, line in enumerate(content.decode("utf-8").splitlines(), start=1)
        if (match := ONE_MACHINE.search(line))
    ]
    assert not found, "\n".join(found)


def test_no_committed_file_is_large(committed: list[Path], repository: Path) -> None:
    sizes = {str(file.relative_to(repository)): file.stat().st_size for file in committed}
    large = [f"{name}: {size} bytes" for name, size in sizes.items() if size > LARGEST]
    assert not large, "\n".join(large)
