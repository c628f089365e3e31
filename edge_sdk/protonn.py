"""Prototypes: a few labelled, weighted points in a projected space that answer in the place of all entries, in numpy.

p(y|x) = Σ_j π_jy c_j K_j / Σ_j c_j K_j with u = Wx and K_j = exp(-γ²‖u - b_j‖²): kernel kNN's own estimator with soft
labels π and masses c ("ProtoNN", Gupta et al., ICML 2017, with a probability-valued head), so λ_m keeps its meaning.
The same formula with one prototype an entry, c = 1 and only the k nearest voting is kNN over quantised, projected keys:
every compressed memory, learnt or not, is this one file and this one forward pass.

What was learnt after the compression lies in the datastore as entries, is projected in the same way, and each votes
with mass 1 in the same sums. Prototypes have no ages: nothing evicts them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from edge_sdk.errors import ConfigError, DatastoreError, InputError
from edge_sdk.prototypes_file import (
    FORMAT_VERSION,
    PrototypesFile,
    projection_bytes,
    projection_dtype,
    prototype_dtype,
    prototypes_bytes,
    read_prototypes,
    write_prototypes,
)

_INT8_MAX = 127


class Votes(NamedTuple):
    """Who voted for one query, heaviest first."""

    numbers: np.ndarray
    """int64 (v,): below m a prototype, from m on an entry of the tail."""

    distances: np.ndarray
    """float32 (v,), Euclidean, in the projected space."""

    shares: np.ndarray
    """float32 (v,), summing to 1."""


@dataclass(frozen=True)
class Prototypes:
    """A compressed memory in RAM; also what it takes on disk."""

    keys: np.ndarray
    """float32 (m, d̂): B, as rounded by `key_dtype`."""

    masses: np.ndarray
    """float32 (m,), not negative: how many entries each stands for."""

    labels: np.ndarray
    """int64 (m,) class ids, or float32 (m, n_classes) distributions (rows summing to 1)."""

    sharpness: float
    """γ of the gaussian kernel exp(-γ²d²), 1/σ of the laplacian one exp(-d/σ)."""

    kernel: str = "gaussian"
    k: int = 0
    """Only the k nearest vote; 0: all."""

    projection: np.ndarray | None = None
    """float32 (d̂, dim): W, as rounded for the file; None where keys are as wide as embeddings."""

    offset: np.ndarray | None = None
    """float32 (d̂,) added to Wx (a centre, so that rounded keys are small numbers); there with `projection`."""

    key_dtype: str = "int8"
    interpolation_weight: float = 0.0
    """λ_m of this memory, chosen on entries that it was not made of."""

    fingerprint: str = ""
    """Of the model whose embeddings it holds."""

    n_entries: int = 0
    """Entries that it was made of."""

    newest_sequence: int = 0
    """Of those entries; later ones are in the tail."""

    method: str = ""
    """How it was made, for people: "protonn", "k-means", "kept entries" ..."""

    def __post_init__(self) -> None:
        """Check that the parts fit each other.

        Raises:
            ConfigError: a number is out of range, or the shapes do not fit.
        """
        m, width = self.keys.shape
        if self.masses.shape != (m,) or self.labels.shape[0] != m or (self.masses < 0).any():
            raise ConfigError(
                f"{m} prototypes with masses {self.masses.shape} and labels {self.labels.shape}; each needs one"
            )
        if self.kernel not in ("gaussian", "laplacian") or self.k < 0 or not self.sharpness > 0.0:
            raise ConfigError(f"kernel {self.kernel!r}, k {self.k} and sharpness {self.sharpness} do not make a memory")
        if not 0.0 <= self.interpolation_weight <= 1.0:
            raise ConfigError(f"the interpolation weight λ must lie in [0, 1], got {self.interpolation_weight}")
        if self.projection is not None and (
            self.projection.shape[0] != width or self.offset is None or self.offset.shape != (width,)
        ):
            raise ConfigError(f"projection {self.projection.shape} does not lead to prototypes {self.keys.shape}")
        prototype_dtype(width, key_dtype=self.key_dtype)

    def __len__(self) -> int:
        """How many prototypes."""
        return len(self.keys)

    @property
    def dim(self) -> int:
        """Width of the embeddings it takes."""
        return int(self.keys.shape[1] if self.projection is None else self.projection.shape[1])

    @property
    def file_bytes(self) -> int:
        """Size of its file, projection included; exact."""
        return prototypes_bytes(
            len(self),
            self.keys.shape[1],
            key_dtype=self.key_dtype,
            n_soft_labels=self.labels.shape[1] if self.labels.ndim == 2 else 0,
            projected_from=None if self.projection is None else self.dim,
        )

    @property
    def projection_bytes(self) -> int:
        """What of `file_bytes` is the projection."""
        return 0 if self.projection is None else projection_bytes(self.keys.shape[1], self.dim)

    def project(self, embeddings: np.ndarray) -> np.ndarray:
        """Embeddings (n, dim) -> float32 (n, d̂)."""
        if self.projection is None or self.offset is None:
            return np.asarray(embeddings, np.float32)
        projected: np.ndarray = np.asarray(embeddings, np.float32) @ self.projection.T + self.offset
        return projected

    def probabilities(self, embeddings: np.ndarray, n_classes: int, *, tail: "Tail | None" = None) -> np.ndarray:
        """Class distributions of a batch.

        Args:
            embeddings: (n, dim), finite.
            n_classes: columns of the result, at least one more than the highest class id.
            tail: entries that vote beside the prototypes.

        Returns:
            float64 (n, n_classes), rows summing to 1; all zero where nothing has a mass.

        Raises:
            InputError: the embeddings have another width.
        """
        if embeddings.ndim != 2 or embeddings.shape[1] != self.dim:
            raise InputError(f"embeddings have shape {embeddings.shape}, this memory takes (n, {self.dim})")
        return self._summed(self._weights(embeddings, tail)[0], n_classes, tail)

    def _summed(self, weights: np.ndarray, n_classes: int, tail: "Tail | None") -> np.ndarray:
        """Weights (n, m + tail) -> class distributions (n, n_classes)."""
        answers = np.zeros((len(weights), n_classes))
        m = len(self)
        if self.labels.ndim == 2:
            answers[:, : self.labels.shape[1]] = weights[:, :m] @ self.labels
        else:
            answers += _summed_by_label(weights[:, :m], self.labels, n_classes)
        if tail is not None and len(tail.labels):
            answers += _summed_by_label(weights[:, m:], tail.labels, n_classes)
        return answers

    def votes(self, embedding: np.ndarray, *, most: int, tail: "Tail | None" = None) -> Votes:
        """The `most` heaviest voters of one query (1, dim)."""
        weights, distances = self._weights(embedding, tail)
        heaviest = np.argsort(-weights[0], kind="stable")[:most]
        return Votes(heaviest, distances[0, heaviest], weights[0, heaviest])

    def left_out(self, tail: "Tail", n_classes: int) -> np.ndarray:
        """Each entry of the tail predicted by the prototypes and the other entries, float64 (n, n_classes)."""
        own = len(self) + np.arange(len(tail.labels))
        weights, _ = self._weights_of(tail.keys, tail, exclude=own)
        return self._summed(weights, n_classes, tail)

    def _weights(self, embeddings: np.ndarray, tail: "Tail | None") -> tuple[np.ndarray, np.ndarray]:
        """Normalised weights and distances of all voters, both (n, m + tail)."""
        return self._weights_of(self.project(embeddings), tail)

    def _weights_of(
        self, projected: np.ndarray, tail: "Tail | None", *, exclude: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same for queries (n, d̂) in the projected space; `exclude` (n,) names one voter a query that has no
        vote.
        """
        keys, masses = self.keys, self.masses
        if tail is not None and len(tail.labels):
            keys = np.concatenate((keys, tail.keys))
            masses = np.concatenate((masses, np.ones(len(tail.labels), np.float32)))
        squared = _squared_distances(projected, keys)
        if exclude is not None:
            squared[np.arange(len(squared)), exclude] = np.inf
        distances = np.sqrt(squared)
        exponents = -(self.sharpness**2) * squared if self.kernel == "gaussian" else -self.sharpness * distances
        if self.k and self.k < len(keys):
            far = np.argpartition(squared, self.k - 1, axis=1)[:, self.k :]
            np.put_along_axis(exponents, far, -np.inf, axis=1)
        with np.errstate(divide="ignore"):  # a mass of 0 has no vote
            exponents = exponents + np.log(masses)
        top = exponents.max(axis=1, keepdims=True) if len(keys) else np.zeros((len(projected), 1))
        weights = np.exp(exponents - np.where(np.isfinite(top), top, 0.0))
        total = weights.sum(axis=1, keepdims=True)
        return weights / np.where(total > 0.0, total, 1.0), distances

    def without_label(self, label: int) -> "Prototypes":
        """The memory with every vote for one class gone; the projection, which was fitted on all entries, stays."""
        if self.labels.ndim == 1:
            keep = self.labels != label
            return replace(self, keys=self.keys[keep], masses=self.masses[keep], labels=self.labels[keep])
        if label >= self.labels.shape[1]:
            return self
        left = self.labels.copy()
        left[:, label] = 0.0
        share = left.sum(axis=1)
        keep = share > 0.01  # what hardly voted for anything else stood for that class
        return replace(
            self,
            keys=self.keys[keep],
            masses=(self.masses * share)[keep],
            labels=left[keep] / share[keep, None],
        )

    def forget(
        self, label: int | None, *, before: int | None = None, sequences: Sequence[int] | None = None
    ) -> "Prototypes":
        """The memory without what was learnt from some entries.

        Prototypes have no ages, so a condition on ages either covers all of the entries that they were made of, or
        none, or is refused.

        Args:
            label: class id; None: all classes.
            before: entries with a smaller sequence.
            sequences: of the entries.

        Raises:
            ConfigError: the condition asks for some of the entries that lie in the prototypes and not for others.
        """
        if sequences is not None:
            within = [number for number in sequences if 0 < number <= self.newest_sequence]
            if within:
                raise ConfigError(
                    f"entry {within[0]} lies in the compressed memory, which holds 1 to {self.newest_sequence} without "
                    f"their sequences; forget its label, or all of them with before={self.newest_sequence + 1}"
                )
            return self
        if before is not None and before <= self.newest_sequence:
            if before <= 1:
                return self
            raise ConfigError(
                f"the compressed memory holds entries 1 to {self.newest_sequence} without their ages; forget by label, "
                f"or all of it with before={self.newest_sequence + 1} or more"
            )
        if label is not None:
            return self.without_label(label)
        keep = np.zeros(len(self), bool)
        return replace(self, keys=self.keys[keep], masses=self.masses[keep], labels=self.labels[keep])

    def save(self, path: Path) -> int:
        """Write the file; its bytes, which are `file_bytes`.

        Raises:
            DatastoreError: the medium refuses; an old file is still there.
        """
        return write_prototypes(path, self._as_file())

    @classmethod
    def load(cls, path: Path, *, fingerprint: str | None = None) -> "Prototypes":
        """Read a file.

        Args:
            path: the file.
            fingerprint: of the model in use.

        Raises:
            DatastoreError: missing, damaged, of a newer format, or made with another model.
        """
        content = read_prototypes(path)
        settings, records, rows = content.settings, content.prototypes, content.projection
        if fingerprint is not None and settings["fingerprint"] != fingerprint:
            raise DatastoreError(
                f"{path}: made with model {str(settings['fingerprint'])[:12]}, this is {fingerprint[:12]}; "
                "compress a datastore of this model"
            )
        soft = "labels" in (records.dtype.fields or {})
        try:
            return cls(
                keys=records["key"].astype(np.float32) * np.float32(settings["key_scale"]),
                masses=records["mass"].astype(np.float32),
                labels=records["labels"].astype(np.float32) if soft else records["label"].astype(np.int64),
                sharpness=float(settings["sharpness"]),
                kernel=str(settings["kernel"]),
                k=int(settings["k"]),
                projection=None if rows is None else rows["row"].astype(np.float32) * rows["scale"][:, None],
                offset=None if rows is None else rows["offset"].copy(),
                key_dtype=str(settings["key_dtype"]),
                interpolation_weight=float(settings["interpolation_weight"]),
                fingerprint=str(settings["fingerprint"]),
                n_entries=int(settings["n_entries"]),
                newest_sequence=int(settings["newest_sequence"]),
                method=str(settings["method"]),
            )
        except (KeyError, ConfigError) as error:
            raise DatastoreError(
                f"{path}: damaged compressed memory ({error}); restore the datastore from its backup"
            ) from error

    def rounded(self) -> "Prototypes":
        """The memory as it will be after saving and loading: judge this one."""
        content = self._as_file()
        keys = content.prototypes["key"].astype(np.float32) * np.float32(content.settings["key_scale"])
        rows = content.projection
        projection = None if rows is None else rows["row"].astype(np.float32) * rows["scale"][:, None]
        masses = content.prototypes["mass"].astype(np.float32)
        return replace(self, keys=keys, masses=masses, projection=projection)

    def _as_file(self) -> PrototypesFile:
        soft = self.labels.shape[1] if self.labels.ndim == 2 else 0
        scale = 1.0
        if self.key_dtype == "int8":
            scale = float(np.float32((np.abs(self.keys).max(initial=0.0) or 1.0) / _INT8_MAX))
        records = np.zeros(len(self), prototype_dtype(self.keys.shape[1], key_dtype=self.key_dtype, n_soft_labels=soft))
        records["mass"] = np.minimum(self.masses, 65504.0)
        records["labels" if soft else "label"] = self.labels
        records["key"] = np.rint(self.keys / scale) if self.key_dtype == "int8" else self.keys
        settings = {
            "format_version": FORMAT_VERSION,
            "fingerprint": self.fingerprint,
            "key_dtype": self.key_dtype,
            "key_scale": scale,
            "kernel": self.kernel,
            "sharpness": round(self.sharpness, 9),
            "k": self.k,
            "interpolation_weight": round(self.interpolation_weight, 6),
            "n_entries": self.n_entries,
            "newest_sequence": self.newest_sequence,
            "method": self.method,
        }
        return PrototypesFile(settings, records, self._projection_records())

    def _projection_records(self) -> np.ndarray | None:
        if self.projection is None or self.offset is None:
            return None
        records = np.zeros(len(self.projection), projection_dtype(self.dim))
        largest = np.abs(self.projection).max(axis=1)
        records["scale"] = np.where(largest > 0.0, largest, 1.0) / _INT8_MAX
        records["row"] = np.clip(np.rint(self.projection / records["scale"][:, None]), -_INT8_MAX, _INT8_MAX)
        records["offset"] = self.offset
        return records


class Tail(NamedTuple):
    """Entries learnt after the compression, in the memory's projected space."""

    keys: np.ndarray
    """float32 (n, d̂)."""

    labels: np.ndarray
    """int (n,): class ids."""


def _squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """‖a_i - b_j‖², float32 (len(a), len(b)), never below 0."""
    squared = np.einsum("ij,ij->i", a, a)[:, None] + np.einsum("ij,ij->i", b, b) - 2.0 * (a @ b.T)
    clipped: np.ndarray = np.maximum(squared, 0.0)
    return clipped


def _summed_by_label(weights: np.ndarray, labels: np.ndarray, n_classes: int) -> np.ndarray:
    """Weights (n, v) of voters with class ids (v,) -> float64 (n, n_classes)."""
    cells = labels[None, :] + n_classes * np.arange(len(weights))[:, None]
    summed = np.bincount(cells.ravel(), weights.ravel(), minlength=len(weights) * n_classes)
    return summed.reshape(len(weights), n_classes)
