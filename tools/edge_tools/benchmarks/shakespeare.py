"""Shakespeare's speaking roles: each role is one client whose next character is to be guessed.

An entry is a position in a role's speeches: the key is the network's state after reading up to there, the label is the
character that comes next. The first 80 % of a role's text is for learning, the rest tests. One network is trained on
the learning parts of all roles, as in the paper; what it says about the chosen clients is cached, so a second run
needs no torch.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edge_sdk.errors import ConfigError, InputError
from edge_tools.benchmarks.cifar import DATA_VARIABLE


class ShakespeareText(NamedTuple):
    """The plays, by role."""

    codes: np.ndarray
    """uint8 (n_characters,), class of each character, roles end to end."""

    start: np.ndarray
    """int64 (n_roles + 1,), role r is `codes[start[r]:start[r + 1]]`."""

    n_speeches: np.ndarray
    """int64 (n_roles,)."""

    characters: tuple[str, ...]
    """What each class stands for."""


class ShakespeareClient(NamedTuple):
    """What the network says about one role; all arrays in the order of the text."""

    embeddings: np.ndarray
    """float32 (n, dim): the state after the characters before the one to guess."""

    probabilities: np.ndarray
    """float32 (n, n_classes)."""

    labels: np.ndarray
    """int64 (n,), the character that came."""

    n_train: int
    """The first so many are for learning."""


@dataclass(frozen=True)
class ShakespeareSettings:
    """What the encoding depends on besides the data; part of the cache's name."""

    hidden: int = 128
    """Width of the one LSTM layer; the key is its hidden and its cell state, 2 x hidden."""

    steps: int = 3000
    batch: int = 64
    length: int = 80
    """Characters a training sequence has, and the fewest that stand before an encoded position."""

    learning_rate: float = 0.004
    train_share: float = 0.8
    clients: int = 100
    most_train: int = 2000
    """The newest so many learning positions of a client are kept."""

    most_test: int = 500
    """The first so many test positions of a client are kept."""

    fewest_characters: int = 2000
    fewest_speeches: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        if min(self.hidden, self.steps, self.batch, self.length, self.clients, self.most_train, self.most_test) < 1:
            raise ConfigError(f"every count must be at least 1, got {self}")
        if not 0.0 < self.train_share < 1.0:
            raise ConfigError(f"train_share must lie between 0 and 1, got {self.train_share}")


def read_text(data: Path) -> ShakespeareText:
    """Read `shakespeare/shakespeare.npz`.

    Raises:
        InputError: the file is missing.
    """
    path = data / "shakespeare" / "shakespeare.npz"
    if not path.is_file():
        raise InputError(f"no such file: {path}; {DATA_VARIABLE} names the folder that holds shakespeare/")
    with np.load(path, allow_pickle=False) as archive:
        text, speech_offset, client_speech = archive["text"], archive["speech_offset"], archive["client_speech"]
    values, codes = np.unique(text, return_inverse=True)
    return ShakespeareText(
        codes.astype(np.uint8),
        speech_offset[client_speech].astype(np.int64),
        np.diff(client_speech).astype(np.int64),
        tuple(chr(value) for value in values.tolist()),
    )


def eligible_roles(text: ShakespeareText, settings: ShakespeareSettings) -> np.ndarray:
    """Roles with enough to say, ascending."""
    enough = (np.diff(text.start) >= settings.fewest_characters) & (text.n_speeches >= settings.fewest_speeches)
    return np.flatnonzero(enough)


def train_end(text: ShakespeareText, role: int, settings: ShakespeareSettings) -> int:
    """Where a role's learning part ends in `codes`."""
    return int(text.start[role] + settings.train_share * (text.start[role + 1] - text.start[role]))


def read_shakespeare_clients(
    data: Path, cache: Path, settings: ShakespeareSettings | None = None
) -> list[ShakespeareClient]:
    """The chosen clients as the network encodes them: from the cache, or trained, encoded and cached (needs torch,
    minutes).

    Raises:
        InputError: the data set is missing.
    """
    settings = settings or ShakespeareSettings()
    key = hashlib.sha256(json.dumps(asdict(settings), sort_keys=True).encode()).hexdigest()[:12]
    path = cache / f"shakespeare-{2 * settings.hidden}-{key}.npz"
    if not path.is_file():
        _write(path, _encode(read_text(data), settings))
    with np.load(path, allow_pickle=False) as archive:
        embeddings, probabilities, labels = archive["embeddings"], archive["probabilities"], archive["labels"]
        counts, n_train = archive["counts"], archive["n_train"]
    ends = np.cumsum(counts)
    return [
        ShakespeareClient(
            embeddings[end - count : end].astype(np.float32),
            _normalised(probabilities[end - count : end]),
            labels[end - count : end],
            int(learnt),
        )
        for end, count, learnt in zip(ends, counts, n_train, strict=True)
    ]


def _normalised(probabilities: np.ndarray) -> np.ndarray:
    """Undo what rounding to float16 did to the rows' sums."""
    rows = probabilities.astype(np.float32)
    normalised: np.ndarray = rows / rows.sum(axis=1, keepdims=True)
    return normalised


def _encode(text: ShakespeareText, settings: ShakespeareSettings) -> list[ShakespeareClient]:
    from edge_tools.benchmarks.shakespeare_net import encode, train  # torch, which a warm cache never needs

    roles = eligible_roles(text, settings)
    net = train(text, roles, settings)
    chosen = np.sort(np.random.default_rng(settings.seed).permutation(roles)[: settings.clients])
    clients = []
    for role in chosen.tolist():
        split, end = train_end(text, role, settings), int(text.start[role + 1])
        first = max(int(text.start[role]) + 1, split - settings.most_train)
        last = min(end, split + settings.most_test)
        embeddings, probabilities = encode(
            net, text.codes[text.start[role] : last], first - int(text.start[role]), settings.length
        )
        clients.append(
            ShakespeareClient(embeddings, probabilities, text.codes[first:last].astype(np.int64), split - first)
        )
    return clients


def _write(path: Path, clients: list[ShakespeareClient]) -> None:
    """Write beside, then put in place. float16 is what a datastore would keep."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    with beside.open("wb") as file:
        np.savez(
            file,
            embeddings=np.concatenate([client.embeddings for client in clients]).astype(np.float16),
            probabilities=np.concatenate([client.probabilities for client in clients]).astype(np.float16),
            labels=np.concatenate([client.labels for client in clients]),
            counts=np.array([len(client.labels) for client in clients]),
            n_train=np.array([client.n_train for client in clients]),
        )
    os.replace(beside, path)
