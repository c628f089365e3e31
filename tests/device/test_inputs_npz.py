"""The npz door: right values, names of what is refused, one line for what is wrong as a whole."""

import io
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.errors import InputError
from edge_sdk.inputs import open_source
from edge_sdk.model import InputSpec

SPEC = InputSpec(name="x", shape=(2, 3), dtype="float32")


def windows(n: int) -> np.ndarray:
    return np.arange(n * 6, dtype=np.float32).reshape(n, 2, 3)


def saved(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


def read(path: Path, **settings: Any) -> tuple[np.ndarray, list[str], list[str], list[tuple[str, str]]]:
    batches = list(open_source(path, SPEC, **settings).batches(4))
    labels = [label for batch in batches for label in batch.labels or []]
    names = [name for batch in batches for name in batch.names]
    return (
        np.concatenate([batch.x for batch in batches]),
        labels,
        names,
        [each for batch in batches for each in batch.refused],
    )


@pytest.mark.parametrize("name", ["label", "labels", "y"])
def test_values_labels_and_names_come_back_in_order(tmp_path: Path, name: str) -> None:
    x, labels, names, refused = read(saved(tmp_path / "learn.npz", x=windows(10), **{name: list("abcdefghij")}))
    np.testing.assert_array_equal(x, windows(10))
    assert labels == list("abcdefghij")
    assert names[9] == "learn.npz[9]"
    assert refused == []


def test_integer_labels_are_digits_and_label_names_give_them_text(tmp_path: Path) -> None:
    numbers = np.array([2, 0, 1], np.uint8)
    assert read(saved(tmp_path / "a.npz", x=windows(3), label=numbers))[1] == ["2", "0", "1"]
    named = saved(tmp_path / "b.npz", x=windows(3), label=numbers, label_names=["walking", "typing", "eating"])
    assert read(named)[1] == ["eating", "walking", "typing"]


@pytest.mark.parametrize("dtype", ["float64", "float16", "int16", "uint8", ">f4"])
def test_other_numbers_are_cast_to_the_models_dtype(tmp_path: Path, dtype: str) -> None:
    x = read(saved(tmp_path / "a.npz", x=windows(5).astype(dtype), y=list("abcde")))[0]
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x, windows(5))


