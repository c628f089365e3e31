"""The datastore as one process sees it: adding, evicting, forgetting, opening again."""

import errno
import json
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.datastore import HEADER_BYTES, Datastore, entries_bytes, slot_bytes
from edge_sdk.datastore.halves import narrow
from edge_sdk.datastore.storage import Storage
from edge_sdk.errors import ConfigError, DatastoreError, InputError
from edge_sdk.model import InputSpec, ModelMetadata

DIM = 16
CLASSES = ("run", "sit", "walk")


def model(*, dim: int = DIM, classes: tuple[str, ...] = CLASSES, fingerprint: str = "f" * 64) -> ModelMetadata:
    return ModelMetadata(classes, InputSpec("input", (dim,)), dim, fingerprint, graph_crc32=0)


def entries(n: int, *, seed: int = 0, dim: int = DIM, n_classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Random embeddings and probabilities."""
    random = np.random.default_rng(seed)
    probabilities = random.dirichlet(np.ones(n_classes), n).astype(np.float32)
    return random.normal(size=(n, dim)).astype(np.float32), probabilities


def add(store: Datastore, labels: list[str], *, seed: int = 0, sync: bool = True) -> list[int]:
    """Add random entries with these labels; returns their sequences."""
    embeddings, probabilities = entries(len(labels), seed=seed, dim=store.dim, n_classes=store.n_model_classes)
    return store.add(embeddings, labels, probabilities, sync=sync).tolist()  # type: ignore[no-any-return]


def sequences_by_age(store: Datastore) -> list[int]:
    return store.table.sequences[store.table.order].tolist()  # type: ignore[no-any-return]


Creator = Callable[..., Datastore]


@pytest.fixture
def create(tmp_path: Path) -> Creator:
    def create_here(**settings: object) -> Datastore:
        given = {"model": model(), "capacity": 8, **settings}
        return Datastore.create(tmp_path / "me.store", **given)  # type: ignore[arg-type]

    return create_here


def test_an_added_entry_is_there_after_opening_again(create: Creator) -> None:
    embeddings, probabilities = entries(3)
    with create(dtype="float32") as store:
        sequences = store.add(embeddings, ["run", "sit", "run"], probabilities, sources=[7, 0, 9])
    with Datastore.open(store.folder, model=model()) as again:
        slots = again.table.order
        assert sequences.tolist() == sequences_by_age(again) == [1, 2, 3]
        assert np.array_equal(again.embeddings(slots), embeddings)
        assert np.abs(again.probabilities(slots) - probabilities).max() < 1e-3
        assert [again.classes[label] for label in again.table.labels[slots]] == ["run", "sit", "run"]
        assert again.find_sources([9, 7, 8, 0]).tolist() == [slots[2], slots[0], -1, -1]


def test_many_sources_are_found_in_their_lowest_slots(create: Creator) -> None:
    low = np.uint64(1 << 16)  # times this, all sources share their lowest 16 bits
    held = np.array([5, 9, 5, 7, 0, 8], np.uint64)
    for factor in (np.uint64(1), low):
        embeddings, probabilities = entries(6)
        with create() as store:
            assert store.find_sources(held * factor).tolist() == [-1] * 6
            store.add(embeddings, ["run"] * 6, probabilities, sources=held * factor)
            wanted = np.array([8, 5, 0, 6, 9, 1, 7], np.uint64) * factor
            assert store.find_sources(wanted).tolist() == [5, 0, -1, -1, 1, -1, 3]
        shutil.rmtree(store.folder)


def test_narrowing_rounds_as_numpy_does_up_to_the_largest_float16() -> None:
    largest = int(np.float32(65504).view(np.uint32))
    sizes = np.arange(0, largest + 1, 997, dtype=np.uint32)
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = ((halves[1:] + halves[:-1]) / 2).view(np.uint32)
    sizes = np.concatenate((sizes, halves.view(np.uint32), ties - 1, ties, ties + 1)).astype(np.uint32)
    for sign in (np.uint32(0), np.uint32(1 << 31)):
        values = (sizes | sign).view(np.float32)
        assert np.array_equal(narrow(values).view(np.uint16), values.astype(np.float16).view(np.uint16))


def test_one_by_one_and_in_a_batch_give_the_same_file(tmp_path: Path) -> None:
    embeddings, probabilities = entries(11)
    labels = ["run", "sit", "walk"] * 3 + ["run", "sit"]
    for dtype in ("float32", "float16", "int8"):
        with Datastore.create(tmp_path / f"one.{dtype}", model=model(), capacity=8, dtype=dtype) as one:
            for i in range(11):
                one.add(embeddings[i : i + 1], labels[i : i + 1], probabilities[i : i + 1], sync=False)
        with Datastore.create(tmp_path / f"many.{dtype}", model=model(), capacity=8, dtype=dtype) as many:
            many.add(embeddings[:5], labels[:5], probabilities[:5])
            many.add(embeddings[5:], labels[5:], probabilities[5:])
        assert (one.folder / "entries.npy").read_bytes() == (many.folder / "entries.npy").read_bytes()


def test_the_entries_file_is_a_plain_numpy_file_of_the_stated_size(create: Creator) -> None:
    with create(capacity=5) as store:
        add(store, ["run", "walk"])
    path = store.folder / "entries.npy"
    loaded = np.load(path, allow_pickle=False)
    assert loaded["sequence"].tolist() == [1, 2, 0, 0, 0]
    assert path.stat().st_size == entries_bytes(DIM, 3, "float16", capacity=5) == HEADER_BYTES + 5 * slot_bytes(DIM, 3)
    assert path.stat().st_blocks * 512 >= path.stat().st_size


def test_the_folder_is_private(create: Creator) -> None:
    with create() as store:
        assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700


def test_full_window_evicts_the_oldest_entry(create: Creator) -> None:
    with create(capacity=4) as store:
        for i in range(10):
            add(store, ["sit"], seed=i)
            assert sequences_by_age(store) == list(range(max(1, i - 2), i + 2))


def test_a_batch_larger_than_the_window_leaves_its_newest_entries(create: Creator) -> None:
    with create(capacity=4) as store:
        assert add(store, ["run"] * 11) == list(range(1, 12))
        assert sequences_by_age(store) == [8, 9, 10, 11]


def test_fixed_store_refuses_what_it_has_no_room_for_and_stays_as_it_was(create: Creator) -> None:
    with create(capacity=4, policy="fixed") as store:
        add(store, ["run"] * 3)
        with pytest.raises(DatastoreError, match="capacity 4, 1 free, 2 to add"):
            add(store, ["sit"] * 2)
        assert sequences_by_age(store) == [1, 2, 3]
        add(store, ["sit"])
        with pytest.raises(DatastoreError, match="full"):
            add(store, ["sit"])
        store.forget(label="sit")
        assert add(store, ["sit"]) == [5]


def test_concatenate_store_doubles_and_keeps_everything(create: Creator) -> None:
    with create(capacity=2, policy="concatenate") as store, Datastore.open(store.folder, read_only=True) as reader:
        for i in range(9):
            add(store, ["run"], seed=i)
        add(store, ["walk"] * 20, seed=9)
        assert store.capacity == 32
        assert reader.refresh()
        assert reader.capacity == 32
        for each in (store, reader):
            assert sequences_by_age(each) == list(range(1, 30))
    with Datastore.open(store.folder) as again:
        assert sequences_by_age(again) == list(range(1, 30))
    assert np.load(store.folder / "entries.npy").shape == (32,)


def test_balanced_store_evicts_from_the_largest_class(create: Creator) -> None:
    with create(capacity=6, policy="balanced") as store:
        add(store, ["run"] * 2)
        add(store, ["sit"] * 20)
        counts = dict(zip(store.classes, store.table.counts, strict=True))
        assert counts == {"run": 2, "sit": 4, "walk": 0}
        assert sequences_by_age(store)[:2] == [1, 2]
        add(store, ["walk"] * 3)
        assert dict(zip(store.classes, store.table.counts, strict=True)) == {"run": 2, "sit": 2, "walk": 2}


def test_balanced_tie_evicts_the_class_of_the_oldest_entry(create: Creator) -> None:
    with create(capacity=4, policy="balanced") as store:
        add(store, ["sit", "run", "run", "sit"])
        add(store, ["walk"])
        assert sequences_by_age(store) == [2, 3, 4, 5]


def test_unknown_label_is_refused_with_the_known_ones(create: Creator) -> None:
    with create() as store:
        with pytest.raises(InputError, match='"wlak": did you mean "walk"'):
            add(store, ["run", "wlak"])
        assert len(store) == 0


def test_new_class_gets_a_column_with_probability_zero(create: Creator) -> None:
    with create(allow_new_classes=True) as store, Datastore.open(store.folder, read_only=True) as reader:
        add(store, ["zebra", "run"])
        assert reader.refresh()
        for each in (store, reader):
            assert each.classes == (*CLASSES, "zebra")
            assert each.n_model_classes == 3
            assert each.probabilities(each.table.order)[:, 3].tolist() == [0.0, 0.0]
            assert each.table.labels[each.table.order].tolist() == [3, 0]


@pytest.mark.parametrize(
    ("embeddings", "message"),
    [
        (np.full((1, DIM), np.nan), "not finite"),
        (np.full((2, DIM), 70000.0), "embedding 0 holds 70000"),
        (np.full((1, DIM + 1), 1.0), r"expected \(n, 16\)"),
        (np.full(DIM, 1.0), r"expected \(n, 16\)"),
    ],
)
def test_embeddings_that_cannot_be_stored_are_refused(create: Creator, embeddings: np.ndarray, message: str) -> None:
    with create() as store:
        n = len(embeddings)
        with pytest.raises(InputError, match=message):
            store.add(embeddings.astype(np.float32), ["run"] * n, np.full((n, 3), 1 / 3, np.float32))
        assert len(store) == 0


def test_the_largest_float16_is_stored(create: Creator) -> None:
    with create() as store:
        store.add(np.full((1, DIM), 65504.0, np.float32), ["run"], np.full((1, 3), 1 / 3, np.float32))
        assert store.embeddings(store.table.order).max() == 65504.0


def test_logits_are_refused_as_probabilities(create: Creator) -> None:
    with create() as store:
        for wrong in (4.0, -0.1, np.nan):
            with pytest.raises(InputError, match="probabilities"):
                store.add(np.ones((1, DIM), np.float32), ["run"], np.array([[0.5, 0.5, wrong]], np.float32))


def test_int8_keeps_every_value_within_half_a_step(create: Creator) -> None:
    embeddings, probabilities = entries(6)
    embeddings[3] = 0.0
    embeddings[4] *= 1e6
    with create(dtype="int8") as store:
        store.add(embeddings, ["run"] * 6, probabilities)
        stored = store.embeddings(store.table.order)
        step = np.abs(embeddings).max(axis=1, keepdims=True) / 127
        assert (np.abs(stored - embeddings) <= step * 0.5001).all()


def test_above_256_classes_the_32_largest_probabilities_are_kept(tmp_path: Path) -> None:
    names = tuple(f"class {i}" for i in range(1000))
    embeddings, probabilities = entries(4, n_classes=1000)
    with Datastore.create(tmp_path / "wide", model=model(classes=names), capacity=4) as store:
        store.add(embeddings[:1], ["class 5"], probabilities[:1])
        store.add(embeddings[1:], ["class 999"] * 3, probabilities[1:])
        stored = store.probabilities(store.table.order)
    largest = np.argsort(-probabilities, axis=1)[:, :32]
    assert np.allclose(np.take_along_axis(stored, largest, 1), np.take_along_axis(probabilities, largest, 1), atol=1e-4)
    assert np.allclose(stored.sum(axis=1), 1.0, atol=1e-2)
    assert slot_bytes(DIM, 1000) == slot_bytes(DIM, 257) == 24 + 2 * DIM + 192


def test_forget_overwrites_the_bytes(create: Creator) -> None:
    with create() as store:
        add(store, ["run", "sit", "walk", "sit"])
        (store.folder / "prototypes.npz").write_bytes(b"derived")
        (store.folder / "index").mkdir()
        (store.folder / "index" / "segment").write_bytes(b"derived")
        assert store.forget(label="sit") == 2
        assert sequences_by_age(store) == [1, 3]
        assert [path.name for path in store.folder.rglob("*") if path.is_file() and path.suffix != ".new"] == [
            path.name for path in store.folder.rglob("*") if path.name in {"entries.npy", "lock", "manifest.json"}
        ]
    raw = np.load(store.folder / "entries.npy").view(np.uint8).reshape(8, -1)
    assert not raw[[1, 3]].any()
    assert raw[[0, 2]].any(axis=1).all()


def test_forget_drops_the_interpolation_only_with_what_it_was_chosen_on(create: Creator) -> None:
    with create() as store, Datastore.open(store.folder) as reader:
        add(store, ["run", "sit", "run"])
        store.save_interpolation({"interpolation_weight": 0.5, "novelty": {"distances": [0.123456789]}})
        assert store.forget(sequences=[99]) == 0
        assert store.interpolation is not None
        assert store.forget(sequences=[2]) == 1
        assert store.interpolation is None
        reader.refresh()
        assert reader.interpolation is None
        assert all(b"0.123456789" not in path.read_bytes() for path in store.folder.iterdir() if path.is_file())


def test_only_an_eviction_warns_that_a_class_is_emptied(create: Creator, caplog: pytest.LogCaptureFixture) -> None:
    with create(capacity=2) as store:
        add(store, ["run", "sit"])
        store.forget(label="run")
        assert caplog.messages == []
        add(store, ["walk", "walk"])
        assert caplog.messages == [f'{store.folder}: class "sit" has just lost its last entry']


def test_emptied_classes_that_were_noted_without_a_cause_count_as_evicted(create: Creator) -> None:
    with create() as store:
        store._view.take_manifest(replace(store.manifest, extensions={"emptied": ["run"]}))
        assert store.emptied == store.evicted_classes == ("run",)


def test_forget_by_sequence_by_age_and_by_both(create: Creator) -> None:
    with create() as store:
        add(store, ["run", "sit", "run", "sit", "run"])
        assert store.forget(sequences=[5, 99, -1]) == 1
        assert store.forget(before=3, label="run") == 1
        assert store.forget(before=3) == 1
        assert sequences_by_age(store) == [3, 4]
        with pytest.raises(ConfigError, match="forget needs"):
            store.forget()
        with pytest.raises(InputError, match="unknown label"):
            store.forget(label="fly")


def test_a_sequence_is_never_given_twice_even_after_the_newest_was_forgotten(create: Creator) -> None:
    with create() as store:
        add(store, ["run"] * 3)
        store.forget(sequences=[3])
        store.forget(sequences=[2])
    with Datastore.open(store.folder) as again:
        again.forget(before=100)
        assert len(again) == 0
    with Datastore.open(store.folder) as empty:
        assert add(empty, ["run"]) == [4]


def test_an_entry_goes_on_counting_beyond_32_bits(create: Creator) -> None:
    with create(capacity=4) as store:
        pass
    path = store.folder / "manifest.json"
    from dataclasses import replace

    from edge_sdk.datastore.manifest import Manifest

    manifest = Manifest.from_json(path.read_bytes(), source="test")
    path.write_text(replace(manifest, highest_sequence=2**32 - 6).to_json())
    with Datastore.open(store.folder) as planted:
        for i in range(10):
            assert add(planted, ["run"], seed=i) == [2**32 - 5 + i]
        assert sequences_by_age(planted) == [2**32 + 1, 2**32 + 2, 2**32 + 3, 2**32 + 4]


def test_damaged_slot_costs_its_own_entry_and_is_reused_first(create: Creator) -> None:
    with create(capacity=5) as store:
        add(store, ["run"] * 4)
    path = store.folder / "entries.npy"
    raw = bytearray(path.read_bytes())
    raw[HEADER_BYTES + 3 * slot_bytes(DIM, 3) + 40] ^= 1  # the newest
    path.write_bytes(raw)
    with Datastore.open(store.folder) as again:
        assert (again.damaged, sequences_by_age(again)) == (1, [1, 2, 3])
        assert add(again, ["sit"]) == [5]
        assert again.damaged == 0
        assert again.table.order.tolist() == [0, 1, 2, 3]


def test_forget_wipes_damaged_slots_too_and_still_never_repeats_a_sequence(create: Creator) -> None:
    with create(capacity=5) as store:
        add(store, ["run"] * 4)
    path = store.folder / "entries.npy"
    raw = bytearray(path.read_bytes())
    raw[HEADER_BYTES + 3 * slot_bytes(DIM, 3) + 40] ^= 1
    path.write_bytes(raw)
    with Datastore.open(store.folder) as again:
        assert again.forget(sequences=[1]) == 1
        assert again.damaged == 0
    with Datastore.open(store.folder) as last:
        assert (last.damaged, sequences_by_age(last)) == (0, [2, 3])
        assert add(last, ["run"])[0] > 4


def test_damaged_header_is_rebuilt_and_a_foreign_file_is_refused(create: Creator) -> None:
    with create(capacity=5) as store:
        add(store, ["run"] * 4)
    path = store.folder / "entries.npy"
    right = path.read_bytes()
    path.write_bytes(b"\xff" * HEADER_BYTES + right[HEADER_BYTES:])
    with Datastore.open(store.folder, read_only=True) as reader:
        assert len(reader) == 4
    with Datastore.open(store.folder) as writer:
        assert len(writer) == 4
    assert path.read_bytes() == right
    path.write_bytes(b"\x93NUMPY" + b"\x01" * (len(right) - 6))
    with pytest.raises(DatastoreError, match="neither its header nor any slot"):
        Datastore.open(store.folder)


def test_a_shortened_file_is_refused_with_both_sizes(create: Creator) -> None:
    with create(capacity=5) as store:
        add(store, ["run"] * 4)
    path = store.folder / "entries.npy"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DatastoreError, match=rf"{size - 1} bytes, expected {size} .*restore.* truncate -s {size} "):
        Datastore.open(store.folder)
    os.truncate(path, HEADER_BYTES + 2 * slot_bytes(DIM, 3) + 20)
    os.truncate(path, size)  # what the message proposes
    with Datastore.open(store.folder) as left:
        assert sequences_by_age(left) == [1, 2]
        assert left.damaged == 1


def test_another_models_store_is_refused_with_the_way_out(create: Creator) -> None:
    with create() as store:
        pass
    with pytest.raises(DatastoreError, match=r"another model .*kept no inputs: .* its own model, or use a new folder"):
        Datastore.open(store.folder, model=model(fingerprint="0" * 64))


def test_a_manifest_of_a_newer_format_or_with_impossible_numbers_is_refused(create: Creator) -> None:
    with create() as store:
        pass
    path = store.folder / "manifest.json"
    right = path.read_text()
    for old, new, message in [
        ('"format_version": 1', '"format_version": 2', "upgrade edge-sdk"),
        ('"capacity": 8', '"capacity": 9', "checksum"),
        ("{", "[", "damaged manifest"),
    ]:
        path.write_text(right.replace(old, new, 1))
        with pytest.raises(DatastoreError, match=message):
            Datastore.open(store.folder)
    values = json.loads(right)
    from edge_sdk.datastore.manifest import _checksum

    del values["checksum"]
    values["capacity"] = 10**12
    path.write_text(json.dumps({**values, "checksum": _checksum(values)}))
    with pytest.raises(DatastoreError, match="capacity"):
        Datastore.open(store.folder)


def test_create_refuses_an_existing_folder_and_leaves_nothing_behind(create: Creator, tmp_path: Path) -> None:
    with create():
        pass
    with pytest.raises(DatastoreError, match="exists already"):
        create()
    with pytest.raises(ConfigError, match="capacity"):
        Datastore.create(tmp_path / "other", model=model(), capacity=0)
    with pytest.raises(ConfigError, match="policy"):
        Datastore.create(tmp_path / "other", model=model(), policy="lifo")
    assert [path.name for path in tmp_path.iterdir()] == ["me.store"]


def test_create_removes_what_a_killed_process_left_half_made(create: Creator, tmp_path: Path) -> None:
    left, alive = tmp_path / ".me.store.999999999.abcd.new", tmp_path / f".me.store.{os.getpid()}.abcd.new"
    for path in (left, alive, tmp_path / ".me.store.notes"):
        path.mkdir()
    with create():
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([alive.name, ".me.store.notes", "me.store"])


def test_the_interpolation_is_stored_and_seen_by_other_processes(create: Creator) -> None:
    with create() as store, Datastore.open(store.folder, read_only=True) as reader:
        assert store.interpolation is None
        store.save_interpolation({"interpolation_weight": 0.4, "kernel": "laplacian"})
        assert reader.refresh()
        assert reader.interpolation == {"interpolation_weight": 0.4, "kernel": "laplacian"}
        with pytest.raises(ConfigError, match="JSON"):
            store.save_interpolation({"interpolation_weight": float("nan")})


def test_a_reader_sees_what_a_writer_does_without_opening_again(create: Creator) -> None:
    with create(capacity=4) as store, Datastore.open(store.folder, read_only=True) as reader:
        assert not reader.refresh()
        version = reader.version
        for i in range(6):
            add(store, ["run"], seed=i, sync=False)
            assert reader.refresh()
            assert sequences_by_age(reader) == sequences_by_age(store)
        add(store, ["sit", "walk"], seed=7)
        store.forget(label="walk")
        assert reader.refresh()
        assert sequences_by_age(reader) == sequences_by_age(store) == [5, 6, 7]
        changed = reader.changed_slots(version)
        assert changed is not None
        assert changed.tolist() == [0, 1, 2, 3]
        assert reader.changed_slots(reader.version).tolist() == []  # type: ignore[union-attr]
        assert not reader.overwritten(reader.table.order)
        add(store, ["sit"] * 3, seed=8)
        assert reader.overwritten(reader.table.order)


def test_a_reader_that_fell_far_behind_reads_everything_again(create: Creator) -> None:
    with create(capacity=4) as store, Datastore.open(store.folder, read_only=True) as reader:
        version = reader.version
        for i in range(1200):
            add(store, ["run"], seed=i, sync=False)
        assert reader.refresh()
        assert sequences_by_age(reader) == [1197, 1198, 1199, 1200]
        assert reader.changed_slots(version) is None


def test_two_writers_take_turns_without_losing_an_entry(create: Creator) -> None:
    with create(capacity=50) as one, Datastore.open(one.folder) as two:
        for i in range(20):
            add(one, ["run"], seed=i)
            add(two, ["sit"], seed=i)
        assert one.refresh()
        assert sequences_by_age(one) == sequences_by_age(two) == list(range(1, 41))


def test_read_blocks_gives_the_same_as_the_map_in_bounded_pieces(create: Creator) -> None:
    with create(capacity=20) as store:
        add(store, ["run", "sit"] * 12)
        store.forget(sequences=[9, 17])
        blocks = list(store.read_blocks(max_bytes=3 * slot_bytes(DIM, 3)))
        assert max(len(block.slots) for block in blocks) <= 3
        slots = np.concatenate([block.slots for block in blocks])
        assert slots.tolist() == np.flatnonzero(store.table.sequences).tolist()
        assert np.array_equal(np.concatenate([block.embeddings for block in blocks]), store.embeddings(slots))
        (some,) = store.read_blocks(np.array([7, 2]))
        assert some.slots.tolist() == [2, 7]


def test_a_store_opened_read_only_says_why_it_cannot_learn(create: Creator) -> None:
    with create() as store:
        add(store, ["run"])
    with Datastore.open(store.folder, read_only=True) as reader:
        assert reader.read_only
        with pytest.raises(DatastoreError, match="opened read-only"):
            add(reader, ["run"])
        with pytest.raises(DatastoreError, match="opened read-only"):
            reader.forget(label="run")


def test_a_missing_or_cut_lock_file_is_made_anew(create: Creator) -> None:
    with create() as store:
        add(store, ["run"])
    lock = store.folder / "lock"
    for content in (None, b"", b"x" * 100):
        lock.unlink() if content is None else lock.write_bytes(content)
        with Datastore.open(store.folder, read_only=True) as reader:
            assert len(reader) >= 1
        with Datastore.open(store.folder) as writer:
            add(writer, ["run"])
    with Datastore.open(store.folder) as again:
        assert len(again) == 4


def test_a_copied_folder_is_a_store_of_its_own(create: Creator, tmp_path: Path) -> None:
    with create() as store:
        add(store, ["run"])
        shutil.copytree(store.folder, tmp_path / "copy")
        add(store, ["run"])
        with Datastore.open(tmp_path / "copy", model=model()) as copy:
            assert sequences_by_age(copy) == [1]


def test_a_class_that_lost_its_last_entry_is_remembered_until_it_has_one_again(create: Creator) -> None:
    with create(capacity=3) as store:
        add(store, ["run", "sit", "sit"])
        add(store, ["sit"])
        assert store.emptied == ("run",)
    with Datastore.open(store.folder) as again:
        assert again.emptied == ("run",)
        again.forget(label="sit")
        assert list(again.emptied) == ["run", "sit"]
        assert again.evicted_classes == ("run",)
        add(again, ["run"])
        assert list(again.emptied) == ["sit"]
        assert not again.evicted_classes
    with Datastore.open(store.folder, read_only=True) as reader:
        assert reader.emptied == ("sit",)


class BadSpot(Storage):
    """A card that cannot read one slot any more, and refuses to write another."""

    def read(self, name: str, size: int, offset: int) -> bytes:
        spot = HEADER_BYTES + 2 * slot_bytes(DIM, 3) + 10
        if name == "entries.npy" and offset <= spot < offset + size:
            raise OSError(errno.EIO, "Input/output error")
        return super().read(name, size, offset)

    def write(self, name: str, data: bytes | bytearray | memoryview, offset: int) -> None:
        if name == "entries.npy" and offset == HEADER_BYTES + 4 * slot_bytes(DIM, 3):
            raise DatastoreError("cannot write: Input/output error")
        super().write(name, data, offset)


class OnBadCard(Datastore):
    _storage_class = BadSpot


def test_a_sector_that_cannot_be_read_costs_its_slot_alone(create: Creator) -> None:
    with create(capacity=6) as store:
        add(store, ["run"] * 4)
    with OnBadCard.open(store.folder) as again:
        assert sequences_by_age(again) == [1, 2, 4]
        assert again.damaged == 1
        (block,) = again.read_blocks(np.array([0, 1]))
        assert block.sequences.tolist() == [1, 2]


def test_a_write_that_the_medium_refuses_is_an_error_and_the_rest_goes_on(create: Creator) -> None:
    with create(capacity=6) as store:
        add(store, ["run"] * 2)
    with OnBadCard.open(store.folder) as again:
        add(again, ["sit"], seed=1)  # over what cannot be read: the damaged slot comes first
        add(again, ["sit"], seed=2)
        with pytest.raises(DatastoreError, match="Input/output error"):
            add(again, ["sit"], seed=3)
        again.refresh()
        assert sequences_by_age(again)[:2] == [1, 2]
        assert len(again) == 3
    with Datastore.open(store.folder) as last:
        assert len(last) == 4


def test_a_closed_store_holds_no_descriptor_and_says_that_it_is_closed(create: Creator) -> None:
    store = create()
    add(store, ["run"])

    def held() -> list[str]:
        links = [Path("/proc/self/fd", number) for number in os.listdir("/proc/self/fd")]
        return [
            str(link.readlink()) for link in links if link.is_symlink() and str(store.folder) in str(link.readlink())
        ]

    assert held()
    store.close()
    store.close()
    assert held() == []
    for use in (lambda: add(store, ["run"]), store.refresh, lambda: list(store.read_blocks()), store.sync):
        with pytest.raises(DatastoreError, match="was closed"):
            use()
