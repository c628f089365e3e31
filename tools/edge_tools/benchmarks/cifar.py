"""CIFAR-10 clients: images, their encoding by one small network, and who holds which images.

The encoding does not depend on the partition, so it is made once (the network trains in a few minutes) and cached as
one `.npz` of all 60 000 embeddings and global probabilities; partitions are drawn on top in milliseconds. The network
is trained on the training images of all clients, as in the paper, so the entries of a datastore are images that it
has seen and the test images are not; `TrainingSettings.n_images` keeps a part of the training images from it where
that matters.
"""

import hashlib
import io
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edge_sdk.errors import ConfigError, InputError

N_TRAIN = 50_000
"""Images 0 to 49 999 are the data set's training part, the others its test part."""

DATA_VARIABLE = "EDGE_SDK_DATA"
"""Environment variable that names the folder of the data sets."""


class CifarImages(NamedTuple):
    """The data set, decoded."""

    images: np.ndarray
    """uint8 (60000, 3, 32, 32), RGB."""

    labels: np.ndarray
    """int64 (60000,), classes 0 to 9."""


class CifarEncoding(NamedTuple):
    """What the network says about every image; row i is image i of the data set."""

    embeddings: np.ndarray
    """float32 (60000, dim), not negative."""

    probabilities: np.ndarray
    """float32 (60000, 10), the global model's answers."""

    labels: np.ndarray
    """int64 (60000,)."""


class Client(NamedTuple):
    """Rows of the data set that one client holds, int64, ascending."""

    train: np.ndarray
    """Below `N_TRAIN`: what fills the datastore."""

    test: np.ndarray
    """`N_TRAIN` and above: what judges it. The label mixes of both agree but for chance."""


@dataclass(frozen=True)
class TrainingSettings:
    """What the network's training depends on besides the data; part of the cache's name."""

    dim: int = 256
    """Width of the embedding."""

    epochs: int = 2
    batch: int = 128
    learning_rate: float = 0.01
    """Of AdamW; the peak of the one-cycle schedule."""

    schedule: str = "one-cycle"
    """"one-cycle", or "constant": a network that was never cooled down has as good an embedding and a less even head,
    more like what federated averaging leaves."""

    n_images: int = N_TRAIN
    """The first so many training images train the network (they are in random order); the others stay unseen."""

    seed: int = 0

    neighbour_loss: float = 0.0
    """Weight of the leave-one-out nearest-neighbour loss beside the cross-entropy; 0: none."""

    def __post_init__(self) -> None:
        if not 1 <= self.n_images <= N_TRAIN:
            raise ConfigError(f"n_images must be in 1 to {N_TRAIN}, got {self.n_images}")
        if self.dim < 1 or self.epochs < 1 or self.batch < 2:
            raise ConfigError(f"dim and epochs must be at least 1 and batch at least 2, got {self}")
        if self.schedule not in ("one-cycle", "constant"):
            raise ConfigError(f'schedule is "one-cycle" or "constant", got {self.schedule!r}')
        if self.neighbour_loss < 0:
            raise ConfigError(f"neighbour_loss must be at least 0, got {self.neighbour_loss}")

    def key(self) -> str:
        """12 hexadecimal digits, the same as before `neighbour_loss` was there where that is 0."""
        fields = asdict(self)
        if not self.neighbour_loss:
            del fields["neighbour_loss"]
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:12]


def data_folder(option: Path | None = None) -> Path:
    """The folder of the data sets: the option if given, else $EDGE_SDK_DATA.

    Raises:
        ConfigError: neither is given.
    """
    folder = option or os.environ.get(DATA_VARIABLE)
    if not folder:
        raise ConfigError(f"no folder of data sets: give --data FOLDER or set {DATA_VARIABLE}")
    return Path(folder)


def cache_folder(option: Path | None = None) -> Path:
    """Where encodings are kept: the option if given, else `edge-sdk` in the user's cache folder; made if missing."""
    folder = option or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edge-sdk"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def read_images(data: Path) -> CifarImages:
    """Decode `cifar10/cifar10-jpeg.npz` (about 10 s on one core).

    Raises:
        InputError: the file is missing or another one.
    """
    from PIL import Image

    path = data / "cifar10" / "cifar10-jpeg.npz"
    if not path.is_file():
        raise InputError(f"no such file: {path}; {DATA_VARIABLE} names the folder that holds cifar10/")
    with np.load(path, allow_pickle=False) as archive:
        missing = {"jpeg", "offset", "label"} - set(archive.files)
        if missing:
            raise InputError(f"{path}: array {sorted(missing)[0]!r} is missing, found {sorted(archive.files)}")
        jpeg, offset, labels = archive["jpeg"].tobytes(), archive["offset"], archive["label"].astype(np.int64)
    images = np.empty((len(labels), 3, 32, 32), np.uint8)
    for row in range(len(labels)):
        with Image.open(io.BytesIO(jpeg[offset[row] : offset[row + 1]])) as image:
            images[row] = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    return CifarImages(images, labels)


