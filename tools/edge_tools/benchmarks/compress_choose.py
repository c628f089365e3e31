"""The choice of how prototypes are learnt, on people and images that no reported figure rests on.

`python -m edge_tools.benchmarks.compress_choose` looks at
- training people of the watch data, each encoded by a network that was trained without them (two of the four folds of
  `examples.watch.train_global --validate`), cut by time as an unseen person is;
- clients of a CIFAR-10 partition of its own whose test images are training images as well. The network has seen those,
  at little harm: it gets 68.7 % of them right and 67.5 % of the test images.

One setting after the other takes the value with the best mean over both sets and the three sizes that are asked about,
beginning at plain training (no jitter, no teacher), for two passes or until one changes nothing. All that was tried is
printed, so that one sees how flat it is. λ_m is the full memory's, so that learning alone is compared. With four
processes on two cores it takes a quarter of an hour, the two networks not counted.
"""

import argparse
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edge_sdk.interpolation import blend, winners
from edge_tools.benchmarks.cifar import cache_folder, data_folder, dirichlet_clients, read_encoding
from edge_tools.benchmarks.compress import SIZES, sized
from edge_tools.judging import Judge, answer
from edge_tools.memories import Entries, Learning, Projection, Recipe, fit_projection, make_memory
from edge_tools.output import print_json, print_table, say

if TYPE_CHECKING:
    from examples.watch.episodes import Recordings

PARTITION = 100
"""Seed of the CIFAR-10 partition; those that are reported are 0 to 4."""

N_CLIENTS = 24
"""Clients of it; the others' images give the shared projection."""

WATCH_FOLDS = (0, 1)
"""Of the training people: 18 of 35, by two networks."""

SETTINGS: Mapping[str, Sequence[float]] = {
    "jitter": (0.0, 0.5, 1.0, 1.5, 2.0),
    "teacher_share": (0.0, 0.3, 0.5, 0.7),
    "entries_per_prototype": (1, 4, 8, 16, 24, 32),
    "epochs": (40, 80, 160),
    "learning_rate": (0.01, 0.02, 0.05),
}
"""What each may be, in the order in which they are chosen."""

GAMMA_TEACHER_SHARES = (0.0, 0.3, 0.5, 0.7, 1.0)

WIDTHS: Sequence[Sequence[int]] = ((32, 48, 64, 96), (16, 24, 32, 48), (16, 24, 32, 48))
"""What the width may be at each of `SIZES`."""

PLAIN = Learning(jitter=0.0, teacher_share=0.0, entries_per_prototype=8, epochs=80, learning_rate=0.02)
"""Where the choice begins."""

_FIRST_UNLEARNT = 40_000  # CIFAR-10 training images below are learnt by the clients, the others test
_PASSES = 2


class Case(NamedTuple):
    """One user to choose by."""

    learn: Entries
    test: Entries
    shared: Projection
    interpolation_weight: float
    """λ_m of the full memory, held out."""

    right: int
    """Test samples that the full memory's blend gets right."""


class Trial(NamedTuple):
    """One way to learn."""

    method: str
    learning: Learning
    widths: tuple[int, ...]
    """One for each of `SIZES`."""


def main() -> None:
    """Choose, print all that was tried, then the choice as one JSON line."""
    parser = argparse.ArgumentParser(description="Choose how prototypes are learnt.")
    parser.add_argument("--data", type=Path, help="folder of the data sets (default: $EDGE_SDK_DATA)")
    parser.add_argument("--cache", type=Path, help="folder of cached encodings (default: ~/.cache/edge-sdk)")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    arguments = parser.parse_args()
    data, cache = data_folder(arguments.data), cache_folder(arguments.cache)
    watch = [case for fold in WATCH_FOLDS for case in watch_cases(data, cache, fold)]
    sets = {"watch": watch, "cifar": cifar_cases(data, cache)}
    for name, cases in sets.items():
        say(f"{name}: {len(cases)} users, {sum(len(case.test.labels) for case in cases)} test samples")
    with ProcessPoolExecutor(arguments.jobs) as pool:
        choice = Choice(sets, pool)
        learnt = choice.choose()
        centres = choice.choose_centres(learnt)
    print_table(
        "Points gained on the full float32 memory, mean over the users' samples",
        (
            "trial",
            *(f"{name} {size.ratio}x{' shared' if size.is_shared else ''}" for name in sets for size in SIZES),
            "mean",
        ),
        [
            (_name(trial), *(f"{gain:.2f}" for gain in gains), f"{np.mean(gains):.3f}")
            for trial, gains in choice.tried.items()
        ],
    )
    chosen = {"protonn": learnt.widths, "k-means": centres.widths}
    print_json({"learning": centres.learning._asdict(), "widths": chosen})


