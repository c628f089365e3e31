"""What is shipped is what is on disk: the explicit list of setup.cfg against the folders."""

import re
from configparser import ConfigParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.device.conftest import Sources


@pytest.fixture
def options(repository: Path) -> dict[str, str]:
    config = ConfigParser()
    config.read(repository / "setup.cfg", encoding="utf-8")
    return dict(config["options"])


def test_the_packages_on_disk_are_the_packages_shipped(sources: "Sources", options: dict[str, str]) -> None:
    assert sorted(options["packages"].split()) == sorted(sources.packages())


def test_every_extra_that_an_error_names_can_be_installed(sources: "Sources", repository: Path) -> None:
    config = ConfigParser()
    config.read(repository / "setup.cfg", encoding="utf-8")
    named = {
        extra
        for folder in sources.packages().values()
        for file in folder.glob("*.py")
        for extra in re.findall(r'MissingExtraError\([^()"]*(?:"[^"]*")?, "(\w+)"\)', file.read_text(encoding="utf-8"))
    }
    assert named <= set(config["options.extras_require"])
    assert "export" in named


def test_the_architecture_names_every_module_of_the_device(sources: "Sources", repository: Path) -> None:
    text = (repository / "ARCHITECTURE.md").read_text(encoding="utf-8")
    modules = {path.name for path in sources.packages()["edge_sdk"].glob("*.py")} - {"__init__.py"}
    folders = {
        f"{name.split('.')[1]}/" for name in sources.packages() if name.count(".") == 1 and name[:9] == "edge_sdk."
    }
    assert not [name for name in sorted(modules | folders) if name not in text]


def test_every_target_of_make_help_is_run_whatever_files_there_are(repository: Path) -> None:
    text = "".join((repository / name).read_text(encoding="utf-8") for name in ("Makefile", "tools/boards.mk"))
    phony = {name for line in re.findall(r"^\.PHONY:((?:.*\\\n)*.*)", text, re.MULTILINE) for name in line.split()}
    assert set(re.findall(r"^([a-z-]+):.*  ## ", text, re.MULTILINE)) <= phony


def test_every_folder_of_a_package_has_a_door(sources: "Sources") -> None:
    without = [name for name, folder in sources.packages().items() if not (folder / "__init__.py").is_file()]
    assert not without, f"no __init__.py: {without}"


def test_every_package_says_that_it_is_typed(sources: "Sources") -> None:
    tops = {name: folder for name, folder in sources.packages().items() if "." not in name}
    without = [name for name, folder in tops.items() if not (folder / "py.typed").is_file()]
    assert not without, f"no py.typed: {without}"


def test_packaging_looks_for_every_package_where_it_stands(
    sources: "Sources", options: dict[str, str], repository: Path
) -> None:
    named = dict(line.split(" = ") for line in options["package_dir"].strip().splitlines())
    packages = sources.packages().items()
    there = {name: str(folder.relative_to(repository)) for name, folder in packages if "." not in name}
    assert named == there
