"""Fixtures of the guards: what the packages on disk are and import."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOTS = {"edge_sdk": ".", "edge_export": "export", "edge_protonn": "protonn", "edge_tools": "tools"}
"""Each source root's one package, and the folder it stands in."""


class Import(NamedTuple):
    """One imported name: the file that imports it, relative to the checkout, and the name's first part."""

    file: str
    line: int
    name: str


class Sources:
    """The Python files of a checkout, by package."""

    def __init__(self, repository: Path) -> None:
        self._repository = repository

    def packages(self) -> dict[str, Path]:
        """Each package on disk (dotted name) and its folder."""
        return {
            ".".join(folder.relative_to(self._repository / root).parts): folder
            for name, root in ROOTS.items()
            for folder in sorted({file.parent for file in (self._repository / root / name).rglob("*.py")})
        }

    def imports(self, *parts: str) -> Iterator[Import]:
        """Every import below a folder of the checkout, those inside functions and those by importlib included."""
        for file in sorted(self._repository.joinpath(*parts).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                    names = [node.module]
                elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                    names = [str(text.value) for text in node.args[:1] if isinstance(text, ast.Constant)]
                else:
                    continue
                for name in names:
                    yield Import(str(file.relative_to(self._repository)), node.lineno, name.partition(".")[0])


@pytest.fixture(scope="session")
def sources(repository: Path) -> Sources:
    """The checkout's Python files."""
    return Sources(repository)
