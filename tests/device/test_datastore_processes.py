"""The datastore between processes and threads: one writer, any number of readers, nobody in the way for long."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edge_sdk.datastore import HEADER_BYTES, Datastore, slot_bytes
from edge_sdk.datastore.rebuild import exchange_folders
from edge_sdk.errors import DatastoreError, DatastoreLockedError
from edge_sdk.model import InputSpec, ModelMetadata

DIM = 16
MODEL = ModelMetadata(("run", "sit", "walk"), InputSpec("input", (DIM,)), DIM, "f" * 64, graph_crc32=0)
EVEN = np.full((1, 3), 1 / 3, np.float32)

_PRELUDE = """
import os, sys, time
import numpy as np
from edge_sdk.datastore import Datastore
from edge_sdk.errors import EdgeSDKError
folder = sys.argv[1]
EVEN = np.full((1, 3), 1 / 3, np.float32)
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    """A process that runs `script` after the prelude."""
    command = [sys.executable, "-c", _PRELUDE + script, *(str(argument) for argument in arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def said(process: subprocess.Popen[str]) -> str:
    """What the process printed in its life, which must have ended well."""
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    return output.strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty datastore of 3000 slots."""
    Datastore.create(tmp_path / "me.store", model=MODEL, capacity=3000).close()
    return tmp_path / "me.store"


_ADD_500 = """
with Datastore.open(folder, lock_wait=float(sys.argv[3])) as store:
    first = float(sys.argv[2])
    for i in range(0, 500, 10):
        store.add(np.full((10, 16), first, np.float32), ["run"] * 10, np.repeat(EVEN, 10, 0), sync=False)
"""


def test_four_processes_that_write_at_once_lose_nothing(folder: Path) -> None:
    processes = [start(_ADD_500, folder, number, 60) for number in range(4)]
    for process in processes:
        said(process)
    with Datastore.open(folder) as store:
        order = store.table.order
        assert store.table.sequences[order].tolist() == list(range(1, 2001))
        assert np.bincount(store.embeddings(order)[:, 0].astype(int)).tolist() == [500] * 4


_ALL_OR_NOTHING = """
with Datastore.open(folder, lock_wait=0) as store:
    try:
        with store.exclusive():
            for i in range(50):
                store.add(np.ones((10, 16), np.float32), ["run"] * 10, np.repeat(EVEN, 10, 0), sync=False)
                time.sleep(0.002)
        print("all")
    except EdgeSDKError as error:
        print(error)
"""


def test_without_waiting_a_process_adds_everything_or_names_the_holder(folder: Path) -> None:
    processes = [start(_ALL_OR_NOTHING, folder) for _ in range(4)]
    answers = [said(process) for process in processes]
    numbers = [process.pid for process in processes]
    done = answers.count("all")
    assert done >= 1
    assert all(
        any(f"process {number} is writing" in answer for number in numbers) for answer in answers if answer != "all"
    )
    with Datastore.open(folder) as store:
        assert len(store) == 500 * done


def test_a_waiting_writer_gets_its_turn_and_a_refusal_changes_nothing(folder: Path) -> None:
    with Datastore.open(folder) as holder, Datastore.open(folder, lock_wait=0) as hasty:
        with (
            holder.exclusive(),
            pytest.raises(DatastoreLockedError, match=rf"process {os.getpid()} is writing, waited 0 s"),
        ):
            hasty.add(np.ones((1, DIM), np.float32), ["run"], EVEN)
        assert len(hasty) == 0
        hasty.add(np.ones((1, DIM), np.float32), ["run"], EVEN)


def test_the_lock_of_a_killed_process_is_free(folder: Path) -> None:
    holder = start(
        "store = Datastore.open(folder)\nwith store.exclusive():\n    print('ready', flush=True)\n    time.sleep(60)",
        folder,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "ready\n"
    with Datastore.open(folder, lock_wait=0) as store:
        with pytest.raises(DatastoreLockedError, match=f"process {holder.pid} "):
            store.add(np.ones((1, DIM), np.float32), ["run"], EVEN)
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
        assert store.add(np.ones((1, DIM), np.float32), ["run"], EVEN).tolist() == [1]


_WRITE_PLANTED = """
with Datastore.open(folder) as store:
    print("ready", flush=True)
    for i in range(int(sys.argv[2])):
        label = i % 3
        key = np.full((1, 16), 100.0 * label, np.float32)
        key[0, 0] += i % 7
        store.add(key, [("run", "sit", "walk")[label]], EVEN, sync=False)
"""


def test_a_reader_never_sees_half_an_entry_while_another_process_learns(tmp_path: Path) -> None:
    """Keys of a class lie around 100 times its number, so a key that does not fit its label was torn."""
    folder = tmp_path / "small.store"
    Datastore.create(folder, model=MODEL, capacity=10)  # no multiple of 3: a slot changes its label every time.close()
    n_learns = 10_000
    writer = start(_WRITE_PLANTED, folder, n_learns)
    assert writer.stdout is not None
    writer.stdout.readline()
    reads = wrong = 0
    with Datastore.open(folder, read_only=True) as reader:
        while writer.poll() is None or reader.refresh():
            with reader.lock:
                reader.refresh()
                slots = reader.table.order
                labels, keys = reader.table.labels[slots], reader.embeddings(slots)
                sequences = reader.table.sequences[slots].astype(np.int64)
                if reader.overwritten(slots):
                    continue
            reads += 1
            fits = np.abs(keys - 100.0 * labels[:, None]).max(axis=1, initial=0.0) <= 6.0
            right = labels == (sequences - 1) % 3
            wrong += int((~fits).sum() + (~right).sum())
        assert wrong == 0
        assert reads > 10
        assert reader.table.newest == n_learns
    said(writer)


def test_a_notice_that_came_while_another_was_acted_upon_is_not_overlooked(folder: Path) -> None:
    with Datastore.open(folder) as store, Datastore.open(folder, read_only=True) as reader:
        for _ in range(2):
            store.add(np.ones((1, DIM), np.float32), ["run"], EVEN)
        notices = reader._view.notices
        assert notices is not None
        notices.advance(notices.seen + 1)
        assert not notices.quiet()
        assert reader.overwritten(np.array([1]))
        assert reader.refresh()
        assert notices.quiet()


def test_an_entry_whose_writer_died_between_notice_and_slot_is_set_aside_and_settled(folder: Path) -> None:
    with Datastore.open(folder) as store, Datastore.open(folder, read_only=True) as reader:
        store.add(np.ones((3, DIM), np.float32), ["run"] * 3, np.repeat(EVEN, 3, 0))
        reader.refresh()
        notices = store._view.notices
        assert notices is not None
        with store.exclusive():
            # What a writer does before it is killed: it tells that slot 1 gets entry 4, and half of the slot arrives.
            store._announce(4, 1, 1)
            half = slot_bytes(DIM, 3) // 2
            store._storage.write("entries.npy", b"\x01" * half, HEADER_BYTES + slot_bytes(DIM, 3) + half)
            assert reader.refresh()
            assert reader.table.sequences[:3].tolist() == [1, 0, 3]
            assert reader.damaged == 0  # it may still arrive
        assert reader.refresh()
        assert reader.damaged == 1
        assert reader.table.sequences[:3].tolist() == [1, 0, 3]
    with Datastore.open(folder) as next_writer:
        assert next_writer.damaged == 1
        assert next_writer.add(np.ones((1, DIM), np.float32), ["sit"], EVEN).tolist() == [5]
        assert next_writer.table.sequences[:3].tolist() == [1, 5, 3]


_FORK = """
import signal
with Datastore.open(folder, lock_wait=0) as store:
    with store.exclusive():
        pass
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        with store.exclusive():
            os.write(write_end, b"held")
            time.sleep(60)
    os.read(read_end, 4)
    try:
        store.add(np.ones((1, 16), np.float32), ["run"], EVEN)
    except EdgeSDKError as error:
        print("refused" if f"process {child} is writing" in str(error) else error)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print(store.add(np.ones((1, 16), np.float32), ["run"], EVEN).tolist())
"""


def test_a_forked_child_does_not_share_its_parents_lock(folder: Path) -> None:
    assert said(start(_FORK, folder)).splitlines() == ["refused", "[1]"]


def test_threads_share_one_datastore(folder: Path) -> None:
    errors: list[BaseException] = []

    def learn(label: int) -> None:
        try:
            for _ in range(100):
                store.add(np.full((1, DIM), label, np.float32), [MODEL.classes[label]], EVEN, sync=False)
                with store.lock:
                    slots = store.table.order
                    assert (store.embeddings(slots)[:, 0] == store.table.labels[slots]).all()
        except BaseException as error:  # noqa: BLE001 - shown below, in the thread that asserts
            errors.append(error)

    with Datastore.open(folder) as store:
        threads = [threading.Thread(target=learn, args=(label,)) for label in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        assert store.table.counts == [100, 100, 100]
    with Datastore.open(folder) as again:
        order = again.table.order
        assert again.table.sequences[order].tolist() == list(range(1, 301))
        assert (again.embeddings(order)[:, 0] == again.table.labels[order]).all()


def test_a_store_put_in_the_place_of_another_is_noticed(folder: Path, tmp_path: Path) -> None:
    other = ModelMetadata(MODEL.classes, MODEL.input, DIM, "0" * 64, graph_crc32=0)
    with Datastore.open(folder) as reader:
        os.replace(folder, tmp_path / "away")
        Datastore.create(folder, model=other, capacity=3).close()
        reader._view.next_look = 0.0  # instead of waiting for a second
        with pytest.raises(DatastoreError, match="replaced while it was open"):
            reader.refresh()


def replace_by_another_store(folder: Path) -> None:
    Datastore.create(folder, model=MODEL, capacity=300).close()


@pytest.mark.parametrize("recreate", [lambda folder: None, replace_by_another_store])
def test_a_learn_into_a_deleted_store_fails_and_so_does_every_later_call(
    folder: Path, recreate: Callable[[Path], None]
) -> None:
    ones = np.ones((1, DIM), np.float32)
    store = Datastore.open(folder)
    store.add(ones, ["run"], EVEN)
    shutil.rmtree(folder)
    recreate(folder)
    for call in (
        lambda: store.add(ones, ["run"], EVEN),
        lambda: store.add(ones, ["run"], EVEN, sync=False),
        lambda: store.add(np.ones((9, DIM), np.float32), ["run"] * 9, np.repeat(EVEN, 9, axis=0)),
        lambda: store.save_interpolation({"interpolation_weight": 0.5}),
        lambda: store.forget(label="run"),
        store.refresh,
        store.sync,
    ):
        with pytest.raises(DatastoreError, match="was deleted, moved or replaced while it was open"):
            call()
    store.close()
    if folder.exists():
        with Datastore.open(folder) as other:
            assert len(other) == 0
            assert other.interpolation is None


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.save_interpolation({"interpolation_weight": 0.5}),
        lambda store: store.forget(before=5),
        lambda store: store.keep_inputs(9999, shape=(DIM,), dtype="float32"),
    ],
)
def test_nothing_is_changed_in_a_store_that_was_put_in_the_place_of_another(
    folder: Path, change: Callable[[Datastore], object]
) -> None:
    with Datastore.open(folder) as store:
        shutil.rmtree(folder)
        replace_by_another_store(folder)
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        with pytest.raises(DatastoreError, match="replaced while it was open"):
            change(store)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == files


def test_an_unsynced_learn_into_a_deleted_store_fails_when_it_is_closed(folder: Path) -> None:
    store = Datastore.open(folder)
    store.add(np.ones((1, DIM), np.float32), ["run"], EVEN, sync=False)
    shutil.rmtree(folder)
    with pytest.raises(DatastoreError, match="was deleted"):
        store.close()
    store.close()


def test_a_store_that_goes_on_in_another_folder_is_taken_up(folder: Path, tmp_path: Path) -> None:
    ones = np.ones((1, DIM), np.float32)
    with Datastore.open(folder) as store, Datastore.open(folder) as reader:
        store.add(ones, ["run"], EVEN)
        with store.exclusive():
            shutil.copytree(folder, tmp_path / "beside")
            exchange_folders(tmp_path / "beside", folder)
            store.tell_replaced()
            shutil.rmtree(tmp_path / "beside")
        with Datastore.open(folder) as new:
            new.add(ones, ["sit"], EVEN)
        assert reader.refresh()
        assert len(reader) == 2
        store.add(ones, ["run"], EVEN)
        reader.refresh()
        assert len(store) == len(reader) == 3


def test_a_writer_that_waited_for_a_store_to_be_replaced_comes_again(folder: Path, tmp_path: Path) -> None:
    ones = np.ones((1, DIM), np.float32)
    with Datastore.open(folder) as store, Datastore.open(folder) as other:
        shutil.copytree(folder, tmp_path / "beside")
        exchange_folders(tmp_path / "beside", folder)
        store.tell_replaced()
        shutil.rmtree(tmp_path / "beside")
        with pytest.raises(DatastoreError, match="try again"):
            other.add(ones, ["run"], EVEN)
        other.add(ones, ["run"], EVEN)
        with Datastore.open(folder) as new:
            assert len(new) == 1


def test_a_removed_lock_file_is_noticed_by_writers_and_readers(folder: Path) -> None:
    with Datastore.open(folder) as one, Datastore.open(folder) as two, Datastore.open(folder, read_only=True) as reader:
        (folder / "lock").unlink()
        for store in (one, two, reader):
            store._view.next_look = 0.0
        one.add(np.ones((1, DIM), np.float32), ["run"], EVEN)
        two.add(np.ones((1, DIM), np.float32), ["run"], EVEN)
        reader.refresh()
        assert len(reader) == len(two) == 2
