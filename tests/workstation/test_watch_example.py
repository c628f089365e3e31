"""The committed watch.onnx is what model.pt exports to."""

from pathlib import Path

import numpy as np
import pytest

from edge_export import export_model
from edge_sdk import Encoder, ModelFile


@pytest.fixture(scope="module")
def fresh(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("watch") / "watch.onnx"
    watch = repository / "examples" / "watch"
    export_model(
        watch / "model.pt",
        output,
        model="examples.watch.net:ActivityNet",
        input_shape=(6, 100),
        classes=tuple((watch / "labels.txt").read_text(encoding="utf-8").split()),
    )
    return output


def test_committed_model_file_is_what_model_pt_exports_to(repository: Path, fresh: Path) -> None:
    committed = ModelFile.open(repository / "examples" / "watch" / "watch.onnx").metadata
    assert committed.fingerprint == ModelFile.open(fresh).metadata.fingerprint
    assert (committed.input.shape, committed.dim) == ((6, 100), 128)


def test_committed_model_file_answers_like_a_fresh_export(repository: Path, fresh: Path) -> None:
    watch = repository / "examples" / "watch"
    windows = np.load(watch / "users" / "1603" / "test.npz")["x"][:64].astype(np.float32)
    ours, theirs = (Encoder.open(path).encode(windows) for path in (watch / "watch.onnx", fresh))
    np.testing.assert_allclose(ours.embeddings, theirs.embeddings, atol=1e-5)
    np.testing.assert_allclose(ours.probabilities, theirs.probabilities, atol=1e-6)
