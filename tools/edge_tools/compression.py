"""Compression of a datastore: search the memories that fit a budget, judge them held out, and put the best in place.

A compressed datastore is a datastore: the same folder with `prototypes.npz` in it and a small `entries.npy` for what is
learnt from then on. It is built beside the original and changes places with it in one step.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edge_sdk import ConfigError, Datastore, DatastoreError
from edge_sdk.datastore.folder import build_folder
from edge_sdk.datastore.manifest import Manifest
from edge_sdk.datastore.rebuild import exchange_folders
from edge_sdk.datastore.storage import PROTOTYPES
from edge_sdk.protonn import Prototypes
from edge_sdk.prototypes_file import projection_bytes, prototypes_bytes
from edge_tools.judging import FOLDS, Judge, Judgement
from edge_tools.memories import DEFAULT_LEARNING, Entries, Kernel, Recipe, make_memory

DEFAULT_TAIL = 32
"""Entries that a compressed datastore keeps exactly, the newest."""

FEWEST_ENTRIES = 8
"""Fewer cannot be judged held out."""

_DIMS = (8, 16, 24, 32, 48, 64, 96, 128)
_LEARNT_DIMS = (16, 24, 48, 96)
_SHARES = (1.0, 0.5, 0.25, 0.125)  # of the budget: the frontier below it
_JUDGED_ENTRIES = 2400  # entries times folds; above, fewer folds are held out


@dataclass(frozen=True)
class Sizes:
    """Bytes that do not depend on the recipe, and the widths that it starts from."""

    fixed: int
    """Of the compressed folder without its prototypes.npz: lock, manifest, header and tail."""

    n: int
    dim: int
    n_present: int
    """Classes with an entry."""

    def memory(self, recipe: Recipe) -> int:
        """Of prototypes.npz."""
        m = self.n if recipe.method == "keys" else recipe.n_prototypes
        if recipe.dim is None:
            return prototypes_bytes(m, self.dim, key_dtype=recipe.key_dtype)
        return prototypes_bytes(m, recipe.dim, key_dtype=recipe.key_dtype, projected_from=self.dim)

    def projection(self, recipe: Recipe) -> int:
        """What of it is the projection."""
        return 0 if recipe.dim is None else projection_bytes(recipe.dim, self.dim)


@dataclass(frozen=True)
class Point:
    """One judged memory: its price and what it gives."""

    judgement: Judgement
    memory_bytes: int
    """Of prototypes.npz."""

    total_bytes: int
    """Of the whole folder."""

    bytes_without_projection: int
    """Of the whole folder, if the model file carried the projection for all devices."""


@dataclass(frozen=True)
class Search:
    """What was looked at."""

    points: list[Point]
    original_bytes: int
    original: Judgement
    """The full store, its keys as stored."""

    def best(self, budget: int) -> Point | None:
        """The most accurate within the budget; of equals the one of lower log-loss, then the smaller."""
        fitting = [point for point in self.points if point.total_bytes <= budget]
        return max(fitting, key=_merit, default=None)

    def smallest(self) -> Point:
        """The nearest possible where nothing fits."""
        return min(self.points, key=lambda point: (point.total_bytes, -point.judgement.accuracy))

    def frontier(self) -> list[Point]:
        """The points that no smaller one equals, by bytes."""
        found: list[Point] = []
        for point in sorted(self.points, key=lambda point: (point.total_bytes, -point.judgement.accuracy)):
            if not found or point.judgement.accuracy > found[-1].judgement.accuracy:
                found.append(point)
        return found


def _merit(point: Point) -> tuple[float, float, int]:
    return point.judgement.accuracy, -point.judgement.log_loss, -point.total_bytes


def folder_bytes(folder: Path) -> int:
    """Sizes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def read_entries(store: Datastore) -> Entries:
    """All entries of a store, oldest first.

    Raises:
        DatastoreError: it is compressed already.
        ConfigError: too few entries to judge anything.
    """
    if (store.folder / PROTOTYPES).exists():
        raise DatastoreError(f"{store.folder}: compressed already; compress the original, or a store with new entries")
    if len(store) < FEWEST_ENTRIES:
        raise ConfigError(
            f"{store.folder}: {len(store)} entries, at least {FEWEST_ENTRIES} are needed to judge a compression"
        )
    slots = store.table.order
    return Entries(store.embeddings(slots), store.table.labels[slots].astype(np.int64), store.probabilities(slots))


def sizes_of(store: Datastore, entries: Entries, *, tail: int) -> Sizes:
    """What the compressed folder will take besides its memory."""
    with tempfile.TemporaryDirectory(prefix="edge-sdk-") as folder:  # measured: the one count that cannot be wrong
        build_folder(Path(folder) / "empty", _compressed_manifest(store, tail))
        fixed = folder_bytes(Path(folder) / "empty")
    return Sizes(fixed, len(entries.labels), store.dim, len(np.unique(entries.labels)))


