"""Fixtures that every test may use. This file is read on the device too: standard library and pytest only."""

import os
from pathlib import Path

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