def read_encoding(data: Path, cache: Path, settings: TrainingSettings | None = None) -> CifarEncoding:
    """All images as the network encodes them: from the cache, or trained, encoded and cached (needs torch, minutes).

    Args:
        data: folder of the data sets.
        cache: folder of encodings, see `cache_folder`.
        settings: of the training; each has a cache file of its own.

    Raises:
        InputError: the data set is missing.
    """
    settings = settings or TrainingSettings()
    path = cache / f"cifar10-{settings.dim}-{settings.key()}.npz"
    if not path.is_file():
        _write_encoding(path, _encode(read_images(data), settings))
    with np.load(path, allow_pickle=False) as archive:
        return CifarEncoding(archive["embeddings"], archive["probabilities"], archive["labels"])


def dirichlet_clients(labels: np.ndarray, n_clients: int, *, alpha: float, seed: int) -> list[Client]:
    """By-label Dirichlet partition: the images of each class go to the clients in shares drawn from Dir(α·1).

    Training and test images are dealt together, so a client's two label mixes agree. Clients that miss either part
    are left out, so the list may be shorter than `n_clients`.

    Args:
        labels: (n,) classes; rows from `N_TRAIN` on are the test part.
        n_clients: at least 1.
        alpha: concentration, above 0; the smaller, the more one-sided each client.
        seed: of the draw.

    Raises:
        ConfigError: a number is out of range.
    """
    if n_clients < 1 or alpha <= 0:
        raise ConfigError(f"n_clients must be at least 1 and alpha above 0, got {n_clients} and {alpha}")
    random = np.random.default_rng(seed)
    held: list[list[np.ndarray]] = [[] for _ in range(n_clients)]
    for label in np.unique(labels):
        rows = random.permutation(np.flatnonzero(labels == label))
        counts = random.multinomial(len(rows), random.dirichlet(np.full(n_clients, alpha)))
        for client, part in enumerate(np.split(rows, np.cumsum(counts)[:-1])):
            held[client].append(part)
    return _clients([np.concatenate(parts) for parts in held])


def shard_clients(labels: np.ndarray, n_clients: int, *, classes: int, seed: int) -> list[Client]:
    """Pathological partition: the images sorted by label, cut into equal shards, `classes` shards to each client.

    Shards may straddle two labels, so a client holds `classes` of them, rarely one more. Seeded, which the reference
    is not.

    Args:
        labels: (n,) classes; rows from `N_TRAIN` on are the test part.
        n_clients: at least 1.
        classes: shards a client gets, at least 1.
        seed: of the deal.

    Raises:
        ConfigError: a number is out of range.
    """
    if n_clients < 1 or classes < 1:
        raise ConfigError(f"n_clients and classes must be at least 1, got {n_clients} and {classes}")
    random = np.random.default_rng(seed)
    shuffled = random.permutation(len(labels))
    by_label = shuffled[np.argsort(labels[shuffled], kind="stable")]
    shards = np.array_split(by_label, n_clients * classes)
    dealt = random.permutation(len(shards)).reshape(n_clients, classes)
    return _clients([np.concatenate([shards[shard] for shard in hand]) for hand in dealt])


def _clients(held: list[np.ndarray]) -> list[Client]:
    """Cut each client's rows at `N_TRAIN` and leave out clients with an empty side."""
    clients = []
    for rows in held:
        rows = np.sort(rows)
        client = Client(rows[rows < N_TRAIN], rows[rows >= N_TRAIN])
        if len(client.train) and len(client.test):
            clients.append(client)
    return clients


def _encode(images: CifarImages, settings: TrainingSettings) -> CifarEncoding:
    from edge_tools.benchmarks.cifar_net import encode, train  # torch, which a warm cache never needs

    net = train(images.images[: settings.n_images], images.labels[: settings.n_images], settings)
    embeddings, probabilities = encode(net, images.images)
    return CifarEncoding(embeddings, probabilities, images.labels)


def _write_encoding(path: Path, encoding: CifarEncoding) -> None:
    """Write beside, then put in place."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    with beside.open("wb") as file:
        np.savez(file, **encoding._asdict())
    os.replace(beside, path)
