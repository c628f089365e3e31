"""Parquet tables, where pyarrow is installed; without it, one line that says so."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.errors import InputError
from edge_sdk.inputs import Batch, open_source
from edge_sdk.model import InputSpec

SPEC = InputSpec(name="x", shape=(2, 3), dtype="float32")
ROWS = np.arange(12, dtype=np.float64).reshape(2, 6)
needs_pyarrow = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")


def write(path: Path, columns: dict[str, Any]) -> Path:
    arrow: Any = importlib.import_module("pyarrow")
    parquet: Any = importlib.import_module("pyarrow.parquet")
    parquet.write_table(arrow.table(columns), path)
    return path


def read(path: Path) -> Batch:
    (batch,) = open_source(path, SPEC, labels="required").batches()
    return batch


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is not None, reason="pyarrow is installed")
def test_without_pyarrow_the_cure_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="pip install pyarrow"):
        open_source(tmp_path / "a.parquet", SPEC)


@needs_pyarrow
def test_columns_and_lists_give_the_same_samples(tmp_path: Path) -> None:
    wide = {f"f{column}": ROWS[:, column] for column in range(6)} | {"label": ["a", "b"]}
    for columns in (wide, {"x": ROWS.tolist(), "label": ["a", "b"]}, {"label": ["a", "b"], **wide}):
        batch = read(write(tmp_path / "a.parquet", columns))
        np.testing.assert_array_equal(batch.x, ROWS.reshape(2, 2, 3))
        assert (batch.labels, batch.names, batch.refused) == (["a", "b"], ["a.parquet row 0", "a.parquet row 1"], [])


@needs_pyarrow
def test_missing_values_and_short_lists_are_refused_by_row(tmp_path: Path) -> None:
    wide: dict[str, Any] = {f"f{column}": ROWS[:, column].tolist() for column in range(6)}
    wide["f3"] = [None, 1.0]
    batch = read(write(tmp_path / "a.parquet", wide | {"label": ["a", "b"]}))
    assert [refused.name for refused in batch.refused] == ["a.parquet row 0"]
    lists = {"x": [ROWS[0].tolist(), [1.0, 2.0], None], "label": ["a", "b", "c"]}
    batch = read(write(tmp_path / "b.parquet", lists))
    assert (batch.labels, len(batch.refused)) == (["a"], 2)
    batch = read(write(tmp_path / "c.parquet", {"x": ROWS.tolist(), "label": ["a", None]}))
    assert (batch.labels, batch.refused[0].reason) == (["a"], "has no label")


@needs_pyarrow
def test_wrong_as_a_whole_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "junk.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    narrow = write(tmp_path / "narrow.parquet", {"f0": [1.0], "label": ["a"]})
    bare = write(tmp_path / "bare.parquet", {"x": ROWS.tolist()})
    for path, message in (
        (tmp_path / "junk.parquet", "damaged"),
        (narrow, "takes 6 numbers"),
        (bare, "no column of labels"),
    ):
        with pytest.raises(InputError, match=message) as caught:
            read(path)
        assert "\n" not in str(caught.value)
