"""CompressedMemory: the prototypes of a datastore's folder and the entries learnt since, voting together.

A datastore is compressed when `prototypes.npz` lies in its folder. It is looked up at every use by its inode and time
of change (about 2 µs), so a `Predictor` that stays open for months notices a compression or a `forget` in another
process.
"""

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.datastore.storage import PROTOTYPES
from edge_sdk.interpolation import LARGEST_TUNED_WEIGHT, Interpolation, mixture_weights, shrink, tune_datastore
from edge_sdk.neighbors import Index
from edge_sdk.protonn import Prototypes, Tail, Votes


class CompressedMemory:
    """What a compressed datastore remembers. Not thread-safe by itself: hold `datastore.lock`."""

    def __init__(self, datastore: Datastore) -> None:
        self._datastore = datastore
        self._path = datastore.folder / PROTOTYPES
        self._seen: tuple[int, int, int] | None = None
        self._prototypes: Prototypes | None = None
        self._tail = Tail(np.zeros((0, 0), np.float32), np.zeros(0, np.int64))
        self._tail_slots: np.ndarray = np.zeros(0, np.int32)
        self._tail_version = -1

    def refresh(self) -> bool:
        """Take up what has changed on disk.

        Returns:
            Whether the datastore is compressed; the other methods ask for True.

        Raises:
            DatastoreError: `prototypes.npz` is damaged, or made with another model.
        """
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._seen, self._prototypes = None, None
            return False
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        if stamp != self._seen or self._prototypes is None:
            self._prototypes = Prototypes.load(self._path, fingerprint=self._datastore.manifest.fingerprint)
            self._seen, self._tail_version = stamp, -1
        if self._tail_version != self._datastore.version:
            self._read_tail(self._prototypes)
        return True

    @property
    def prototypes(self) -> Prototypes:
        """The memory itself; only after `refresh` said True."""
        if self._prototypes is None:
            raise LookupError("the datastore is not compressed")
        return self._prototypes

    def __len__(self) -> int:
        """Prototypes and entries of the tail."""
        return 0 if self._prototypes is None else len(self._prototypes) + len(self._tail.labels)

    @property
    def n_prototypes(self) -> int:
        """Prototypes."""
        return 0 if self._prototypes is None else len(self._prototypes)

    @property
    def interpolation(self) -> Interpolation:
        """The blend's settings: λ_m from the compression's held-out entries, or from `tune` since."""
        memory = self.prototypes
        weight, chosen_by = memory.interpolation_weight, "held-out"
        stored = self._datastore.interpolation
        if stored is not None:
            tuned = Interpolation.from_mapping(stored)
            weight, chosen_by = tuned.interpolation_weight, tuned.chosen_by
        return Interpolation(
            weight,
            kernel=memory.kernel,
            bandwidth=1.0 / memory.sharpness,
            k=memory.k or max(1, len(self)),
            chosen_by=chosen_by,
            n_entries=memory.n_entries + len(self._tail.labels),
        )

    def probabilities(self, embeddings: np.ndarray, n_classes: int) -> np.ndarray:
        """p_memory, float64 (n, n_classes): see `Prototypes.probabilities`."""
        return self.prototypes.probabilities(embeddings, n_classes, tail=self._tail)

    def votes(self, embedding: np.ndarray, *, most: int) -> Votes:
        """The heaviest voters of one query (1, dim)."""
        return self.prototypes.votes(embedding, most=most, tail=self._tail)

    def label_of(self, number: int) -> int:
        """Class id of a voter (of its largest label, where a prototype has several)."""
        memory = self.prototypes
        if number >= len(memory):
            return int(self._tail.labels[number - len(memory)])
        return int(memory.labels[number].argmax() if memory.labels.ndim == 2 else memory.labels[number])

    def sequence_of(self, number: int) -> int:
        """Sequence of a voter; 0 for a prototype, which has none."""
        position = number - self.n_prototypes
        return int(self._datastore.table.sequences[self._tail_slots[position]]) if position >= 0 else 0

    def tune(self) -> Interpolation:
        """Choose λ_m anew and save it in the manifest.

        The entries of the tail are predicted leave-one-out, by the prototypes and each other; λ_m is their EM estimate
        and the compression's own, each weighing as many entries as it rests on. Without a tail nothing changes.

        Raises:
            DatastoreError: read-only, or locked by another process. The settings stay as they were.
        """
        memory, tail = self.prototypes, self._tail
        n_tail = len(tail.labels)
        if n_tail == 0:
            return self.interpolation
        answers = memory.left_out(tail, len(self._datastore.classes))
        rows = np.arange(n_tail)
        likelihoods = np.stack(
            [answers[rows, tail.labels], self._datastore.probabilities(self._tail_slots)[rows, tail.labels]]
        )
        seen = shrink(min(float(mixture_weights(likelihoods)[0]), LARGEST_TUNED_WEIGHT), n_tail + memory.n_entries)
        weight = (memory.n_entries * memory.interpolation_weight + n_tail * seen) / (memory.n_entries + n_tail)
        chosen = Interpolation(weight, chosen_by="leave-one-out", n_entries=memory.n_entries + n_tail)
        self._datastore.save_interpolation(chosen.to_mapping())
        return self.interpolation

    def _read_tail(self, memory: Prototypes) -> None:
        """Project the entries that are newer than the compression."""
        table = self._datastore.table
        slots = table.order[table.sequences[table.order] > np.uint64(memory.newest_sequence)]
        self._tail_slots = slots
        self._tail = Tail(memory.project(self._datastore.embeddings(slots)), table.labels[slots].astype(np.int64))
        self._tail_version = self._datastore.version


def tune_memory(
    datastore: Datastore, index: Index, *, experts: str | None = None, criterion: str = "log-loss", gap: int = 0
) -> Interpolation:
    """Choose the blend's settings for a datastore, compressed or not, and save them in it.

    Of a compressed datastore λ_m alone is chosen (`CompressedMemory.tune`): kernel, k and sharpness lie in its
    prototypes, and the other arguments mean nothing. Otherwise see `tune_datastore`.

    Raises:
        DatastoreError: read-only, or locked by another process. The saved settings stay as they were.
    """
    compressed = CompressedMemory(datastore)
    if compressed.refresh():
        return compressed.tune()
    return tune_datastore(datastore, index, experts=experts, criterion=criterion, gap=gap)
