"""The door: kinds told apart by content, and a new kind that is one new file."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.errors import InputError
from edge_sdk.inputs import base, door, open_source, sources
from edge_sdk.model import InputSpec

SPEC = InputSpec(name="x", shape=(2,), dtype="float32")

NEW_KIND = """
import numpy as np

from edge_sdk.inputs.base import Example, Source


class DotsSource(Source):
    kind = "dots (.dots)"
    suffixes = (".dots",)
    count = 2
    has_labels = False

    def examples(self):
        yield Example("first", np.array([1.0, 2.0]))
        yield Example("second", np.array([3.0, 4.0, 5.0]))


SOURCE = DotsSource
"""


@pytest.fixture
def fresh_kinds() -> Iterator[None]:
    door.kinds.cache_clear()
    yield
    door.kinds.cache_clear()


def test_new_kind_is_one_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh_kinds: None) -> None:
    (tmp_path / "dots_for_a_test.py").write_text(NEW_KIND)
    monkeypatch.setattr(sources, "__path__", [*sources.__path__, str(tmp_path)])
    (tmp_path / "a.dots").write_text("")
    (batch,) = open_source(tmp_path / "a.dots", SPEC).batches()
    np.testing.assert_array_equal(batch.x, [[1.0, 2.0]])
    assert batch.refused == [("second", "has shape (3,), expected (2,)")]


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".csv", ".jsonl"])
def test_kind_is_recognised_without_its_suffix(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    if suffix == ".npz":
        np.savez(path, x=[[1.0, 2.0]])
    elif suffix == ".npy":
        np.save(path, [[1.0, 2.0]])
    else:
        path.write_text("a,b\n1,2\n" if suffix == ".csv" else "[1, 2]\n")
    bare = path.rename(tmp_path / "bare")
    (batch,) = open_source(bare, SPEC).batches()
    np.testing.assert_array_equal(batch.x, [[1.0, 2.0]])


def test_unknown_kind_lists_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "a.xyz").write_bytes(b"what is this")
    with pytest.raises(InputError, match=r"NumPy archive \(\.npz\)") as caught:
        open_source(tmp_path / "a.xyz", SPEC)
    assert "\n" not in str(caught.value)


def test_large_samples_come_in_small_batches() -> None:
    assert base.rows_of_batch(1024, InputSpec("x", (224, 224, 3), "float32")) == base.BATCH_BYTES // (224 * 224 * 3 * 4)
    assert base.rows_of_batch(1024, InputSpec("x", (10_000, 10_000), "float32")) == 1
    with pytest.raises(InputError):
        base.rows_of_batch(0, SPEC)


def test_arrays_without_labels_take_one_for_all(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", [[1.0, 2.0], [np.nan, 0.0], [3.0, 4.0]])
    (batch,) = open_source(tmp_path / "a.npy", SPEC, label="up").batches()
    assert (batch.labels, batch.names) == (["up", "up"], ["a.npy[0]", "a.npy[2]"])
    assert batch.refused[0].name == "a.npy[1]"
    with pytest.raises(InputError, match="--label"):
        open_source(tmp_path / "a.npy", SPEC, labels="required")


@pytest.mark.parametrize("written", ["1", " 1", "01", "1.0", "True", "é", "e\u0301", "nan"])
def test_labels_of_a_table_are_text_by_the_one_rule(tmp_path: Path, written: str) -> None:
    (tmp_path / "a.csv").write_text(f"a,b,label\n1,2,{written}\n", encoding="utf-8")
    (batch,) = open_source(tmp_path / "a.csv", SPEC, labels="required").batches()
    assert batch.labels == [{" 1": "1", "e\u0301": "é"}.get(written, written)]
