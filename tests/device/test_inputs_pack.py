"""The pack of tests/data/make_bad_inputs.py: each good input is read, each bad one is refused in one line."""

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from edge_sdk.errors import InputError
from edge_sdk.inputs import Refused, open_source
from edge_sdk.model import InputSpec

PICTURES = InputSpec(name="x", shape=(8, 8, 3), dtype="uint8", kind="image")
NUMBERS = InputSpec(name="x", shape=(2, 3), dtype="float32")
SOUNDS = InputSpec(name="x", shape=(800,), dtype="float32", kind="audio", preprocessing={"rate": 8000})


@pytest.fixture(scope="module")
def maker(repository: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "make_bad_inputs", repository / "tests" / "data" / "make_bad_inputs.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outcome(path: Path, spec: InputSpec) -> tuple[list[np.ndarray], list[str], list[str]]:
    """Samples, labels and one line for each refusal, wherever it was refused."""
    try:
        batches = list(open_source(path, spec, labels="optional").batches())
    except InputError as error:
        return [], [], [str(error)]
    return (
        [row for batch in batches for row in batch.x],
        [label for batch in batches for label in batch.labels or []],
        [f"{refused.name}: {refused.reason}" for batch in batches for refused in batch.refused],
    )


def check_lines(lines: list[str], name: str, words: str) -> None:
    assert len(lines) == 1, (name, lines)
    assert words in lines[0], name
    assert "\n" not in lines[0]
    assert name.partition(".")[0] in lines[0]


def test_each_table_gives_its_two_rows_or_a_line_that_says_where(maker: ModuleType, tmp_path: Path) -> None:
    for name, words in maker.make_tables(tmp_path).items():
        samples, labels, lines = outcome(tmp_path / name, NUMBERS)
        if words is None:
            assert lines == [], name
            np.testing.assert_array_equal(np.reshape(samples, (2, 6)), maker.NUMBERS, err_msg=name)
            assert labels == ["a", "b"], name
        else:
            check_lines(lines, name, words)
            assert len(samples) in (0, 2) or name in ("index.csv",), name
            for sample, row in zip(samples, maker.NUMBERS, strict=False):
                np.testing.assert_array_equal(sample.ravel(), row, err_msg=name)


def test_each_bad_json_line_costs_itself_alone(maker: ModuleType, tmp_path: Path) -> None:
    for name, words in maker.make_json_lines(tmp_path).items():
        samples, labels, lines = outcome(tmp_path / name, NUMBERS)
        np.testing.assert_array_equal(np.reshape(samples, (2, 6)), maker.NUMBERS, err_msg=name)
        assert labels == ["a", "b"], name
        if words is None:
            assert lines == [], name
        else:
            check_lines(lines, name, words)
            assert "line 3" in lines[0]


# A damaged EXIF block makes Pillow warn, which this test run would turn into an error.
@pytest.mark.filterwarnings("default::UserWarning:PIL")
def test_each_picture_is_decoded_or_named_with_its_reason(maker: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "cat"
    folder.mkdir()
    expected = maker.make_pictures(folder)
    source = open_source(tmp_path, PICTURES, labels="required")
    batches = list(source.batches())
    refused = {each.name: each.reason for batch in batches for each in batch.refused}
    assert {f"cat/{name}" for name, words in expected.items() if words} == set(refused)
    for name, words in expected.items():
        if words is not None:
            assert words in refused[f"cat/{name}"]
    assert {name for batch in batches for name in batch.names} == {
        f"cat/{name}" for name, words in expected.items() if not words
    }
    assert source.count == len(expected)
    assert source.notes == [
        "4 files are no samples and were passed over: .DS_Store 1, ._* 1, Thumbs.db 1, *.json 1",
        "2 animated or many-page pictures: the first frame was taken",
    ]


def test_datastores_among_the_inputs_are_passed_over(repository: Path, tmp_path: Path) -> None:
    spec = InputSpec(name="input", shape=(2,), dtype="float32", kind="array")
    store = next(path for path in sorted((repository / "tests" / "data" / "store_v1").iterdir()) if path.is_dir())
    shutil.copytree(store, tmp_path / "cat" / "me.store")
    np.save(tmp_path / "cat" / "a.npy", np.zeros(2, np.float32))
    source = open_source(tmp_path, spec, labels="ignored")
    assert source.count == 1
    assert source.notes == ["1 file is no sample and was passed over: datastore me.store 1"]
    with pytest.raises(InputError, match="is a datastore, not inputs"):
        open_source(tmp_path / "cat" / "me.store", spec)


@pytest.mark.filterwarnings("default::UserWarning:PIL")
def test_each_picture_alone_is_decoded_or_named(maker: ModuleType, tmp_path: Path) -> None:
    for name, words in maker.make_pictures(tmp_path).items():
        if not (tmp_path / name).suffix:
            continue
        samples, _, lines = outcome(tmp_path / name, PICTURES)
        if words is None:
            assert (len(samples), lines) == (1, []), name
        elif name not in ("drawing.svg", "film.mov", "paper.pdf"):
            check_lines(lines, name, words)
        else:
            assert len(lines) == 1


def test_each_sound_is_the_same_tone_or_named_with_its_reason(maker: ModuleType, tmp_path: Path) -> None:
    if not any(map(importlib.util.find_spec, ("soxr", "scipy"))):
        pytest.skip("resampling needs the audio extra")
    tone = 0.5 * np.sin(2 * np.pi * 440 * np.arange(800) / 8000)
    for name, words in maker.make_sounds(tmp_path).items():
        samples, _, lines = outcome(tmp_path / name, SOUNDS)
        if words is not None:
            check_lines(lines, name, words)
            continue
        assert lines == [], name
        if name == "float.wav":
            np.testing.assert_array_equal(samples[0], 0.5)
        else:  # the ends of a resampled clip ring
            np.testing.assert_allclose(samples[0][50:-50], tone[50:-50], atol=0.01, err_msg=name)


def test_folder_of_sounds_is_labelled_by_folder(maker: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "hum").mkdir()
    (tmp_path / "hum" / "a.wav").write_bytes(maker.sound(8000))
    (tmp_path / "hum" / "b.wav").write_bytes(maker.sound(8000)[:100])
    (batch,) = open_source(tmp_path, SOUNDS, labels="required").batches()
    assert (batch.labels, batch.names) == (["hum"], ["hum/a.wav"])
    assert batch.refused == [Refused("hum/b.wav", "cut short (56 of 1600 bytes of sound); copy it again")]
