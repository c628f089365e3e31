"""Predictor: the one object an application holds.

A prediction is one forward pass (which gives the embedding and the global model's answer together), one search and one
blend. The encoder runs outside the lock; search, learn and tune hold the datastore's lock: what they read must agree.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.datastore.opening import open_or_create
from edge_sdk.digests import source_digests
from edge_sdk.duplicates import new_rows
from edge_sdk.encoder import Encoded, Encoder, as_batch
from edge_sdk.errors import ConfigError, InputError
from edge_sdk.experts import LocalAnswer
from edge_sdk.first_load import check_first_load
from edge_sdk.interpolation import Interpolation, blend, winners
from edge_sdk.interpolation.settings import check_experts
from edge_sdk.labels import normalise_labels
from edge_sdk.memory import Memory
from edge_sdk.model import ModelMetadata
from edge_sdk.near_copies import far_enough
from edge_sdk.neighbors import Index, check_kind, choose_index, open_index
from edge_sdk.prediction import Distributions, Learnt, Prediction, Voter
from edge_sdk.record import Record
from edge_sdk.session import SessionSettings

FEWEST_TO_TUNE = 32
"""A Predictor that learns tunes at this many entries, and again whenever as many have been learnt as it rested on."""


class Predictor:
    """A model file and a datastore, ready to predict and to learn.

    Context manager; safe to share between threads. Other processes may learn into the same datastore: their entries
    count from the next prediction on.
    """

    def __init__(
        self,
        encoder: Encoder,
        datastore: Datastore,
        index: Index,
        *,
        interpolation: Interpolation | None = None,
        experts: str | None = None,
        online: bool = False,
        forget_on_drift: bool = False,
    ) -> None:
        """Put the parts together; most users call `Predictor.open`.

        Args:
            encoder: the running model file.
            datastore: opened for the same model.
            index: search over that datastore.
            interpolation: settings that stand instead of the datastore's own and are never tuned.
            experts: see `open`; so are the others.
        """
        self._encoder = encoder
        self._datastore = datastore
        self._index = index
        self._memory = Memory(datastore, index)
        self._fixed = interpolation
        self._wanted_experts = experts
        self._forget_on_drift = forget_on_drift
        self._lock = datastore.lock
        self._record: Record | None = None
        if online:
            self._record = Record.of(datastore) or Record.start(self.interpolation)

    @classmethod
    def open(
        cls,
        model: str | os.PathLike[str],
        datastore: str | os.PathLike[str],
        *,
        capacity: int | None = None,
        policy: str | None = None,
        dtype: str | None = None,
        allow_new_classes: bool = False,
        read_only: bool = False,
        index: str | None = None,
        interpolation_weight: float | None = None,
        experts: str | None = None,
        online: bool = False,
        forget_on_drift: bool = False,
        threads: int | None = None,
        session: SessionSettings | None = None,
    ) -> "Predictor":
        """Open a model file and its datastore, which is created if missing.

        Args:
            model: path of the exported `.onnx`.
            datastore: path of the datastore's folder.
            capacity: most entries, for a new datastore (default 1000); an existing one must have the same.
            policy: "fifo" (default), "concatenate", "fixed" or "balanced", likewise.
            dtype: of the stored embeddings: "float16" (default), "float32" or "int8", likewise.
            allow_new_classes: accept labels that the model does not know, in a new datastore.
            read_only: never write; the folder must exist.
            index: what searches the datastore: "exact" or "annoy", remembered in a datastore that can be written.
                Default: what was chosen for it, here or by `edge-sdk index`, "exact" at first.
            interpolation_weight: λ_m to use instead of the datastore's own; in [0, 1].
            experts: what answers from memory once tuned: "knn", the neighbours (the paper), or "knn+head", mixed with a
                head in closed form. Default: what the datastore was tuned with, "knn" at first.
            online: learn λ_m from every input of `learn`, predicted before it is stored, and watch for drift
                (`record`).
            forget_on_drift: when a drift is signalled, forget the entries from before it and tune; needs `online`.
            threads: threads of one run of the model; default: the processors this process may use, at most 4.
            session: how the model is run; default: `SessionSettings()`.

        Raises:
            ModelFileError: see `Encoder.open`.
            DatastoreError: damaged, made with another model, or missing while `read_only`.
            ConfigError: a setting is out of range, or not what the existing datastore has.
            MissingExtraError: the index is "annoy", and annoy is not installed.
        """
        if index is not None:
            check_kind(index)
        fixed = None if interpolation_weight is None else Interpolation(interpolation_weight, chosen_by="user")
        _check_online(online, forget_on_drift, read_only, fixed)
        if experts is not None:
            check_experts(experts)
        encoder = Encoder.open(model, threads=threads, session=session)
        store = open_or_create(
            Path(datastore),
            encoder.metadata,
            capacity=capacity,
            policy=policy,
            dtype=dtype,
            allow_new_classes=allow_new_classes,
            read_only=read_only,
        )
        try:
            check_first_load(encoder, store)
            if index is not None and not store.read_only:
                choose_index(store, index)
            searched = open_index(index, store)
        except BaseException:
            store.close()
            raise
        return cls(
            encoder,
            store,
            searched,
            interpolation=fixed,
            experts=experts,
            online=online,
            forget_on_drift=forget_on_drift,
        )

    @property
    def metadata(self) -> ModelMetadata:
        """What the model file says about itself."""
        return self._encoder.metadata

    @property
    def encoder(self) -> Encoder:
        """The running model file."""
        return self._encoder

    @property
    def datastore(self) -> Datastore:
        """The memory."""
        return self._datastore

    @property
    def index(self) -> Index:
        """The search over the memory."""
        return self._index

    @property
    def classes(self) -> tuple[str, ...]:
        """Labels in the order of the columns of `predict_proba`: the model file's, then new ones of this datastore."""
        return self._datastore.classes

    @property
    def interpolation(self) -> Interpolation:
        """The blend's settings in force now."""
        with self._lock:
            settings = self._memory.interpolation
        if self._fixed is not None:
            return replace(settings, interpolation_weight=self._fixed.interpolation_weight, chosen_by="user")
        return settings if self._record is None else self._record.in_force(settings)

    @property
    def record(self) -> Record | None:
        """How good the predictions were, each made before its input was learnt; None without `online=True`."""
        return self._record

    def predict(self, x: object) -> str | np.ndarray:
        """The most probable label.

        Args:
            x: one sample of the model's input shape, or a batch of them.

        Returns:
            A label for a sample; for a batch an array of labels, (n,).

        Raises:
            InputError: wrong shape or dtype, or a non-finite value.
        """
        batch, is_sample = as_batch(x, self.metadata.input)
        distributions, _ = self._answer(self._encoder.encode(batch))
        labels = np.array(distributions.classes)[winners(distributions.blended, distributions.global_probabilities)]
        return str(labels[0]) if is_sample else labels

    def predict_proba(self, x: object) -> np.ndarray:
        """Class probabilities, columns in `classes` order.

        Args:
            x: one sample of the model's input shape, or a batch of them.

        Returns:
            float32 (n_classes,) for a sample, (n, n_classes) for a batch; rows sum to 1. At λ_m = 0 or with an empty
            datastore these are the global model's numbers bit for bit.

        Raises:
            InputError: wrong shape or dtype, or a non-finite value.
        """
        batch, is_sample = as_batch(x, self.metadata.input)
        distributions, _ = self._answer(self._encoder.encode(batch))
        probabilities = distributions.blended.astype(np.float32, copy=False)
        return probabilities[0] if is_sample else probabilities

    def distributions(self, x: object, *, novelty: bool = False) -> Distributions:
        """The blend and the global model's own answer, for comparing the two.

        Args:
            x: one sample of the model's input shape (a batch of one), or a batch of them.
            novelty: also tell how unlike the entries each input is, even at λ_m = 0.

        Raises:
            InputError: wrong shape or dtype, or a non-finite value.
        """
        return self._answer(self._encoder.encode(as_batch(x, self.metadata.input)[0]), novelty=novelty)[0]

    def learn(
        self,
        x: object,
        y: object,
        *,
        sync: bool = True,
        allow_duplicates: bool = False,
        min_distance: float = 0.0,
        tune: bool = True,
    ) -> Learnt:
        """Add labelled examples; when the datastore is full its policy decides what goes.

        Args:
            x: one sample of the model's input shape, or a batch of them.
            y: a label, or one for each row.
            sync: when this returns, the entries are on the medium; False leaves them to the system until
                `datastore.sync()`.
            allow_duplicates: store an input that is stored already under the same label. An input stored under another
                label is always stored; the newer entry does not remove the older.
            min_distance: leave out an input whose embedding lies nearer than this to an entry of the same label.
            tune: choose λ_m anew when as many entries were learnt since the last time as it rested on.

        Raises:
            InputError: wrong shape or dtype, a non-finite value, another number of labels than rows, an unknown label.
            ConfigError: `min_distance` is out of range.
            DatastoreError: no room, read-only, or locked by another process. In every case nothing was stored.
        """
        batch, _ = as_batch(x, self.metadata.input)
        labels = _as_labels(y, len(batch))
        encoded = self._encoder.encode(batch)
        return self._learn_encoded(encoded, batch, labels, sync, allow_duplicates, min_distance, tune)

    def explain(self, x: object) -> Prediction:
        """One answer with both distributions, λ_m and the neighbours that voted.

        Args:
            x: one sample of the model's input shape.

        Raises:
            InputError: not one sample, wrong dtype, or a non-finite value.
        """
        batch, is_sample = as_batch(x, self.metadata.input)
        if not is_sample:
            raise InputError(
                f"explain takes one sample of shape {self.metadata.input.shape}, got a batch of {len(batch)}"
            )
        encoded = self._encoder.encode(batch)
        with self._lock:
            distributions, answer = self._answer(encoded, novelty=True)
            settings = self.interpolation
            voters = () if answer is None else self._memory.voters(encoded.embeddings, answer, settings)
        return _as_prediction(distributions, answer, voters, 0.0 if answer is None else settings.interpolation_weight)

    def forget(
        self,
        *,
        sequences: Sequence[int] | None = None,
        label: str | None = None,
        before: int | None = None,
        tune: bool = True,
    ) -> int:
        """Remove entries by sequence, by label, or older than a sequence; their bytes are overwritten.

        Args:
            sequences: of the entries.
            label: of the entries.
            before: entries with a smaller sequence.
            tune: where λ_m was tuned, choose it anew on what is left. False, for the first of several calls, leaves
                the untuned settings until the next `tune`.

        Returns:
            How many entries were removed.

        Raises:
            DatastoreError: read-only, or locked by another process. Nothing was removed.
        """
        with self._lock:
            return self._memory.forget(sequences=sequences, label=label, before=before, tune=tune)

    def tune(self) -> Interpolation:
        """Choose λ_m, kernel, bandwidth and k by leave-one-out over the store, and save them in the datastore.

        Of a compressed datastore λ_m alone is chosen, see `CompressedMemory.tune`.

        With fewer than 2 entries there is nothing to leave out: the untuned settings are returned, nothing is saved.

        Raises:
            DatastoreError: read-only, or locked by another process. The settings stay as they were.
        """
        with self._lock:
            return self._memory.tune(experts=self._wanted_experts)

    def close(self) -> None:
        """Save the record of `online=True` and close index and datastore; what the index is building is waited for."""
        self._index.close()  # not under the lock, which the index's own thread needs to finish
        with self._lock:
            try:
                if self._record is not None:
                    self._record.save(self._datastore, self._memory.interpolation)
            finally:
                self._datastore.close()

    def __enter__(self) -> "Predictor":
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def _answer(self, encoded: Encoded, *, novelty: bool = False) -> tuple[Distributions, LocalAnswer | None]:
        """Both distributions, and what the memory said; None where it was not asked."""
        with self._lock:
            self._memory.refresh()
            settings, classes = self.interpolation, self._datastore.classes
            global_probabilities = self.with_new_classes(encoded.probabilities)
            weight = settings.interpolation_weight
            is_wanted = weight > 0.0 or (novelty and settings.novelty is not None)
            if not (is_wanted and len(self._memory) and len(global_probabilities)):
                return Distributions(global_probabilities, global_probabilities, classes), None
            answer = self._memory.answer(encoded.embeddings, global_probabilities, settings)
        blended, scores = global_probabilities, None
        if weight > 0.0:
            blended = blend(global_probabilities, answer.probabilities, interpolation_weight=weight)
        if novelty and settings.novelty is not None and answer.neighbors is not None:
            scores = settings.novelty.scores(answer.neighbors.distances[:, 0])
        return Distributions(blended, global_probabilities, classes, scores), answer

    def with_new_classes(self, probabilities: np.ndarray) -> np.ndarray:
        """The model's columns, then a column of zeros for each class that only this datastore knows."""
        n_new = len(self._datastore.classes) - probabilities.shape[1]
        return np.pad(probabilities, ((0, 0), (0, n_new))) if n_new else probabilities

    def _learn_encoded(
        self,
        encoded: Encoded,
        batch: np.ndarray,
        labels: list[str],
        sync: bool,
        allow_duplicates: bool,
        min_distance: float,
        tune: bool,
    ) -> Learnt:
        """Store what was encoded, leaving out what is stored already."""
        sources = source_digests(batch)
        with self._lock:
            self._datastore.refresh()
            new = np.arange(len(batch)) if allow_duplicates else new_rows(sources, labels, self._datastore)
            keep = new
            if min_distance != 0.0:
                names = [labels[row] for row in new]
                keep = new[
                    far_enough(encoded.embeddings[new], names, self._datastore, self._index, min_distance=min_distance)
                ]
            # All rows, the usual case in bulk, need no copies of theirs.
            rows = slice(None) if len(keep) == len(batch) else keep
            sequences, drifted = np.zeros(0, np.uint64), False
            if len(keep):
                judged = self._judged(encoded, labels, keep)
                self._datastore.keep(sources[rows], batch[rows], sync=sync)
                sequences = self._datastore.add(
                    encoded.embeddings[rows],
                    labels if len(keep) == len(batch) else [labels[row] for row in keep],
                    encoded.probabilities[rows],
                    sources=sources[rows],
                    sync=sync,
                )
                drifted = self._record_judged(judged, sequences)
            if tune and self._tuning_is_due():
                self.tune()
        return Learnt(sequences, len(batch) - len(new), len(new) - len(keep), keep, drifted)

    def _judged(
        self, encoded: Encoded, labels: list[str], keep: np.ndarray
    ) -> tuple[np.ndarray | None, np.ndarray, np.ndarray] | None:
        """What memory and global model say about inputs that are about to be stored, and their class ids; for the
        record.
        """
        if self._record is None:
            return None
        global_probabilities = self.with_new_classes(encoded.probabilities[keep])
        column = {name: number for number, name in enumerate(self._datastore.classes)}
        class_ids = np.array([column.get(labels[row], -1) for row in keep], np.intp)
        if not len(self._memory):
            return None, global_probabilities, class_ids
        answer = self._memory.answer(encoded.embeddings[keep], global_probabilities, self.interpolation)
        return answer.probabilities, global_probabilities, class_ids

    def _record_judged(
        self, judged: tuple[np.ndarray | None, np.ndarray, np.ndarray] | None, sequences: np.ndarray
    ) -> bool:
        """Put what was judged into the record, now that it is stored; on a drift forget if asked to."""
        if self._record is None or judged is None:
            return False
        drifted = self._record.judge(*judged, sequences.tolist())
        self._record.save_when_due(self._datastore, self._memory.interpolation)
        if drifted and self._forget_on_drift:
            self.forget(before=self._record.drift.changed_at)
        return drifted

    def _tuning_is_due(self) -> bool:
        """Whether as many entries came since λ_m was last chosen as there were then, and nobody fixed it."""
        settings = self.interpolation
        if settings.chosen_by == "user" or self._datastore.read_only or self._memory.is_compressed:
            return False
        n_entries = len(self._datastore)
        return n_entries >= FEWEST_TO_TUNE and settings.is_outdated(n_entries, self._datastore.table.newest)


