"""The compressed memory on the device: the forward pass, the file and its size, forgetting, damage."""

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_sdk import ConfigError, DatastoreError, InputError
from edge_sdk.interpolation import knn_probabilities
from edge_sdk.protonn import Prototypes, Tail


def all_entries(n: int = 40, dim: int = 6, *, seed: int = 0, **settings: object) -> Prototypes:
    """Every entry a prototype of its own, W the identity, one-hot labels."""
    random = np.random.default_rng(seed)
    return Prototypes(
        keys=random.standard_normal((n, dim)).astype(np.float32),
        masses=np.ones(n, np.float32),
        labels=random.integers(0, 3, n),
        **{"sharpness": 0.7, "key_dtype": "float32", **settings},  # type: ignore[arg-type]
    )


def queries(n: int = 9, dim: int = 6) -> np.ndarray:
    return np.random.default_rng(9).standard_normal((n, dim)).astype(np.float32)


def knn_over_all_keys(memory: Prototypes, x: np.ndarray, k: int) -> np.ndarray:
    """The same answer by the neighbours' own formulas."""
    distances = np.sqrt(((x[:, None, :].astype(float) - memory.keys[None]) ** 2).sum(axis=2))
    nearest = np.argsort(distances, axis=1)[:, :k]
    near = np.take_along_axis(distances, nearest, axis=1)
    return knn_probabilities(memory.labels[nearest], near, 3, kernel=memory.kernel, bandwidth=1.0 / memory.sharpness)


@pytest.mark.parametrize("kernel", ["gaussian", "laplacian"])
@pytest.mark.parametrize("k", [0, 10])
def test_one_hot_prototypes_of_all_entries_are_kernel_knn(kernel: str, k: int) -> None:
    memory = all_entries(kernel=kernel, k=k)
    expected = knn_over_all_keys(memory, queries(), k or len(memory))
    np.testing.assert_allclose(memory.probabilities(queries(), 3), expected, atol=1e-5)


def test_a_mass_counts_like_that_many_equal_prototypes() -> None:
    memory = all_entries(10)
    tripled = replace(memory, masses=np.array([3.0] + [1.0] * 9, np.float32))
    repeated = replace(
        memory,
        keys=memory.keys[[0, 0, *range(10)]],
        labels=memory.labels[[0, 0, *range(10)]],
        masses=np.ones(12, np.float32),
    )
    np.testing.assert_allclose(tripled.probabilities(queries(), 3), repeated.probabilities(queries(), 3), atol=1e-6)


@pytest.mark.parametrize("distance", [1e0, 1e4, 1e8])
def test_rows_sum_to_one_however_far_the_query_is(distance: float) -> None:
    answers = all_entries().probabilities(queries() + np.float32(distance), 3)
    np.testing.assert_allclose(answers.sum(axis=1), 1.0, atol=1e-6)


def test_soft_labels_are_averaged_by_weight() -> None:
    memory = Prototypes(
        keys=np.zeros((1, 2), np.float32),
        masses=np.ones(1, np.float32),
        labels=np.array([[0.25, 0.75, 0.0]], np.float32),
        sharpness=1.0,
    )
    np.testing.assert_allclose(memory.probabilities(np.zeros((1, 2), np.float32), 3), [[0.25, 0.75, 0.0]])


def test_the_tail_votes_beside_the_prototypes_as_if_it_were_prototypes() -> None:
    memory = all_entries(20)
    head = replace(memory, keys=memory.keys[:12], masses=memory.masses[:12], labels=memory.labels[:12])
    tail = Tail(memory.keys[12:], memory.labels[12:])
    np.testing.assert_allclose(
        head.probabilities(queries(), 3, tail=tail), memory.probabilities(queries(), 3), atol=1e-6
    )


def test_a_left_out_entry_does_not_vote_for_itself() -> None:
    memory = all_entries(1)
    tail = Tail(memory.keys + 5.0, np.array([(int(memory.labels[0]) + 1) % 3]))
    answers = memory.left_out(tail, 3)
    assert answers[0, memory.labels[0]] == pytest.approx(1.0)


