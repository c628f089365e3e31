"""Golden datastores: what format version 1 wrote, every later version opens."""

import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk.datastore import Datastore

STORES = ("float16.fifo", "float32.concatenate", "int8.balanced", "float16.many")


@pytest.fixture(scope="module")
def golden(repository: Path) -> Path:
    return repository / "tests" / "data" / "store_v1"


@pytest.fixture(scope="module")
def expected(golden: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((golden / "expected.json").read_text(encoding="utf-8"))
    return read


def content(store: Datastore) -> dict[str, Any]:
    slots = store.table.order
    return {
        "sequences": store.table.sequences[slots].tolist(),
        "sources": store.table.sources[slots].tolist(),
        "labels": [store.classes[label] for label in store.table.labels[slots]],
        "embeddings": store.embeddings(slots).tolist(),
        "classes": list(store.classes),
        "capacity": store.capacity,
        "policy": store.policy,
        "dtype": store.dtype,
        "damaged": store.damaged,
        "interpolation": store.interpolation,
    }


@pytest.mark.parametrize("name", STORES)
def test_a_golden_store_opens_with_all_it_holds(
    golden: Path, expected: dict[str, Any], tmp_path: Path, name: str
) -> None:
    shutil.copytree(golden / name, tmp_path / name)
    for read_only in (True, False):
        with Datastore.open(tmp_path / name, read_only=read_only) as store:
            assert {**expected[name], **content(store)} == expected[name]
            probabilities = store.probabilities(store.table.order)
            for row, stored in zip(probabilities, expected[name]["probabilities"], strict=True):
                assert [[i, float(p)] for i, p in enumerate(row) if p] == stored


@pytest.mark.parametrize("name", STORES)
def test_a_golden_store_goes_on_learning(golden: Path, expected: dict[str, Any], tmp_path: Path, name: str) -> None:
    shutil.copytree(golden / name, tmp_path / name)
    with Datastore.open(tmp_path / name) as store:
        probabilities = np.full((1, store.n_model_classes), 1 / store.n_model_classes, np.float32)
        (sequence,) = store.add(np.ones((1, store.dim), np.float32), [store.classes[0]], probabilities).tolist()
        assert sequence > expected[name]["next_sequence_above"]
    with Datastore.open(tmp_path / name) as again:
        assert again.table.newest == sequence


def test_a_new_store_is_byte_for_byte_what_the_golden_one_is(golden: Path, tmp_path: Path) -> None:
    """A change of the slot layout or of the manifest is a new format version, with golden stores of its own."""
    with Datastore.open(golden / "float32.concatenate", read_only=True) as old:
        layout = old.manifest.layout
        block = layout.encode(
            old.embeddings(old.table.order[:1]),
            old.probabilities(old.table.order[:1])[:, : old.n_model_classes],
            old.table.labels[old.table.order[:1]],
            old.table.sources[old.table.order[:1]],
            old.table.sequences[old.table.order[:1]],
        )
        assert block.tobytes() == old.keys[old.table.order[:1]].tobytes()
        assert (golden / "float32.concatenate" / "entries.npy").read_bytes()[:4096] == layout.header(old.capacity)
        text = (golden / "float32.concatenate" / "manifest.json").read_text(encoding="utf-8")
        assert old.manifest.to_json() == text


@pytest.mark.parametrize("name", STORES)
def test_the_format_page_is_enough_to_read_a_golden_store(golden: Path, expected: dict[str, Any], name: str) -> None:
    """By docs/datastore.md alone: nothing of edge-sdk is used here."""
    manifest = json.loads((golden / name / "manifest.json").read_text(encoding="utf-8"))
    stated = manifest.pop("checksum")
    canonical = json.dumps(manifest, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    assert stated == f"{zlib.crc32(canonical.encode()):08x}"
    slots = np.load(golden / name / "entries.npy", allow_pickle=False)
    at = slots.dtype.fields["checksum"][1]
    held = {}
    for slot in slots:
        raw = slot.tobytes()
        if slot["sequence"] and zlib.crc32(raw[:at] + raw[at + 4 :]) == slot["checksum"]:
            scale = slot["scale"] if manifest["dtype"] == "int8" else 1.0
            embedding = (slot["embedding"].astype(np.float32) * np.float32(scale)).tolist()
            held[int(slot["sequence"])] = (manifest["classes"][slot["label"]], embedding, int(slot["source"]))
    known = expected[name]
    assert sorted(held) == known["sequences"]
    columns = zip(known["labels"], known["embeddings"], known["sources"], strict=True)
    assert [held[sequence] for sequence in known["sequences"]] == list(columns)
