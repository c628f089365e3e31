"""What a user may hold: `edge_sdk.__all__`, exact and sorted."""

import types

import edge_sdk


def test_the_public_names_are_sorted() -> None:
    assert edge_sdk.__all__ == sorted(edge_sdk.__all__)


def test_every_public_name_is_there_and_every_name_there_is_public() -> None:
    there = {
        name
        for name, value in vars(edge_sdk).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert there | {"__version__"} == set(edge_sdk.__all__)