class Choice:
    """Tries and remembers."""

    def __init__(self, sets: Mapping[str, Sequence[Case]], pool: ProcessPoolExecutor) -> None:
        self._sets, self._pool = sets, pool
        self.tried: dict[Trial, tuple[float, ...]] = {}
        """Points gained on the full memory, for each set and size."""

    def choose(self) -> Trial:
        """Setting after setting, then the widths, until a pass changes nothing."""
        best = Trial("protonn", PLAIN, tuple(widths[len(widths) // 2] for widths in WIDTHS))
        for _ in range(_PASSES):
            before = best
            for setting, values in SETTINGS.items():
                best = self._best(
                    [
                        best._replace(learning=best.learning._replace(**{setting: value}))  # type: ignore[arg-type]
                        for value in values
                    ]
                )
            best = self.choose_widths(best)
            if best == before:
                break
        return best

    def choose_centres(self, learnt: Trial) -> Trial:
        """The same for k-means, whose γ alone depends on a setting."""
        tries = [
            Trial("k-means", learnt.learning._replace(gamma_teacher_share=share), learnt.widths)
            for share in GAMMA_TEACHER_SHARES
        ]
        return self.choose_widths(self._best(tries))

    def choose_widths(self, trial: Trial) -> Trial:
        """The width of each size; sizes do not depend on each other, so they change together."""
        tries = [trial._replace(widths=tuple(widths)) for widths in zip(*WIDTHS, strict=True)]
        gains = np.array(self._gains(tries)).reshape(len(tries), len(self._sets), len(SIZES)).mean(axis=1)
        best = gains.argmax(axis=0)
        return trial._replace(widths=tuple(WIDTHS[size][row] for size, row in enumerate(best)))

    def _best(self, trials: Sequence[Trial]) -> Trial:
        means = [float(np.mean(gains)) for gains in self._gains(trials)]
        return trials[int(np.argmax(means))]

    def _gains(self, trials: Sequence[Trial]) -> list[tuple[float, ...]]:
        unknown = [trial for trial in trials if trial not in self.tried]
        running = {
            trial: [
                self._pool.submit(points_gained, cases, trial, number)
                for cases in self._sets.values()
                for number in range(len(SIZES))
            ]
            for trial in unknown
        }
        for trial, parts in running.items():
            gains = self.tried[trial] = tuple(part.result() for part in parts)
            say(f"{np.mean(gains):.3f} points: {_name(trial)}: {' '.join(f'{gain:.2f}' for gain in gains)}")
        return [self.tried[trial] for trial in trials]


def points_gained(cases: Sequence[Case], trial: Trial, number: int) -> float:
    """Accuracy minus the full memory's, in points, at one of `SIZES`."""
    size, width = SIZES[number], trial.widths[number]
    recipe_of = sized(trial.method, size.ratio, width, is_shared=size.is_shared, learning=trial.learning)
    right = sum(_right(recipe_of(case.learn, 0), case, is_shared=size.is_shared) for case in cases)
    return 100.0 * (right - sum(case.right for case in cases)) / sum(len(case.test.labels) for case in cases)


def watch_cases(data: Path, cache: Path, fold: int) -> list[Case]:
    """The training people of one fold, encoded by a network that was trained on the other training people."""
    from examples.watch.split import split_user
    from examples.watch.train_global import FOLDS, read_recordings

    recordings = read_recordings(data / "wisdm-watch" / "wisdm-watch.npz")
    held_out = np.unique(recordings.subject)[fold::FOLDS]
    everyone = _encoded_without(recordings, cache, fold)
    others = ~np.isin(recordings.subject, held_out)
    shared = fit_projection(everyone.embeddings[others], everyone.embeddings.shape[1])
    splits = [split_user(recordings.subject, recordings.label, int(user)) for user in held_out]
    return [_case(everyone.rows(split.learn), everyone.rows(split.test), shared) for split in splits]


def cifar_cases(data: Path, cache: Path) -> list[Case]:
    """Clients of a partition of its own that learn four fifths of their training images and test on the others."""
    encoding = read_encoding(data, cache)
    everything = Entries(encoding.embeddings, encoding.labels, encoding.probabilities)
    clients = [client.train for client in dirichlet_clients(encoding.labels, 100, alpha=0.3, seed=PARTITION)]
    others = np.concatenate(clients[N_CLIENTS:])
    shared = fit_projection(encoding.embeddings[others[others < _FIRST_UNLEARNT][::3]], encoding.embeddings.shape[1])
    return [
        _case(everything.rows(rows[rows < _FIRST_UNLEARNT]), everything.rows(rows[rows >= _FIRST_UNLEARNT]), shared)
        for rows in clients[:N_CLIENTS]
    ]


def _case(learn: Entries, test: Entries, shared: Projection) -> Case:
    """Judge the full memory once."""
    recipe = Recipe("keys", key_dtype="float32")
    weight = Judge(learn, n_folds=3, n_rounds=1).judge(recipe).interpolation_weight
    case = Case(learn, test, shared, weight, 0)
    return case._replace(right=_right(recipe, case, is_shared=False))


def _right(recipe: Recipe, case: Case, *, is_shared: bool) -> int:
    """Test samples that the blend with a memory of this recipe gets right."""
    shared = case.shared if is_shared else None
    memory = make_memory(recipe, case.learn, shared=shared)
    answers = answer(memory, case.test, np.arange(len(case.test.labels)), shared)
    blended = blend(case.test.probabilities, answers, interpolation_weight=case.interpolation_weight)
    return int((winners(blended, case.test.probabilities) == case.test.labels).sum())


def _encoded_without(recordings: "Recordings", cache: Path, fold: int) -> Entries:
    """All training people's windows, by a network that never saw the fold's; trained (minutes, torch) unless cached."""
    from examples.watch.train_global import FOLDS, Settings

    key = hashlib.sha256(json.dumps(asdict(Settings()), sort_keys=True).encode()).hexdigest()[:12]
    cached = cache / f"watch-held-out-{fold}-{key}.npz"
    if not cached.is_file():
        import torch

        from examples.watch.train_global import train

        users = np.unique(recordings.subject)
        net = train(recordings.of(np.setdiff1d(users, users[fold::FOLDS])), Settings())
        with torch.no_grad():
            embeddings = net.embedding(torch.from_numpy(recordings.x.astype(np.float32)))
            probabilities = torch.softmax(net.head(embeddings), dim=1)
        beside = cached.with_name(f"{cached.name}.{os.getpid()}.new")
        with beside.open("wb") as file:
            np.savez(file, embeddings=embeddings.numpy(), probabilities=probabilities.numpy())
        os.replace(beside, cached)
    with np.load(cached, allow_pickle=False) as archive:
        return Entries(archive["embeddings"], recordings.label, archive["probabilities"])


def _name(trial: Trial) -> str:
    names = SETTINGS if trial.method == "protonn" else ("gamma_teacher_share",)
    values = " ".join(f"{name}={getattr(trial.learning, name):g}" for name in names)
    return f"{trial.method} {values} widths={','.join(map(str, trial.widths))}"


if __name__ == "__main__":
    main()
