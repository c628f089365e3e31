"""What holds for any input: numbers survive every format, bytes never raise anything but an InputError."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from edge_sdk.errors import InputError
from edge_sdk.inputs import open_source
from edge_sdk.inputs.images import ImageDecoder
from edge_sdk.labels import normalise_label
from edge_sdk.model import InputSpec

SPEC = InputSpec(name="x", shape=(2, 2), dtype="float32")
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
ROWS = st.lists(st.lists(FLOATS, min_size=4, max_size=4), min_size=1, max_size=12)
LABELS = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=12).filter(str.strip)
QUICK = settings(
    max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def read(path: Path) -> tuple[np.ndarray, list[str]]:
    batches = list(open_source(path, SPEC, labels="required").batches(5))
    assert [batch.refused for batch in batches if batch.refused] == []
    return np.concatenate([batch.x for batch in batches]), [label for batch in batches for label in batch.labels or []]


@QUICK
@given(rows=ROWS, label=LABELS, separator=st.sampled_from([",", ";", "\t", "|"]), quote_all=st.booleans())
def test_numbers_and_labels_survive_a_table(
    tmp_path: Path, rows: list[list[float]], label: str, separator: str, quote_all: bool
) -> None:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL)
    writer.writerow(["a", "b", "c", "d", "label"])
    writer.writerows([[*map(repr, row), label] for row in rows])
    (tmp_path / "a.csv").write_text(text.getvalue(), encoding="utf-8", newline="")
    x, labels = read(tmp_path / "a.csv")
    np.testing.assert_array_equal(x, np.array(rows, np.float32).reshape(-1, 2, 2))
    assert labels == [normalise_label(label)] * len(rows)


@QUICK
@given(rows=ROWS, label=LABELS, flat=st.booleans())
def test_numbers_and_labels_survive_json_lines(tmp_path: Path, rows: list[list[float]], label: str, flat: bool) -> None:
    values = [row if flat else [row[:2], row[2:]] for row in rows]
    lines = (json.dumps({"x": value, "label": label}, ensure_ascii=flat) for value in values)
    (tmp_path / "a.jsonl").write_text("\n".join(lines), encoding="utf-8")
    x, labels = read(tmp_path / "a.jsonl")
    np.testing.assert_array_equal(x, np.array(rows, np.float32).reshape(-1, 2, 2))
    assert labels == [normalise_label(label)] * len(rows)


@QUICK
@given(rows=ROWS, fortran=st.booleans(), compressed=st.booleans(), dtype=st.sampled_from(["<f4", ">f4", "<f8", ">f8"]))
def test_numbers_survive_an_archive(
    tmp_path: Path, rows: list[list[float]], fortran: bool, compressed: bool, dtype: str
) -> None:
    x = np.array(rows, dtype).reshape(-1, 2, 2)
    save = np.savez_compressed if compressed else np.savez
    save(tmp_path / "a.npz", x=np.asfortranarray(x) if fortran else x, y=np.arange(len(x)))
    found, labels = read(tmp_path / "a.npz")
    np.testing.assert_array_equal(found, x.astype(np.float32))
    assert labels == [str(number) for number in range(len(x))]


@QUICK
@given(width=st.integers(1, 40), height=st.integers(1, 40), fit=st.sampled_from(["crop", "pad", "stretch"]))
def test_plain_picture_of_any_size_stays_plain(width: int, height: int, fit: str) -> None:
    spec = InputSpec("x", (7, 9, 3), "uint8", "image", {"fit": fit, "background": [1, 2, 3]})
    found = ImageDecoder(spec).decode(np.full((height, width, 3), (1, 2, 3), np.uint8))
    assert (found == (1, 2, 3)).all()


@QUICK
@given(seed=st.integers(0, 2**32 - 1), form=st.sampled_from(["PNG", "BMP", "TIFF", "PPM"]))
def test_lossless_picture_of_the_models_size_keeps_every_pixel(seed: int, form: str) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (7, 9, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, form)
    spec = InputSpec("x", (7, 9, 3), "uint8", "image")
    np.testing.assert_array_equal(ImageDecoder(spec).decode(buffer.getvalue()), pixels)


@QUICK
@given(content=st.binary(max_size=300), suffix=st.sampled_from([".csv", ".jsonl", ".npz", ".npy", ".png", ".wav", ""]))
def test_any_bytes_are_read_or_refused_in_one_line(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content)
    try:
        lines = [each.reason for batch in open_source(path, SPEC).batches() for each in batch.refused]
    except InputError as error:
        lines = [str(error)]
    assert not any("\n" in line for line in lines)


@pytest.mark.parametrize("seed", [1, 2])
def test_short_fuzz_finds_no_crash_no_hang_and_little_memory(repository: Path, seed: int) -> None:
    command = [sys.executable, str(repository / "tests" / "fuzz_inputs.py"), "--files", "600", "--seed", str(seed)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    found = json.loads(done.stdout.splitlines()[-1])
    assert (done.returncode, found["crashes"], found["hangs"]) == (0, 0, 0), done.stdout
    assert found["peak_mb"] < 300
