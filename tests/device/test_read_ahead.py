"""Reading the next batch while one is learnt."""

import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from edge_sdk.errors import InputError
from edge_sdk.inputs import Batch
from edge_sdk.inputs.ahead import read_ahead


def batch(number: int) -> Batch:
    return Batch(np.full((2, 3), number, np.float32), None, [str(number)] * 2, [])


@pytest.fixture
def two_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})


class Reading:
    """Five batches, each of which says when it was asked for."""

    def __init__(self) -> None:
        self.asked = [threading.Event() for _ in range(6)]
        self.threads: set[str] = set()

    def batches(self) -> Iterator[Batch]:
        for number in range(5):
            self.threads.add(threading.current_thread().name)
            self.asked[number].set()
            yield batch(number)


def test_batches_come_in_order_and_one_is_read_ahead(two_processors: None) -> None:
    reading = Reading()
    for number, each in enumerate(read_ahead(reading.batches())):
        assert each.names == [str(number)] * 2
        assert number == 4 or reading.asked[number + 1].wait(10)
        assert not reading.asked[min(number + 2, 5)].is_set()
    assert reading.threads == {"read-ahead"}


def test_with_one_processor_no_thread_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0})
    reading = Reading()
    assert len(list(read_ahead(reading.batches()))) == 5
    assert reading.threads == {"MainThread"}


def test_error_comes_in_the_place_of_its_batch(two_processors: None) -> None:
    def broken() -> Iterator[Batch]:
        yield batch(0)
        raise InputError("table.csv line 9: cut short")

    batches = read_ahead(broken())
    assert next(batches).names == ["0", "0"]
    with pytest.raises(InputError, match="line 9"):
        next(batches)


def test_caller_that_stops_early_waits_for_nothing(two_processors: None) -> None:
    is_over = threading.Event()

    def slow() -> Iterator[Batch]:
        yield batch(0)
        is_over.wait(10)
        yield batch(1)

    batches = read_ahead(slow())
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert not is_over.is_set()
    is_over.set()