@pytest.mark.parametrize("key_dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("is_projected", [False, True])
@pytest.mark.parametrize("is_soft", [False, True])
def test_size_formula_is_the_files_size(tmp_path: Path, key_dtype: str, is_projected: bool, is_soft: bool) -> None:
    random = np.random.default_rng(0)
    memory = all_entries(37, 5, key_dtype=key_dtype)
    if is_projected:
        matrix, offset = random.standard_normal((5, 48)).astype(np.float32), np.zeros(5, np.float32)
        memory = replace(memory, projection=matrix, offset=offset)
    if is_soft:
        memory = replace(memory, labels=random.dirichlet(np.ones(4), 37).astype(np.float32))
    written = memory.save(tmp_path / "prototypes.npz")
    assert written == (tmp_path / "prototypes.npz").stat().st_size == memory.file_bytes
    unprojected = replace(memory, projection=None, offset=None)
    assert memory.file_bytes - memory.projection_bytes == unprojected.file_bytes


@pytest.mark.parametrize("key_dtype", ["float32", "float16", "int8"])
def test_loading_gives_what_rounding_promised(tmp_path: Path, key_dtype: str) -> None:
    memory = replace(
        all_entries(key_dtype=key_dtype),
        projection=np.random.default_rng(1).standard_normal((6, 20)).astype(np.float32),
        offset=np.ones(6, np.float32),
        interpolation_weight=0.625,
        fingerprint="ab" * 32,
        n_entries=400,
        newest_sequence=412,
        method="protonn PCA-6",
    )
    memory.save(tmp_path / "prototypes.npz")
    loaded, promised = Prototypes.load(tmp_path / "prototypes.npz", fingerprint="ab" * 32), memory.rounded()
    x = queries(dim=20)
    np.testing.assert_allclose(loaded.probabilities(x, 3), promised.probabilities(x, 3), atol=1e-6)
    np.testing.assert_allclose(loaded.probabilities(x, 3), memory.probabilities(x, 3), atol=0.2)
    assert (loaded.interpolation_weight, loaded.n_entries, loaded.newest_sequence) == (0.625, 400, 412)
    assert loaded.method == "protonn PCA-6"


def test_equal_memories_are_equal_files_that_numpy_opens(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        all_entries().save(tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with np.load(tmp_path / "a.npz", allow_pickle=False) as archive:
        assert archive["prototypes"]["key"].shape == (40, 6)
        assert archive["settings"].tobytes().rstrip().endswith(b"}")


def test_forgetting_a_label_takes_its_prototypes_and_its_votes(tmp_path: Path) -> None:
    memory = replace(all_entries(), newest_sequence=40)
    assert (memory.forget(1).probabilities(queries(), 3)[:, 1] == 0.0).all()
    soft = replace(memory, labels=np.random.default_rng(2).dirichlet(np.ones(3), 40).astype(np.float32))
    answers = soft.forget(1).probabilities(queries(), 3)
    assert (answers[:, 1] == 0.0).all()
    np.testing.assert_allclose(answers.sum(axis=1), 1.0, atol=1e-6)


def test_forgetting_by_age_is_all_nothing_or_refused() -> None:
    memory = replace(all_entries(), newest_sequence=40)
    assert len(memory.forget(None, before=41)) == 0
    assert set(memory.forget(2, before=99).labels.tolist()) == {0, 1}
    assert memory.forget(None, before=1) is memory
    assert memory.forget(None, sequences=[41, 77]) is memory
    with pytest.raises(ConfigError, match="without their ages"):
        memory.forget(None, before=40)
    with pytest.raises(ConfigError, match="entry 3 lies in the compressed memory"):
        memory.forget(None, sequences=[41, 3])


def test_an_emptied_memory_answers_with_zeros_and_can_be_stored(tmp_path: Path) -> None:
    empty = replace(all_entries(), newest_sequence=40).forget(None, before=41)
    empty.save(tmp_path / "prototypes.npz")
    loaded = Prototypes.load(tmp_path / "prototypes.npz")
    np.testing.assert_array_equal(loaded.probabilities(queries(), 3), np.zeros((9, 3)))


def test_another_models_memory_is_refused(tmp_path: Path) -> None:
    replace(all_entries(), fingerprint="ab" * 32).save(tmp_path / "prototypes.npz")
    with pytest.raises(DatastoreError, match="made with model abababababab"):
        Prototypes.load(tmp_path / "prototypes.npz", fingerprint="cd" * 32)


def load_or_none(path: Path) -> Prototypes | None:
    """None where the file is refused, with its name; any other exception is a fault."""
    try:
        return Prototypes.load(path)
    except DatastoreError as error:
        return None if str(path) in str(error) else Prototypes.load(path)


def test_a_damaged_file_is_a_clear_error_wherever_the_damage_is(tmp_path: Path) -> None:
    path = tmp_path / "prototypes.npz"
    all_entries(8, 3).save(path)
    whole = path.read_bytes()
    expected = Prototypes.load(path)
    for position in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[position] ^= 0x55
        path.write_bytes(damaged)
        loaded = load_or_none(path)
        if loaded is not None:  # a byte that means nothing: a date, a flag of the archive
            np.testing.assert_array_equal(loaded.keys, expected.keys)
    for length in range(0, len(whole), 31):
        path.write_bytes(whole[:length])
        with pytest.raises(DatastoreError, match="damaged or foreign"):
            Prototypes.load(path)


def test_pickled_and_compressed_members_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "prototypes.npz"
    all_entries(8, 3).save(path)
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    with pytest.raises(DatastoreError, match="compressed or too large"):
        Prototypes.load(path)
    np.savez(path, settings=np.frombuffer(b"{}", np.uint8), prototypes=np.array([{}], object))
    with pytest.raises(DatastoreError, match="damaged or foreign"):
        Prototypes.load(path)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "prototypes.npz"
    all_entries().save(path)
    before = path.read_bytes()
    with pytest.raises(ConfigError, match="settings"):
        replace(all_entries(), method="x" * 400).save(path)
    assert path.read_bytes() == before


def test_parts_that_do_not_fit_are_refused() -> None:
    memory = all_entries()
    for wrong in (
        {"masses": memory.masses[:3]},
        {"masses": -memory.masses},
        {"kernel": "cosine"},
        {"sharpness": 0.0},
        {"interpolation_weight": 1.5},
        {"key_dtype": "int4"},
        {"projection": np.zeros((2, 9), np.float32)},
    ):
        with pytest.raises(ConfigError):
            replace(memory, **wrong)
    with pytest.raises(InputError, match="this memory takes"):
        memory.probabilities(np.zeros((1, 5), np.float32), 3)
