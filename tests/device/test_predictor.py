"""Predictor: what an application sees, on a model that can be calculated by hand (tests/data/make_tiny_model.py)."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk import ConfigError, DatastoreError, Encoder, InputError, Interpolation, ModelFileError, Predictor


@pytest.fixture
def model(repository: Path) -> Path:
    return repository / "tests" / "data" / "tiny.onnx"


@pytest.fixture
def predictor(model: Path, tmp_path: Path) -> Iterator[Predictor]:
    with Predictor.open(model, datastore=tmp_path / "me.store", capacity=50) as opened:
        yield opened


def test_empty_datastore_gives_the_global_model_bit_for_bit(predictor: Predictor, model: Path) -> None:
    x = np.random.default_rng(0).standard_normal((40, 2)).astype(np.float32)
    expected = Encoder.open(model).encode(x).probabilities
    assert predictor.predict_proba(x).tobytes() == expected.tobytes()
    assert predictor.explain(x[0]).source == "global"


def test_weight_zero_gives_the_global_model_bit_for_bit(model: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((40, 2)).astype(np.float32)
    with Predictor.open(model, datastore=tmp_path / "me.store", interpolation_weight=0.0) as predictor:
        predictor.learn(x, ["up"] * 40)
        assert predictor.predict_proba(x).tobytes() == Encoder.open(model).encode(x).probabilities.tobytes()


def test_weight_one_gives_the_neighbours_vote_of_the_reference_vector(model: Path, tmp_path: Path) -> None:
    with Predictor.open(model, datastore=tmp_path / "me.store", interpolation_weight=1.0) as predictor:
        predictor.learn([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0], [1.0, 0.0]], ["left", "right", "right", "left"])
        np.testing.assert_allclose(predictor.predict_proba([0.0, 0.5]), [0.602252, 0.397748, 0.0], atol=1e-6)


def test_a_learnt_example_counts_in_the_very_next_prediction(predictor: Predictor) -> None:
    before = predictor.predict_proba([2.0, 0.0])[2]
    predictor.learn([[9.0, 9.0], [9.0, -9.0], [2.0, 0.0]], ["left", "right", "up"])
    after = predictor.predict_proba([2.0, 0.0])[2]
    weight = 0.5 * 3 / 13  # untuned: 0.5·n/(n + 10)
    assert after == pytest.approx((1 - weight) * before + weight, abs=1e-3)  # the others are too far to count


def test_sample_in_gives_a_label_and_batch_in_gives_an_array(predictor: Predictor) -> None:
    assert predictor.predict([1.0, 0.0]) == "right"
    assert list(predictor.predict([[1.0, 0.0], [-1.0, 0.0]])) == ["right", "left"]
    assert predictor.predict_proba([1.0, 0.0]).shape == (3,)
    assert predictor.predict_proba(np.zeros((5, 2))).shape == (5, 3)
    assert len(predictor.predict(np.zeros((0, 2)))) == 0


def test_full_datastore_evicts_the_oldest_entry(model: Path, tmp_path: Path) -> None:
    with Predictor.open(model, datastore=tmp_path / "me.store", capacity=3) as predictor:
        learnt = predictor.learn([[float(number), 0.0] for number in range(5)], ["up"] * 5)
        assert learnt.sequences.tolist() == [1, 2, 3, 4, 5]
        assert sorted(voter.sequence for voter in predictor.explain([0.0, 0.0]).voters) == [3, 4, 5]


def test_same_input_with_the_same_label_is_stored_once(predictor: Predictor) -> None:
    predictor.learn([1.0, 2.0], "up")
    assert predictor.learn([[1.0, 2.0], [1.0, 3.0], [1.0, 3.0]], ["up", "up", "up"]).duplicates == 2
    assert len(predictor.datastore) == 2
    assert predictor.learn([1.0, 2.0], "up", allow_duplicates=True).duplicates == 0
    assert len(predictor.learn([1.0, 2.0], "left").sequences) == 1
    assert predictor.learn([1.0, 2.0], "left").duplicates == 1
    assert predictor.learn([[1.0, 2.0]] * 6, ["up", "left"] * 3).duplicates == 6


def test_explanation_names_the_voters_with_age_and_share(predictor: Predictor) -> None:
    predictor.learn([[0.0, 0.0], [0.0, 1.0]], ["left", "up"])
    found = predictor.explain([0.0, 0.25])
    assert [(voter.sequence, voter.label, voter.age) for voter in found.voters] == [(1, "left", 1), (2, "up", 0)]
    np.testing.assert_allclose([voter.distance for voter in found.voters], [0.25, 0.75], atol=1e-6)
    np.testing.assert_allclose(sum(voter.share for voter in found.voters), 1.0)
    assert found.source == "blend"
    np.testing.assert_allclose(found.probabilities, predictor.predict_proba([0.0, 0.25]), atol=1e-7)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ([1.0, 2.0, 3.0], "shape (3,)"),
        (np.zeros((1, 3)), "shape (1, 3)"),
        (np.zeros((2, 2, 2)), "shape (2, 2, 2)"),
        ([[0.0, 0.0], [np.nan, 0.0]], "row 1"),
        ([[np.inf, 0.0]], "row 0"),
        ([[1e300, 0.0]], "row 0"),
        ([["a", "b"]], "expected numbers"),
        ([[1.0], [1.0, 2.0]], "ragged"),
    ],
)
def test_unusable_input_is_refused_and_nothing_is_learnt(predictor: Predictor, x: object, words: str) -> None:
    for call in (lambda: predictor.predict(x), lambda: predictor.learn(x, "up")):
        with pytest.raises(InputError) as caught:
            call()
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)
    assert len(predictor.datastore) == 0


@pytest.mark.parametrize("x", [[1, 2], np.array([1, 2], "i2"), np.array([1, 2], "f8"), np.array([1, 2], "f2")])
def test_numbers_of_every_kind_mean_the_same(predictor: Predictor, x: object) -> None:
    np.testing.assert_array_equal(predictor.predict_proba(x), predictor.predict_proba(np.array([1.0, 2.0], np.float32)))


@pytest.mark.parametrize(
    ("y", "words"),
    [("upp", 'did you mean "up"'), ("", "empty"), (["up", "up"], "2 labels for 1 rows"), (1.5, "text"), (None, "text")],
)
def test_unusable_label_is_refused_and_nothing_is_learnt(predictor: Predictor, y: object, words: str) -> None:
    with pytest.raises(InputError, match=words):
        predictor.learn([1.0, 2.0], y)
    assert len(predictor.datastore) == 0


def test_new_class_gets_a_column_of_its_own_that_the_global_model_gives_nothing(model: Path, tmp_path: Path) -> None:
    with Predictor.open(model, datastore=tmp_path / "me.store", allow_new_classes=True) as predictor:
        predictor.learn([[0.0, 9.0]] * 20 + [[0.0, -9.0]] * 20, ["zebra"] * 20 + ["left"] * 20, allow_duplicates=True)
        assert predictor.classes == ("left", "right", "up", "zebra")
        assert predictor.predict([0.0, 9.0]) == "zebra"
        found = predictor.explain([0.0, 9.0])
        assert found.global_probabilities[3] == 0.0
        np.testing.assert_allclose(predictor.predict_proba([[0.0, 9.0], [1.0, 1.0]]).sum(axis=1), 1.0, atol=1e-6)


def test_learning_tunes_when_the_store_has_doubled_but_never_what_a_user_fixed(model: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((40, 2))
    y = np.where(x[:, 1] > 0, "left", "up")  # the opposite of what the model says
    with Predictor.open(model, datastore=tmp_path / "me.store") as predictor:
        predictor.learn(x[:31], y[:31])
        assert predictor.interpolation.chosen_by == "default"
        predictor.learn(x[31:], y[31:])
        assert predictor.interpolation.chosen_by == "leave-one-out"
        assert predictor.interpolation.interpolation_weight > 0.4
    with Predictor.open(model, datastore=tmp_path / "me.store", interpolation_weight=0.25) as predictor:
        assert predictor.interpolation.interpolation_weight == 0.25
        predictor.learn(x + 10.0, y)
        assert predictor.interpolation.interpolation_weight == 0.25


def test_tuned_settings_are_those_of_the_next_process(model: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((60, 2))
    with Predictor.open(model, datastore=tmp_path / "me.store") as predictor:
        predictor.learn(x, np.where(x[:, 1] > 0, "left", "up"), tune=False)
        chosen = predictor.tune()
    with Predictor.open(model, datastore=tmp_path / "me.store", read_only=True) as predictor:
        assert predictor.interpolation == chosen


def test_forgotten_label_has_no_vote(predictor: Predictor) -> None:
    predictor.learn([[0.0, 0.0], [0.0, 1.0]], ["left", "up"])
    assert predictor.forget(label="up") == 1
    assert [voter.label for voter in predictor.explain([0.0, 1.0]).voters] == ["left"]


def test_after_forgetting_the_settings_are_those_of_a_store_that_never_held_it(model: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((90, 2))
    y = np.where(x[:, 1] > 0, "left", "up")  # the opposite of what the model says
    y[60:] = np.random.default_rng(1).choice(["left", "up"], 30)  # and labels that mean nothing
    with Predictor.open(model, datastore=tmp_path / "never.store") as never:
        never.learn(x[:60], y[:60])
        expected = never.tune()
    with Predictor.open(model, datastore=tmp_path / "me.store") as predictor:
        predictor.learn(x[60:], y[60:])
        predictor.learn(x[:60], y[:60])
        before = predictor.tune()
        assert predictor.forget(before=31) == 30
        after = predictor.interpolation
    assert replace(after, newest_sequence=expected.newest_sequence) == expected
    assert abs(after.interpolation_weight - before.interpolation_weight) > 0.02
    with Predictor.open(model, datastore=tmp_path / "me.store", read_only=True) as predictor:
        assert predictor.interpolation == after


def test_forgetting_leaves_untuned_what_was_never_tuned_and_what_the_caller_tunes(model: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((60, 2))
    y = np.where(x[:, 1] > 0, "left", "up")
    with Predictor.open(model, datastore=tmp_path / "me.store") as predictor:
        predictor.learn(x, y, tune=False)
        predictor.forget(sequences=[1])
        assert predictor.interpolation == Interpolation.untuned(59)
        predictor.tune()
        predictor.forget(sequences=[2], tune=False)
        assert predictor.interpolation == Interpolation.untuned(58)


def test_forgetting_keeps_the_choice_of_experts_and_the_record(model: Path, tmp_path: Path) -> None:
    with Predictor.open(model, datastore=tmp_path / "me.store", online=True, experts="knn+head") as predictor:
        learn_opposites(predictor, 64)
        predictor.forget(sequences=[5])
    with Predictor.open(model, datastore=tmp_path / "me.store", online=True) as predictor:
        assert predictor.interpolation.experts == "knn+head"
        assert predictor.record is not None
        assert predictor.record.weight.seen == 64


def test_read_only_needs_an_existing_datastore_and_refuses_to_learn(model: Path, tmp_path: Path) -> None:
    with pytest.raises(DatastoreError, match="no such datastore"):
        Predictor.open(model, datastore=tmp_path / "none.store", read_only=True)
    assert not (tmp_path / "none.store").exists()
    with Predictor.open(model, datastore=tmp_path / "me.store") as predictor:
        predictor.learn([0.0, 1.0], "left")
    with Predictor.open(model, datastore=tmp_path / "me.store", read_only=True) as predictor:
        assert len(predictor.datastore) == 1
        with pytest.raises(DatastoreError, match="read-only"):
            predictor.learn([1.0, 1.0], "left")


def test_settings_other_than_the_datastores_own_are_refused(model: Path, tmp_path: Path) -> None:
    Predictor.open(model, datastore=tmp_path / "me.store", capacity=5).close()
    with pytest.raises(ConfigError, match="capacity 5, asked for 6"):
        Predictor.open(model, datastore=tmp_path / "me.store", capacity=6)


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n" + bytes(100), b"\x08\x08\x3a\xff\xff\x01"])
def test_a_file_that_is_no_model_file_is_one_line_and_creates_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(ModelFileError, match="not an ONNX file"):
        Predictor.open(tmp_path / "model.onnx", datastore=tmp_path / "me.store")
    assert not (tmp_path / "me.store").exists()


def test_a_flipped_bit_in_the_graph_is_found_when_the_file_is_opened(model: Path, tmp_path: Path) -> None:
    content = bytearray(model.read_bytes())
    content[len(content) // 6] ^= 1
    (tmp_path / "model.onnx").write_bytes(content)
    with pytest.raises(ModelFileError):
        Encoder.open(tmp_path / "model.onnx")


def test_threads_share_a_predictor(predictor: Predictor) -> None:
    predictor.learn(np.random.default_rng(0).standard_normal((50, 2)), ["up"] * 50)
    failures: list[Exception] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        try:
            for _ in range(30):
                predictor.learn(random.standard_normal(2), "left", sync=False)
                assert predictor.predict_proba(random.standard_normal((3, 2))).shape == (3, 3)
        except Exception as error:  # noqa: BLE001 - reported by the main thread
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(predictor.datastore) == 50


def test_interpolation_weight_out_of_range_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        Predictor.open(model, datastore=tmp_path / "me.store", interpolation_weight=1.1)
    assert not (tmp_path / "me.store").exists()
    assert Interpolation(1.0).interpolation_weight == 1.0


def learn_opposites(predictor: Predictor, n: int, *, seed: int = 0, swapped: bool = False) -> list[bool]:
    """Learn n inputs one by one whose labels the model gets wrong; whether each completed a drift."""
    drifted = []
    for x in np.random.default_rng(seed).standard_normal((n, 2)):
        label = "left" if (x[1] > 0) != swapped else "up"
        drifted.append(predictor.learn(x, label, sync=False).drifted)
    return drifted


def test_online_weight_rises_with_what_the_memory_gets_right_and_is_the_next_process_s(
    model: Path, tmp_path: Path
) -> None:
    with Predictor.open(model, datastore=tmp_path / "me.store", online=True) as predictor:
        learn_opposites(predictor, 150)
        assert predictor.record is not None
        weight = predictor.interpolation.interpolation_weight
        assert weight > 0.8
        global_accuracy, personalised_accuracy = predictor.record.weight.accuracies()
        assert personalised_accuracy > global_accuracy + 0.3
    with Predictor.open(model, datastore=tmp_path / "me.store", read_only=True) as predictor:
        assert predictor.record is None
        assert predictor.interpolation.interpolation_weight == weight
        assert predictor.interpolation.chosen_by == "online"
    with Predictor.open(model, datastore=tmp_path / "me.store", online=True) as predictor:
        assert predictor.record is not None
        assert predictor.record.weight.seen == 150


@pytest.mark.parametrize("forget_on_drift", [False, True])
def test_a_user_who_changes_is_noticed_and_on_request_the_past_forgotten(
    model: Path, tmp_path: Path, forget_on_drift: bool
) -> None:
    with Predictor.open(
        model, datastore=tmp_path / "me.store", online=True, forget_on_drift=forget_on_drift
    ) as predictor:
        assert not any(learn_opposites(predictor, 300))
        drifted = learn_opposites(predictor, 100, seed=1, swapped=True)
        assert drifted.count(True) == 1
        assert predictor.record is not None
        assert 295 <= predictor.record.drift.changed_at <= 310
        oldest = int(predictor.datastore.table.sequences[predictor.datastore.table.order[0]])
        assert oldest == (predictor.record.drift.changed_at if forget_on_drift else 1)


def test_a_refused_input_leaves_the_record_as_it_was(model: Path, tmp_path: Path) -> None:
    with Predictor.open(model, datastore=tmp_path / "me.store", online=True, capacity=3, policy="fixed") as predictor:
        learn_opposites(predictor, 3)
        with pytest.raises(DatastoreError, match="full"):
            predictor.learn([0.5, 0.5], "left")
        assert predictor.record is not None
        assert predictor.record.weight.seen == 3


@pytest.mark.parametrize(
    "settings",
    [
        {"forget_on_drift": True},
        {"online": True, "interpolation_weight": 0.5},
        {"online": True, "read_only": True},
        {"experts": "oracle"},
    ],
)
def test_settings_that_do_not_go_together_are_refused(model: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Predictor.open(model, datastore=tmp_path / "me.store", **settings)
    assert not (tmp_path / "me.store").exists()


def test_novelty_tells_what_is_like_the_entries_from_what_is_not(model: Path, tmp_path: Path) -> None:
    with Predictor.open(model, datastore=tmp_path / "me.store") as predictor:
        random = np.random.default_rng(0)
        assert predictor.distributions([0.0, 0.0], novelty=True).novelty is None
        predictor.learn(random.standard_normal((300, 2)), ["up"] * 300)
        predictor.tune()
        known = predictor.distributions(random.standard_normal((300, 2)), novelty=True).novelty
        assert known is not None
        assert (known > 0.95).mean() < 0.15
        assert predictor.distributions([40.0, 40.0], novelty=True).novelty == [1.0]
        assert predictor.distributions([0.0, 0.0]).novelty is None
    with Predictor.open(model, datastore=tmp_path / "me.store", interpolation_weight=0.5) as predictor:
        assert predictor.explain([40.0, 40.0]).novelty == 1.0


def test_head_answers_once_tuned_with_it(model: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((80, 2))
    y = np.where(x[:, 1] > 0, "left", "up")
    with Predictor.open(model, datastore=tmp_path / "me.store", experts="knn+head") as predictor:
        predictor.learn(x, y)
        assert predictor.interpolation.experts == "knn+head"
        assert predictor.interpolation.head is not None
        assert np.mean(predictor.predict(x) == y) > 0.9
        np.testing.assert_allclose(predictor.explain(x[0]).probabilities, predictor.predict_proba(x[0]), atol=1e-6)


def test_no_thread_at_all_is_refused(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="threads is at least 1, got 0"):
        Predictor.open(repository / "tests" / "data" / "tiny.onnx", tmp_path / "me.store", threads=0)
    assert not (tmp_path / "me.store").exists()