def _as_prediction(
    distributions: Distributions, answer: LocalAnswer | None, voters: tuple[Voter, ...], weight: float
) -> Prediction:
    """The one row of `distributions` with what it rests on."""
    best = int(winners(distributions.blended, distributions.global_probabilities)[0])
    knn = np.zeros_like(distributions.global_probabilities) if answer is None else answer.knn
    return Prediction(
        label=distributions.classes[best],
        probability=float(distributions.blended[0, best]),
        probabilities=distributions.blended[0].astype(np.float32),
        global_probabilities=distributions.global_probabilities[0],
        knn_probabilities=knn[0].astype(np.float32),
        interpolation_weight=weight,
        source={0.0: "global", 1.0: "knn"}.get(weight, "blend"),
        voters=voters,
        novelty=None if distributions.novelty is None else float(distributions.novelty[0]),
    )


def _check_online(online: bool, forget_on_drift: bool, read_only: bool, fixed: Interpolation | None) -> None:
    """Whether the settings of learning online go together.

    Raises:
        ConfigError: they do not.
    """
    if forget_on_drift and not online:
        raise ConfigError("forget_on_drift needs online=True, which is what notices a drift")
    if online and read_only:
        raise ConfigError("online=True learns and saves λ_m; open the datastore without read_only")
    if online and fixed is not None:
        raise ConfigError("give either online=True or an interpolation weight, not both")


def _as_labels(y: object, n_rows: int) -> list[str]:
    """One label a row.

    Raises:
        InputError: another number of labels than rows, or something that is no label.
    """
    labels: list[object] = [y]
    if isinstance(y, (Sequence, np.ndarray)) and not isinstance(y, str):
        labels = list(y)
    if len(labels) != n_rows:
        raise InputError(f"{len(labels)} labels for {n_rows} rows; give one label a row")
    return normalise_labels(labels)
