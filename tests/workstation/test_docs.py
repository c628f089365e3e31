"""The README's blocks run, in their order, in a folder with nothing but the examples; every command is documented."""

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edge_tools.cli import app
from edge_tools.output import percent
from examples.watch.demo import USERS, tell_story

BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[str, str]]:
    """The (language, content) of every block that claims to run."""
    return BLOCK.findall(text)


def command_lines(block: str) -> list[list[str]]:
    """The words of every command of a shell block; continued lines are joined, comments dropped."""
    joined = block.replace("\\\n", " ")
    return [words for line in joined.splitlines() if (words := shlex.split(line, comments=True))]


def programs(language: str, content: str) -> list[list[str]]:
    """What a block starts: itself, or its edge-sdk commands (make and pip are held against their files below)."""
    if language == "python":
        return [[sys.executable, "-c", content]]
    return [
        [sys.executable, "-m", "edge_tools", *words[1:]] for words in command_lines(content) if words[0] == "edge-sdk"
    ]


@pytest.fixture(scope="module")
def readme(repository: Path) -> str:
    return (repository / "README.md").read_text(encoding="utf-8")


def test_every_block_of_the_readme_runs(readme: str, repository: Path, tmp_path: Path) -> None:
    shutil.copytree(repository / "examples", tmp_path / "examples")
    roots = os.pathsep.join(str(repository / root) for root in (".", "export", "protonn", "tools"))
    environment = {**os.environ, "PYTHONPATH": roots}
    ran = 0
    for language, content in blocks(readme):
        for program in programs(language, content):
            finished = subprocess.run(
                program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert finished.returncode == 0, f"{program[1:]}: {finished.stderr}"
            ran += 1
    assert ran >= 6


def test_make_targets_and_extras_of_the_readme_exist(readme: str, repository: Path) -> None:
    makefile = (repository / "Makefile").read_text(encoding="utf-8")
    setup = configparser.ConfigParser()
    setup.read(repository / "setup.cfg")
    for target in re.findall(r"`?make ([a-z-]+)`?", readme):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for extra in re.findall(r"pip install '\.\[(\w+)\]'", readme):
        assert extra in setup["options.extras_require"]


def test_every_command_is_in_the_readme(readme: str) -> None:
    for command in app.registered_commands:
        assert f"`{command.name}`" in readme, command.name


def test_every_linked_file_exists(repository: Path) -> None:
    for page in [*repository.glob("*.md"), *repository.glob("docs/*.md"), *repository.glob("examples/*/README.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("user", USERS)
def test_readme_table_is_what_the_demo_measures(readme: str, tmp_path: Path, user: str) -> None:
    """Accuracy, λ_m and entries do not depend on the machine; milliseconds do."""
    result = tell_story(user, tmp_path / "me.store")
    row = next(line for line in readme.splitlines() if line.startswith(f"| {user} "))
    for cell in (percent(result.global_accuracy), percent(result.personalised_accuracy)):
        assert cell in row
    assert f"| {result.interpolation_weight:.2f} | {result.entries} |" in row