def candidates(sizes: Sizes, budget: int, *, kernel: Kernel, seed: int = 0) -> list[Recipe]:
    """What to look at: all entries rounded and projected, and fewer ones at the budget and at fractions of it.

    Args:
        sizes: of the store.
        budget: bytes for the whole folder.
        kernel: of the full store.
        seed: of k-means and training.
    """
    dims = [dim for dim in _DIMS if dim < min(sizes.dim, sizes.n)]
    recipes = [Recipe("keys", key_dtype=dtype, kernel=kernel) for dtype in ("float16", "int8")]
    recipes += [Recipe("keys", dim, kernel=kernel) for dim in dims]
    for dim in (*(dim for dim in dims if dim in _LEARNT_DIMS), None):
        for share in _SHARES:
            n_prototypes = _fitting(sizes, dim, share * max(0, budget - sizes.fixed))
            if n_prototypes < sizes.n_present:
                continue
            for method in ("kept entries", "k-means", "protonn"):
                most = {"kept entries": sizes.n - 1, "k-means": sizes.n // 2}.get(method, _most_learnt(sizes))
                recipes.append(Recipe(method, dim, min(n_prototypes, most), kernel=kernel, seed=seed))
    smallest = min((dim for dim in dims), default=None)
    recipes.append(Recipe("protonn", smallest, sizes.n_present, kernel=kernel, seed=seed))
    return [
        recipe for recipe in dict.fromkeys(recipes) if recipe.method == "keys" or recipe.n_prototypes >= sizes.n_present
    ]


def _most_learnt(sizes: Sizes) -> int:
    return max(sizes.n_present, sizes.n // DEFAULT_LEARNING.entries_per_prototype)


def _fitting(sizes: Sizes, dim: int | None, n_bytes: float) -> int:
    """Most int8 prototypes of a width whose file, projection included, takes `n_bytes`."""
    width = sizes.dim if dim is None else dim
    overhead = prototypes_bytes(0, width, projected_from=None if dim is None else sizes.dim)
    each = prototypes_bytes(1, width) - prototypes_bytes(0, width)
    return max(0, int((n_bytes - overhead) // each))


def search(entries: Entries, recipes: Iterable[Recipe], sizes: Sizes, *, original_bytes: int, kernel: Kernel) -> Search:
    """Judge all recipes on entries held out of the store.

    Args:
        entries: of the store.
        recipes: from `candidates` (an iterator with a progress bar will do).
        sizes: of the store.
        original_bytes: of the original folder.
        kernel: of the full store.
    """
    judge = Judge(entries, n_rounds=int(np.clip(_JUDGED_ENTRIES // len(entries.labels), 1, FOLDS)))
    original = judge.judge(Recipe("keys", key_dtype="float32", kernel=kernel))
    return Search(list(_points(judge, recipes, sizes)), original_bytes, original)


def _points(judge: Judge, recipes: Iterable[Recipe], sizes: Sizes) -> Iterator[Point]:
    for recipe in recipes:
        memory = sizes.memory(recipe)
        total = sizes.fixed + memory
        yield Point(judge.judge(recipe), memory, total, total - sizes.projection(recipe))


def final_memory(point: Point, entries: Entries, store: Datastore) -> Prototypes:
    """The chosen memory, made of all entries."""
    return replace(
        make_memory(point.judgement.recipe, entries),
        interpolation_weight=point.judgement.interpolation_weight,
        fingerprint=store.manifest.fingerprint,
        newest_sequence=int(store.table.sequences.max()),
    )


def write_beside(store: Datastore, memory: Prototypes, folder: Path, *, tail: int) -> int:
    """Write the compressed datastore to a folder of its own; the original is only read.

    Args:
        store: the original.
        memory: what stands for its entries.
        folder: made; one that an earlier compression left is replaced.
        tail: capacity for what is learnt from now on.

    Returns:
        Bytes of all its files.

    Raises:
        DatastoreError: something else has that name, or the medium refuses.
    """
    if folder.exists():
        if not (folder / PROTOTYPES).is_file():
            raise DatastoreError(
                f"{folder}: is in the way and no compressed datastore; move it, or name another with --output"
            )
        shutil.rmtree(folder)
    build_folder(folder, _compressed_manifest(store, tail))
    memory.save(folder / PROTOTYPES)
    return folder_bytes(folder)


def put_in_place(store: Datastore, memory: Prototypes, *, tail: int) -> int:
    """Replace a datastore by its compressed form in one step; until then the original is untouched.

    Returns:
        Bytes of all its files.

    Raises:
        DatastoreError: entries were added meanwhile, or the system refuses. The original is as it was.
    """
    beside = store.folder.with_name(f".{store.folder.name}.{os.getpid()}.compress")
    with store.lock, store.exclusive():
        store.refresh()
        if int(store.table.sequences.max(initial=0)) != memory.newest_sequence:
            raise DatastoreError(f"{store.folder}: entries were learnt while it was compressed; compress it again")
        try:
            n_bytes = write_beside(store, memory, beside, tail=tail)
            exchange_folders(beside, store.folder)
            store.tell_replaced()
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return n_bytes


def _compressed_manifest(store: Datastore, tail: int) -> Manifest:
    """The same store with room for the tail, its blend untuned (the memory brings its λ_m)."""
    newest = max(store.manifest.highest_sequence, int(store.table.sequences.max(initial=0)))
    return replace(
        store.manifest, capacity=tail, policy="fifo", interpolation=None, highest_sequence=newest, extensions={}
    )
