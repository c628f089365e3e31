"""edge-sdk compress: the search, the sizes it promises, the folder it leaves, and its exit codes."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from edge_sdk import ConfigError, Datastore, DatastoreError, InputSpec, ModelMetadata
from edge_sdk.protonn import Prototypes
from edge_tools.commands.compress import compress_command
from edge_tools.compression import (
    FEWEST_ENTRIES,
    candidates,
    folder_bytes,
    put_in_place,
    read_entries,
    search,
    sizes_of,
)
from edge_tools.judging import age_folds
from edge_tools.memories import DEFAULT_KERNEL, Entries, Recipe, fit_projection, make_memory, most_useful

CLASSES = ("left", "right", "up")
DIM, N = 40, 90

app = typer.Typer()
app.command()(compress_command)


class Run(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


def examples(n: int = N, *, seed: int = 0) -> Entries:
    """Three groups in a few of the dimensions, every tenth entry labelled wrong; the global model knows nothing."""
    random = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    embeddings = random.standard_normal((n, DIM)) * np.linspace(1.0, 0.05, DIM) + 3.0 * np.eye(3, DIM)[labels]
    labels[::10] = (labels[::10] + 1) % 3
    return Entries(embeddings.astype(np.float32), labels, np.full((n, 3), 1 / 3, np.float32))


def make_store(folder: Path, n: int = N) -> Path:
    """A store with `n` entries."""
    model = ModelMetadata(
        classes=CLASSES, input=InputSpec(name="x", shape=(DIM,)), dim=DIM, fingerprint="ab" * 32, graph_crc32=0
    )
    entries = examples(n)
    with Datastore.create(folder, model=model, capacity=200) as store:
        store.add(entries.embeddings, [CLASSES[label] for label in entries.labels], entries.probabilities)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_store(tmp_path / "me.store")


@pytest.fixture
def store(folder: Path) -> Iterator[Datastore]:
    with Datastore.open(folder) as store:
        yield store


def run(*arguments: object) -> Run:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Run(result.exit_code, result.stdout, result.stderr)


def test_the_result_lies_beside_the_original_which_stays(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != "lock"}
    done = run(folder, "--budget", "64KB", "--json")
    assert done.code == 0, done.err
    chosen = json.loads(done.out)["chosen"]
    beside = folder.with_name("me.store.compressed")
    assert folder_bytes(beside) == chosen["total_bytes"] <= 64 * 1024
    assert (beside / "prototypes.npz").stat().st_size == chosen["memory_bytes"]
    assert all((folder / name).read_bytes() == content for name, content in before.items())
    assert "--yes" in done.err


def test_confirmed_the_compressed_store_takes_the_originals_place(folder: Path) -> None:
    assert run(folder, "--budget", "64KB", "--yes").code == 0
    with Datastore.open(folder) as store:
        assert (len(store), store.capacity, store.highest_sequence) == (0, 32, N)
        memory = Prototypes.load(folder / "prototypes.npz", fingerprint=store.manifest.fingerprint)
    assert (memory.n_entries, memory.newest_sequence) == (N, N)
    test = examples(seed=1)
    assert (memory.probabilities(test.embeddings, 3).argmax(axis=1) == test.labels).mean() > 0.75
    assert [path.name for path in folder.parent.iterdir()] == ["me.store"]


def test_nothing_fits_ends_with_3_and_names_the_nearest_possible(folder: Path) -> None:
    done = run(folder, "--budget", "4KB", "--yes")
    assert done.code == 3
    assert "nearest possible is" in done.err
    assert not (folder / "prototypes.npz").exists()


def test_an_accuracy_out_of_reach_ends_with_3_and_writes_nothing(folder: Path) -> None:
    done = run(folder, "--budget", "64KB", "--min-accuracy", "1.0")
    assert done.code == 3
    assert "nearest possible is" in done.err
    assert not folder.with_name("me.store.compressed").exists()


def test_every_promised_size_is_the_size_written(store: Datastore, tmp_path: Path) -> None:
    entries = read_entries(store)
    sizes = sizes_of(store, entries, tail=8)
    for recipe in candidates(sizes, 48 * 1024, kernel=DEFAULT_KERNEL):
        memory = make_memory(recipe, entries)
        assert memory.file_bytes <= sizes.memory(recipe), recipe  # duplicates of points make fewer prototypes
        assert memory.projection_bytes == sizes.projection(recipe), recipe


def test_candidates_at_the_budget_fit_it(store: Datastore) -> None:
    sizes = sizes_of(store, read_entries(store), tail=8)
    recipes = candidates(sizes, 48 * 1024, kernel=DEFAULT_KERNEL)
    assert {recipe.method for recipe in recipes} == {"keys", "kept entries", "k-means", "protonn"}
    assert all(
        sizes.fixed + sizes.memory(recipe) <= 48 * 1024
        for recipe in recipes
        if recipe.method not in ("keys",) and recipe.n_prototypes > sizes.n_present
    )


def test_the_frontier_rises_with_the_bytes(store: Datastore) -> None:
    entries = read_entries(store)
    sizes = sizes_of(store, entries, tail=8)
    recipes = [Recipe("keys", dim) for dim in (2, 8, 24)] + [Recipe("protonn", 8, 6), Recipe("kept entries", 8, 6)]
    found = search(entries, recipes, sizes, original_bytes=1, kernel=DEFAULT_KERNEL)
    frontier = found.frontier()
    assert all(
        small.total_bytes < large.total_bytes and small.judgement.accuracy < large.judgement.accuracy
        for small, large in itertools.pairwise(frontier)
    )
    best = found.best(1 << 20)
    assert best is not None
    assert best.judgement.accuracy == max(point.judgement.accuracy for point in found.points)


def test_random_labels_get_no_interpolation_weight(store: Datastore) -> None:
    entries = read_entries(store)
    shuffled = entries._replace(labels=np.random.default_rng(0).permutation(entries.labels))
    sizes = sizes_of(store, entries, tail=8)
    found = search(shuffled, [Recipe("protonn", 8, 9)], sizes, original_bytes=1, kernel=DEFAULT_KERNEL)
    assert found.points[0].judgement.interpolation_weight < 0.25


def test_a_shared_projection_is_left_to_the_model_file(store: Datastore) -> None:
    entries = read_entries(store)
    shared = fit_projection(examples(seed=5).embeddings, 16)
    memory = make_memory(Recipe("protonn", 8, 6), entries, shared=shared)
    assert memory.projection is None
    assert memory.dim == 8
    assert memory.file_bytes < make_memory(Recipe("protonn", 8, 6), entries).file_bytes


def test_entries_learnt_meanwhile_stop_the_replacement(store: Datastore) -> None:
    memory = make_memory(Recipe("keys"), read_entries(store))
    with pytest.raises(DatastoreError, match="compress it again"):
        put_in_place(store, memory, tail=8)  # made of entries up to 0, says its newest sequence
    assert len(store) == N


def test_a_compressed_store_and_one_with_few_entries_are_refused(folder: Path, tmp_path: Path) -> None:
    run(folder, "--budget", "64KB", "--yes")
    with pytest.raises(DatastoreError, match="compressed already"):
        run(folder, "--budget", "64KB")
    with pytest.raises(ConfigError, match=f"at least {FEWEST_ENTRIES}"):
        run(make_store(tmp_path / "few.store", 5), "--budget", "64KB")


def test_a_folder_in_the_way_is_left_alone(folder: Path) -> None:
    beside = folder.with_name("me.store.compressed")
    beside.mkdir()
    (beside / "letter.txt").write_text("keep me")
    with pytest.raises(DatastoreError, match="in the way"):
        run(folder, "--budget", "64KB")
    assert (beside / "letter.txt").read_text() == "keep me"


def test_the_picture_is_drawn(folder: Path, tmp_path: Path) -> None:
    assert run(folder, "--budget", "64KB", "--plot", tmp_path / "frontier.png").code == 0
    assert (tmp_path / "frontier.png").read_bytes().startswith(b"\x89PNG")


def test_budget_that_is_none_is_wrong_usage(folder: Path) -> None:
    assert run(folder, "--budget", "64XB").code == 2


def test_folds_are_blocks_in_time_and_small_classes_spread() -> None:
    labels = np.array([0] * 8 + [1] * 2 + [2])
    folds = age_folds(labels, 4)
    np.testing.assert_array_equal(folds[:8], [0, 0, 1, 1, 2, 2, 3, 3])
    assert len(set(folds[8:10].tolist())) == 2


def test_condensation_keeps_every_class_and_the_number_asked_for() -> None:
    entries = examples()
    kept = most_useful(entries.embeddings, entries.labels, 10)
    assert len(set(kept.tolist())) == 10
    assert set(entries.labels[kept].tolist()) == {0, 1, 2}
    np.testing.assert_array_equal(most_useful(entries.embeddings, entries.labels, N), np.arange(N))
