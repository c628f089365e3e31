"""What every way of compressing a memory costs in accuracy, on real users; `make bench-compress`.

The memory to be compressed is the paper's: k = 10, kernel exp(-d), λ_m held out, over float32 keys. Every other method
goes through the product's own recipes, is rounded as it would be on disk, gets its λ_m from entries held out of the
user's own, and is scored on windows or images that nobody has seen. Bytes are whole files, container and settings
included (about 900 bytes); "own" also carries its projection, "shared" leaves out one that was fitted on other users
and travels in the model file.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edge_sdk.interpolation import blend, winners
from edge_sdk.protonn import Prototypes
from edge_sdk.prototypes_file import prototypes_bytes
from edge_tools.benchmarks.cifar import cache_folder, data_folder, dirichlet_clients, read_encoding
from edge_tools.benchmarks.compress_speed import SpeedReport, measure_speed
from edge_tools.benchmarks.own_sets import own_set_rows
from edge_tools.judging import Judge, answer
from edge_tools.memories import (
    DEFAULT_LEARNING,
    Entries,
    Learning,
    Projection,
    Recipe,
    fit_projection,
    make_memory,
)
from edge_tools.output import print_json, print_table, say

N_CIFAR = 40
"""Clients that are compressed; the other 60 of the partition are the others that a shared projection is fitted on."""

REFERENCE = "float32 kNN"
"""What all others lose against."""


class Size(NamedTuple):
    """One size that is asked about."""

    ratio: int
    """Bytes of the float32 memory through those of the compressed one."""

    is_shared: bool
    """Whether the model file brings the projection."""


SIZES = (Size(32, is_shared=True), Size(95, is_shared=True), Size(16, is_shared=False))

WIDTHS = {"k-means": (64, 24, 24), "protonn": (96, 24, 48)}
"""Method -> width of the projection at each of `SIZES`, from `compress_choose`."""

_FOLDS = 3  # of which one is held out, for λ_m
_STUDENT = 2.776  # two-sided 95 % of Student's t with 4 degrees of freedom: five seeds


class User(NamedTuple):
    """One device."""

    learn: Entries
    test: Entries


class UserSet(NamedTuple):
    """The users of one data set, for one seed."""

    users: list[User]
    shared: Projection
    """PCA of other users' embeddings."""


@dataclass(frozen=True)
class Contender:
    """One row of the table."""

    name: str
    recipe: Callable[[Entries, int], Recipe]
    """The recipe for one user's entries and a seed."""

    is_shared: bool = False
    """Whether the projection is the model file's."""

    count: Callable[[Prototypes], tuple[int, int]] = lambda memory: (
        memory.file_bytes,
        memory.file_bytes - memory.projection_bytes,
    )
    """Bytes with and without the projection."""


@dataclass(frozen=True)
class Row:
    """What one contender reached."""

    name: str
    n_bytes: float
    """Mean over the users, projection included unless it is shared."""

    bytes_without_projection: float
    ratio: float
    """Bytes of the float32 memory through `n_bytes`."""

    accuracies: tuple[float, ...]
    """One a seed, sample-weighted over the users."""

    losses: tuple[float, ...]
    """Accuracy of the float32 memory minus this, one a seed, points."""


