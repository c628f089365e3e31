"""What a user may hold: `edge_sdk.__all__`, exact and sorted, each name loaded when it is first used."""

import types

import pytest

import edge_sdk


def test_the_public_names_are_sorted() -> None:
    assert edge_sdk.__all__ == sorted(edge_sdk.__all__)


def test_every_public_name_is_there_and_every_name_there_is_public() -> None:
    there = {name for name in dir(edge_sdk) if not name.startswith("_")}
    assert there | {"__version__"} == set(edge_sdk.__all__)
    for name in there:
        value = getattr(edge_sdk, name)
        assert not isinstance(value, types.ModuleType)
        assert value.__name__ == name


def test_a_name_that_is_not_public_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Predicter'"):
        getattr(edge_sdk, "Predicter")  # noqa: B009 (a type checker would find it)
