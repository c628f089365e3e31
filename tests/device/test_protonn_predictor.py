"""A Predictor whose datastore is compressed: prototypes and new entries vote together, forgetting reaches both."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_sdk import ConfigError, DatastoreError, Predictor
from edge_sdk.datastore.backup import restore_backup, write_backup
from edge_sdk.protonn import Prototypes

TINY = Path(__file__).parent.parent / "data" / "tiny.onnx"
"""The embedding is the input, a point of the plane; classes left, right, up."""

UP = np.array([5.0, 0.5], np.float32)
"""The global model calls this "right"."""


@pytest.fixture
def predictor(tmp_path: Path) -> Iterator[Predictor]:
    """A store with three prototypes that stand for entries 1 to 30, and room for four new ones."""
    with Predictor.open(TINY, tmp_path / "me.store", capacity=4) as predictor:
        memory = Prototypes(
            keys=np.array([[-5.0, 0.0], [5.0, 0.0], [0.0, 5.0]], np.float32),
            masses=np.full(3, 10.0, np.float32),
            labels=np.array([0, 2, 2]),  # this user calls what lies to the right "up"
            sharpness=0.5,
            interpolation_weight=0.9,
            fingerprint=predictor.metadata.fingerprint,
            n_entries=30,
            method="k-means",
        )
        memory.save(tmp_path / "me.store" / "prototypes.npz")
        yield predictor


def test_prototypes_answer_where_there_are_no_entries(predictor: Predictor) -> None:
    assert predictor.predict(UP) == "up"
    assert predictor.interpolation.interpolation_weight == pytest.approx(0.9)
    assert predictor.interpolation.chosen_by == "held-out"
    np.testing.assert_allclose(predictor.predict_proba(UP[None]).sum(axis=1), 1.0, atol=1e-6)


def test_new_entries_vote_beside_the_prototypes(predictor: Predictor) -> None:
    before = predictor.predict_proba(UP)
    predictor.learn(np.stack([UP, UP + 0.01]), ["left", "left"])
    after = predictor.predict_proba(UP)
    left = predictor.classes.index("left")
    assert after[left] > before[left] + 0.1
    assert predictor.predict(UP) == "up"  # two entries against a prototype that stands for ten


def test_the_tail_is_a_window_and_the_prototypes_stay(predictor: Predictor) -> None:
    predictor.learn(np.stack([UP + step for step in np.arange(9, dtype=np.float32)]), ["right"] * 9)
    assert len(predictor.datastore) == 4
    assert predictor.predict(np.array([-5.0, 0.0], np.float32)) == "left"


def test_explain_names_prototypes_and_new_entries(predictor: Predictor) -> None:
    predictor.learn(UP, "left")
    answer = predictor.explain(UP)
    assert answer.label == "up"
    assert [(voter.sequence, voter.age) for voter in answer.voters[:2]] == [(0, -1), (1, 0)]
    assert sum(voter.share for voter in answer.voters) == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(answer.probabilities, predictor.predict_proba(UP), atol=1e-6)


def test_a_weight_of_zero_is_the_global_model_bit_for_bit(predictor: Predictor) -> None:
    with Predictor.open(TINY, predictor.datastore.folder, interpolation_weight=0.0) as plain:
        np.testing.assert_array_equal(plain.predict_proba(UP), plain.encoder.encode(UP[None]).probabilities[0])


def test_forgetting_a_label_forgets_its_prototypes_and_its_entries(predictor: Predictor) -> None:
    predictor.learn(UP, "up")
    assert predictor.forget(label="up") == 1
    assert predictor.predict(UP) != "up"
    assert predictor.explain(UP).knn_probabilities[predictor.classes.index("up")] == 0.0
    with Predictor.open(TINY, predictor.datastore.folder, read_only=True) as again:
        assert again.explain(UP).knn_probabilities[again.classes.index("up")] == 0.0


def test_forgetting_a_new_entry_leaves_the_prototypes(predictor: Predictor) -> None:
    sequence = int(predictor.learn(UP, "left").sequences[0])
    assert predictor.forget(sequences=[sequence]) == 1
    assert predictor.predict(UP) == "up"


def test_an_age_within_the_prototypes_is_refused_and_nothing_is_forgotten(predictor: Predictor) -> None:
    path = predictor.datastore.folder / "prototypes.npz"
    replace(Prototypes.load(path), newest_sequence=30).save(path)
    with pytest.raises(ConfigError, match="without their ages"):
        predictor.forget(before=10)
    assert len(Prototypes.load(path)) == 3


def test_tuning_weighs_the_tail_against_the_compression(predictor: Predictor) -> None:
    points = np.array([[5.0, 0.1], [5.1, 0.0], [4.9, 0.0]], np.float32)
    predictor.learn(points, ["right"] * 3)  # the global model is right about these, the prototypes are not
    chosen = predictor.tune()
    assert 0.5 < chosen.interpolation_weight < 0.9
    assert chosen.chosen_by == "leave-one-out"
    with Predictor.open(TINY, predictor.datastore.folder, read_only=True) as again:
        assert again.interpolation.interpolation_weight == pytest.approx(chosen.interpolation_weight)


def test_a_compression_in_another_process_is_noticed(predictor: Predictor) -> None:
    with Predictor.open(TINY, predictor.datastore.folder, read_only=True) as other:
        assert other.predict(UP) == "up"
        path = predictor.datastore.folder / "prototypes.npz"
        replace(Prototypes.load(path), labels=np.array([0, 0, 0])).save(path)
        assert other.predict(UP) == "left"


def test_a_backup_keeps_the_prototypes(predictor: Predictor, tmp_path: Path) -> None:
    predictor.learn(UP, "left")
    write_backup(predictor.datastore, tmp_path / "me.backup")
    restore_backup(tmp_path / "me.backup", tmp_path / "again.store")
    with Predictor.open(TINY, tmp_path / "again.store", read_only=True) as again:
        np.testing.assert_array_equal(again.predict_proba(UP), predictor.predict_proba(UP))


def test_damaged_prototypes_are_named_and_forgetting_removes_them(predictor: Predictor) -> None:
    path = predictor.datastore.folder / "prototypes.npz"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DatastoreError, match=r"prototypes\.npz"):
        predictor.predict(UP)
    predictor.forget(label="up")
    assert not path.exists()
    assert predictor.predict(UP) == "right"