def test_column_order_gives_the_same_rows(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.npz", x=np.asfortranarray(windows(9)), y=list("abcdefghi"))
    np.testing.assert_array_equal(read(path)[0], windows(9))


def test_compressed_archive_gives_the_same_rows(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=windows(9), y=np.array(list("abcdefghi")))
    np.testing.assert_array_equal(read(tmp_path / "a.npz")[0], windows(9))


def test_non_finite_window_is_refused_by_name_and_the_rest_is_kept(tmp_path: Path) -> None:
    x = windows(6)
    x[4, 1, 2] = np.nan
    x[5, 0, 0] = np.inf
    kept, labels, names, refused = read(saved(tmp_path / "learn.npz", x=x, y=list("abcdef")))
    np.testing.assert_array_equal(kept, windows(6)[:4])
    assert (labels, names[-1]) == (list("abcd"), "learn.npz[3]")
    assert refused[0] == (
        "learn.npz[4]",
        "holds nan at [1, 2], expected finite float32 values; leave it out or mend it",
    )
    assert refused[1].name == "learn.npz[5]"  # type: ignore[attr-defined]


def test_infinities_of_both_signs_are_refused_without_a_warning(tmp_path: Path) -> None:
    x = windows(3)
    x[1, 0] = (np.inf, -np.inf, 0)
    assert [each[0] for each in read(saved(tmp_path / "a.npz", x=x, y=["a", "b", "c"]))[3]] == ["a.npz[1]"]


def test_value_beyond_float32_is_refused(tmp_path: Path) -> None:
    x = windows(2).astype(np.float64)
    x[1, 0, 1] = 1e300
    assert read(saved(tmp_path / "a.npz", x=x, y=["a", "b"]))[3][0][0] == "a.npz[1]"


def test_empty_label_is_refused_by_name(tmp_path: Path) -> None:
    _, labels, _, refused = read(saved(tmp_path / "a.npz", x=windows(3), y=["a", "  ", "c"]))
    assert labels == ["a", "c"]
    assert refused == [("a.npz[1]", "empty label; give every example a name")]


def test_one_label_for_all_needs_no_labels(tmp_path: Path) -> None:
    assert read(saved(tmp_path / "a.npz", x=windows(2)), label=" typing ")[1] == ["typing", "typing"]


def test_labels_are_optional_unless_required(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.npz", x=windows(2))
    assert next(open_source(path, SPEC).batches()).labels is None
    with pytest.raises(InputError, match="no labels"):
        open_source(path, SPEC, labels="required")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no x": ({"data": windows(2), "y": ["a", "b"]}, "no array x, found data, y"),
    "shape": (
        {"x": np.zeros((2, 3, 2), np.float32), "y": ["a", "b"]},
        r"has shape \(2, 3, 2\), the model file takes \(n, 2, 3\)",
    ),
    "labels": ({"x": windows(2), "y": ["a", "b", "c"]}, r"y has shape \(3,\), x has 2 inputs"),
    "two": ({"x": windows(2), "y": ["a", "b"], "label": ["a", "b"]}, "holds both label and y"),
    "objects": ({"x": windows(2), "y": np.array(["a", None], object)}, "Python objects"),
    "float labels": ({"x": windows(2), "y": [0.0, 1.0]}, "holds float64, expected text or integers"),
    "text": ({"x": np.array(["a", "b"]), "y": ["a", "b"]}, "expected numbers"),
    "scalar": ({"x": np.float32(1), "y": ["a"]}, "single value"),
    "empty": ({"x": windows(0), "y": np.array([], "U1")}, "holds no inputs"),
    "complex": ({"x": windows(2).astype(complex), "y": ["a", "b"]}, "holds complex128"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_as_a_whole_is_one_line(tmp_path: Path, case: str) -> None:
    arrays, message = WRONG[case]
    with pytest.raises(InputError, match=message) as caught:
        open_source(saved(tmp_path / "learn.npz", **arrays), SPEC, labels="required")
    assert "learn.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04" + bytes(100), b"\x89PNG\r\n\x1a\n" + bytes(50)])
def test_junk_named_npz_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(InputError, match="not a NumPy archive"):
        open_source(tmp_path / "a.npz", SPEC)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        open_source(tmp_path / "nowhere.dat", SPEC)
    with pytest.raises(InputError, match="No such file"):
        open_source(tmp_path / "nowhere.npz", SPEC)


@pytest.mark.parametrize("compressed", [False, True])
def test_archive_with_a_flipped_byte_is_refused_before_any_batch(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "a.npz"
    (np.savez_compressed if compressed else np.savez)(path, x=windows(2000), y=np.array(["a"] * 2000))
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged archive"):
        open_source(path, SPEC)


def npz_with_header(path: Path, header: str, body: bytes = b"") -> Path:
    text = header.encode().ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + body)
    return path


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 2, 3)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 2, 3)}",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (1000000000000, 2, 3)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1, 2, 3)}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1, 2, 3)}",
        "{'descr': '|V999999999', 'fortran_order': False, 'shape': (1, 2, 3)}",
        "((((((((((((((((((((((((((((((((((",
        "__import__('os').system('true')",
        "{}",
    ],
)
def test_header_that_lies_allocates_nothing(tmp_path: Path, header: str) -> None:
    path = npz_with_header(tmp_path / "a.npz", header)
    tracemalloc.start()
    with pytest.raises(InputError):
        open_source(path, SPEC)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_large_archive_is_read_in_bounded_memory(tmp_path: Path) -> None:
    spec = InputSpec(name="x", shape=(1000,), dtype="float32")
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((20_000, 1000), np.float32), y=np.zeros(20_000, np.uint8))
    tracemalloc.start()
    rows = sum(len(batch) for batch in open_source(tmp_path / "a.npz", spec).batches(256))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == 20_000
    assert peak < 12 << 20  # the array alone is 80 MB


def test_stored_pickle_is_never_run(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "marker",))

    array = io.BytesIO()
    np.save(array, np.array([Bomb()], object), allow_pickle=True)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", array.getvalue())
    with pytest.raises(InputError, match="Python objects"):
        open_source(tmp_path / "a.npz", SPEC)
    assert not (tmp_path / "marker").exists()
