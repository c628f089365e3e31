"""p_knn over a whole store against scikit-learn's KNeighborsClassifier with the same kernel."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from edge_sdk import Datastore, ModelFile
from edge_sdk.interpolation import knn_probabilities
from edge_sdk.neighbors import ExactIndex

N_CLASSES = 3  # of tests/data/tiny.onnx


@pytest.mark.parametrize(
    ("kernel", "weights"),
    [
        ("laplacian", lambda distances: np.exp(-distances / 2.0)),
        ("gaussian", lambda distances: np.exp(-((distances / 2.0) ** 2))),
        ("uniform", lambda distances: np.ones_like(distances)),
    ],
)
@pytest.mark.parametrize("k", [1, 10, 200])
def test_knn_distribution_equals_scikit_learn_with_the_same_kernel(
    repository: Path, tmp_path: Path, kernel: str, weights: Callable[[np.ndarray], np.ndarray], k: int
) -> None:
    random = np.random.default_rng(0)
    keys, labels = random.standard_normal((200, 2)).astype(np.float32), random.integers(0, N_CLASSES, 200)
    queries = random.standard_normal((50, 2)).astype(np.float32)
    metadata = ModelFile.open(repository / "tests" / "data" / "tiny.onnx").metadata
    with Datastore.create(tmp_path / "me.store", model=metadata, dtype="float32") as store:
        store.add(keys, [metadata.classes[label] for label in labels], np.full((200, N_CLASSES), 1 / 3, np.float32))
        found = ExactIndex(store).search(queries, k)
        ours = knn_probabilities(found.labels, found.distances, N_CLASSES, kernel=kernel, bandwidth=2.0)
    classifier = KNeighborsClassifier(n_neighbors=k, weights=weights, algorithm="brute")
    theirs = classifier.fit(keys, labels).predict_proba(queries)
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
