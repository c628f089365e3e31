"""A full datastore for any model file: embeddings with few directions, as trained networks make, written without a run.

(A network with random weights would give embeddings in which every direction says as much as every other; those of
trained networks lie near few directions, and that decides what a search costs. See `search_sets.low_rank`.)

    python -m edge_tools.benchmarks.full_store mobilenetv2.onnx me.store 10000
"""

import shutil
import sys
from pathlib import Path

import numpy as np

from edge_sdk import Datastore, ModelFile
from edge_sdk.neighbors import ExactIndex
from edge_tools.benchmarks.search_sets import low_rank

_AT_ONCE = 1000


def fill_store(model: Path, folder: Path, n_entries: int) -> None:
    """Make a datastore of `n_entries` entries, with the index chosen and kept; one that is there is used as it is.

    Args:
        model: a model file.
        folder: where; a datastore of another size or model is replaced.
        n_entries: its capacity, all of which is filled.
    """
    metadata = ModelFile.open(model).metadata
    if folder.exists():
        with Datastore.open(folder, read_only=True) as store:
            if len(store) == n_entries and store.manifest.fingerprint == metadata.fingerprint:
                return
        shutil.rmtree(folder)
    classes = metadata.classes
    random = np.random.default_rng(0)
    embeddings = low_rank(n_entries, metadata.dim)
    labels = random.integers(0, len(classes), n_entries)
    probabilities = random.dirichlet(np.ones(len(classes)), n_entries).astype(np.float32)
    with Datastore.create(folder, model=metadata, capacity=n_entries) as store:
        for start in range(0, n_entries, _AT_ONCE):
            rows = slice(start, start + _AT_ONCE)
            store.add(embeddings[rows], [classes[label] for label in labels[rows]], probabilities[rows], sync=False)
        index = ExactIndex(store)
        index.search(embeddings[:1], 1)
        index.close()


if __name__ == "__main__":
    fill_store(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