def main() -> None:
    """Run everything and print the tables, then one JSON line: set -> method -> [bytes, accuracy]."""
    parser = argparse.ArgumentParser(description="Accuracy of compressed memories on real users.")
    parser.add_argument("--data", type=Path, help="folder of the data sets (default: $EDGE_SDK_DATA)")
    parser.add_argument("--cache", type=Path, help="folder of cached encodings (default: ~/.cache/edge-sdk)")
    parser.add_argument("--seeds", type=int, default=5, choices=range(1, 21), metavar="1-20")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--methods", default="", help="only methods with one of these words, separated by commas")
    parser.add_argument(
        "--sets", default="wisdm,cifar,own,speed", help="which of wisdm, cifar, own, speed, separated by commas"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes; the table does not depend on it")
    arguments = parser.parse_args()
    data, cache = data_folder(arguments.data), cache_folder(arguments.cache)
    result: dict[str, Mapping[str, object]] = {}
    chosen = arguments.sets.split(",")
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    words = [word.strip() for word in arguments.methods.split(",")]
    rivals = [row for row in contenders() if row.name == REFERENCE or any(word in row.name for word in words)]
    if "wisdm" in chosen:
        watch = watch_users(data)
        result["wisdm"] = report("WISDM, 11 unseen users", lambda seed: watch, rivals, seeds=seeds, jobs=arguments.jobs)
    if "cifar" in chosen:
        encoding = read_encoding(data, cache)
        result["cifar"] = report(
            f"CIFAR-10 Dirichlet(0.3), {N_CIFAR} clients",
            lambda seed: cifar_users(encoding.embeddings, encoding.probabilities, encoding.labels, seed),
            [*rivals, *(row for row in published() if any(word in row.name for word in words))],
            seeds=seeds,
            jobs=arguments.jobs,
        )
    if "own" in chosen:
        result |= own_set_rows(seeds=arguments.seeds)
    if "speed" in chosen:
        speed = measure_speed()
        print_speed(speed)
        result["speed"] = speed.to_mapping()
    print_json(result)


def contenders() -> list[Contender]:
    """The methods at the sizes that are asked about."""

    def fixed(**settings: object) -> Callable[[Entries, int], Recipe]:
        return lambda entries, seed: Recipe(seed=seed, **settings)  # type: ignore[arg-type]

    rows = [
        Contender(REFERENCE, fixed(method="keys", key_dtype="float32")),
        Contender("float16 keys", fixed(method="keys", key_dtype="float16")),
        Contender("int8 keys", fixed(method="keys", key_dtype="int8")),
        Contender("PCA-32 int8 keys, own", fixed(method="keys", dim=32)),
        Contender("PCA-32 int8 keys, shared", fixed(method="keys", dim=32), is_shared=True),
    ]
    for number, (ratio, is_shared) in enumerate(SIZES):
        for method in ("kept entries", "k-means", "protonn"):
            dim = WIDTHS.get(method, WIDTHS["k-means"])[number]
            name = f"{method} {ratio}x, {'shared' if is_shared else 'own'} PCA-{dim}"
            rows.append(Contender(name, sized(method, ratio, dim, is_shared=is_shared), is_shared=is_shared))
    for method in ("k-means", "protonn"):
        rows.append(Contender(f"{method} 16x, no projection", sized(method, 16, None)))
    return rows


def published() -> list[Contender]:
    """The paper's settings: n/3 prototypes and 1000 of 1280 dimensions, all float32 (here 200 of 256)."""
    learning = DEFAULT_LEARNING._replace(epochs=60)  # so many prototypes take 3 ms a batch

    def recipe(entries: Entries, seed: int) -> Recipe:
        n_prototypes = len(entries.labels) // 3
        return Recipe("protonn", dim=200, n_prototypes=n_prototypes, key_dtype="float32", seed=seed, learning=learning)

    def count(memory: Prototypes) -> tuple[int, int]:
        m, width = memory.keys.shape
        without = 4 * m * (width + 10)  # soft labels: a number for each of the 10 classes
        return without + 4 * width * memory.dim, without

    return [Contender("published: n/3 x 200 float32, own W", recipe, count=count)]


def sized(
    method: str,
    ratio: float,
    dim: int | None,
    *,
    is_shared: bool = False,
    learning: Learning = DEFAULT_LEARNING,
) -> Callable[[Entries, int], Recipe]:
    """As many prototypes as fit in 1/ratio of the user's float32 memory; of learnt ones no more than `learning`
    allows.
    """

    def recipe(entries: Entries, seed: int) -> Recipe:
        n, width = entries.embeddings.shape
        d = width if dim is None else min(dim, width)
        overhead = prototypes_bytes(0, d, projected_from=None if dim is None or is_shared else width)
        each = prototypes_bytes(1, d) - prototypes_bytes(0, d)
        most = n // learning.entries_per_prototype if method == "protonn" else n
        fitting = int((raw_bytes(n, width) / ratio - overhead) // each)
        return Recipe(method, dim=dim, n_prototypes=max(1, min(fitting, most)), seed=seed, learning=learning)

    return recipe


def raw_bytes(n: int, dim: int) -> int:
    """The float32 memory: every key and its label, 4 bytes each number, no container."""
    return n * (4 * dim + 4)


def report(
    title: str, users_of: Callable[[int], UserSet], rivals: Sequence[Contender], *, seeds: Sequence[int], jobs: int
) -> dict[str, object]:
    """Score all contenders, print the table, and give method -> [bytes, accuracy]."""
    rows = score(users_of, rivals, seeds=seeds, jobs=jobs)
    print_table(
        f"{title}: accuracy of the blend, {len(seeds)} seeds, 95 % interval",
        ("method", "bytes", "without W", "ratio", "accuracy %", "loss, points"),
        [
            (
                row.name,
                f"{row.n_bytes:.0f}",
                f"{row.bytes_without_projection:.0f}",
                f"{row.ratio:.1f}",
                f"{100 * float(np.mean(row.accuracies)):.2f}",
                with_interval(row.losses),
            )
            for row in rows
        ],
    )
    return {row.name: [round(row.n_bytes), round(float(np.mean(row.accuracies)), 4)] for row in rows}


def score(
    users_of: Callable[[int], UserSet], rivals: Sequence[Contender], *, seeds: Sequence[int], jobs: int = 1
) -> list[Row]:
    """All contenders over all seeds; the first is what the others lose against."""
    found: list[list[tuple[float, float, float]]] = [[] for _ in rivals]
    raw: list[float] = []
    with ProcessPoolExecutor(jobs) as pool:
        for seed in seeds:
            user_set = users_of(seed)
            raw.append(float(np.mean([raw_bytes(*user.learn.embeddings.shape) for user in user_set.users])))
            scores = pool.map(partial(_score_named, user_set=user_set, seed=seed), [rival.name for rival in rivals])
            for rival, before, score_of_seed in zip(rivals, found, scores, strict=True):
                before.append(score_of_seed)
                say(f"seed {seed}: {rival.name}: {100 * score_of_seed[0]:.2f} %, {score_of_seed[1]:.0f} bytes")
    rows = []
    for rival, of_seeds in zip(rivals, found, strict=True):
        accuracies, n_bytes, without = zip(*of_seeds, strict=True)
        losses = tuple(100.0 * (best[0] - own) for best, own in zip(found[0], accuracies, strict=True))
        mean_bytes = float(np.mean(n_bytes))
        rows.append(
            Row(rival.name, mean_bytes, float(np.mean(without)), float(np.mean(raw)) / mean_bytes, accuracies, losses)
        )
    return rows


def _score_named(name: str, *, user_set: UserSet, seed: int) -> tuple[float, float, float]:
    """`score_once` of a contender by name: its functions do not travel to another process."""
    return score_once(next(rival for rival in [*contenders(), *published()] if rival.name == name), user_set, seed)


def score_once(rival: Contender, user_set: UserSet, seed: int) -> tuple[float, float, float]:
    """Accuracy over all users' test samples, mean bytes, mean bytes without projection."""
    shared = user_set.shared if rival.is_shared else None
    right = total = 0
    n_bytes, without = [], []
    for user in user_set.users:
        recipe = rival.recipe(user.learn, seed)
        judge = Judge(user.learn, shared=shared, n_folds=_FOLDS, n_rounds=1)
        weight = judge.judge(recipe).interpolation_weight
        memory = make_memory(recipe, user.learn, shared=shared)
        rows = np.arange(len(user.test.labels))
        blended = blend(user.test.probabilities, answer(memory, user.test, rows, shared), interpolation_weight=weight)
        right += int((winners(blended, user.test.probabilities) == user.test.labels).sum())
        total += len(rows)
        counted = rival.count(memory)
        n_bytes.append(counted[0])
        without.append(counted[1])
    return right / total, float(np.mean(n_bytes)), float(np.mean(without))


def with_interval(values: Sequence[float]) -> str:
    """Mean and half the width of its 95 % interval (five seeds)."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return f"{mean:.2f}"
    return f"{mean:.2f} ± {_STUDENT * float(np.std(values, ddof=1)) / len(values) ** 0.5:.2f}"


def watch_users(data: Path) -> UserSet:
    """The 11 unseen people of the watch data, encoded by the example's model file."""
    from edge_sdk import Encoder
    from examples.watch.split import split_user, training_users, unseen_users

    model = Path(sys.modules["examples.watch.split"].__file__ or "").with_name("watch.onnx")
    with np.load(data / "wisdm-watch" / "wisdm-watch.npz", allow_pickle=False) as archive:
        x, labels, subject = archive["x"].astype(np.float32), archive["label"].astype(np.int64), archive["subject"]
    encoded = Encoder.open(model).encode(x)
    users = []
    for user in unseen_users(subject):
        split = split_user(subject, labels, int(user))
        users.append(
            User(*(Entries(encoded.embeddings[rows], labels[rows], encoded.probabilities[rows]) for rows in split))
        )
    others = np.isin(subject, training_users(subject))
    return UserSet(users, fit_projection(encoded.embeddings[others], encoded.embeddings.shape[1]))


def cifar_users(embeddings: np.ndarray, probabilities: np.ndarray, labels: np.ndarray, seed: int) -> UserSet:
    """`N_CIFAR` clients of a partition of their own for every seed; the projection comes from the others."""
    clients = dirichlet_clients(labels, 100, alpha=0.3, seed=seed)
    users = [
        User(*(Entries(embeddings[rows], labels[rows], probabilities[rows]) for rows in client))
        for client in clients[:N_CIFAR]
    ]
    others = np.concatenate([client.train for client in clients[N_CIFAR:]])[::3]
    return UserSet(users, fit_projection(embeddings[others], embeddings.shape[1]))


def print_speed(speed: SpeedReport) -> None:
    """The two benchmark lines about time."""
    print_table("Time, one thread", ("what", "value"), speed.rows())


if __name__ == "__main__":
    main()
