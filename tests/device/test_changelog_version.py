"""One version in three places: setup.cfg, `edge_sdk.__version__` and the changelog's newest release."""

import re
from configparser import ConfigParser
from pathlib import Path

import edge_sdk


def _version_of_setup_cfg(repository: Path) -> str:
    config = ConfigParser()
    config.read(repository / "setup.cfg", encoding="utf-8")
    return config["metadata"]["version"]


def _headings(repository: Path) -> list[str]:
    return re.findall(r"^## (.+)$", (repository / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_package_has_the_version_of_setup_cfg(repository: Path) -> None:
    assert edge_sdk.__version__ == _version_of_setup_cfg(repository)


def test_the_newest_release_in_the_changelog_has_the_version_of_setup_cfg(repository: Path) -> None:
    releases = [heading for heading in _headings(repository) if heading != "Unreleased"]
    assert not releases or releases[0].split()[0] == _version_of_setup_cfg(repository)


def test_unreleased_changes_stand_on_top(repository: Path) -> None:
    headings = _headings(repository)
    assert "Unreleased" not in headings[1:]
