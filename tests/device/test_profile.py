"""`edge-sdk profile`: its figures against the real thing, its formulas against stores of many shapes, its budgets."""

import json
import shutil
import subprocess
import sys
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_sdk import Datastore, EdgeSDKError, InputSpec, ModelMetadata
from edge_sdk.neighbors import ExactIndex
from edge_tools import formulas
from edge_tools.budgets import Budget
from edge_tools.measurement import measure, scratch_copy
from edge_tools.storage import table_bytes


@pytest.fixture(scope="module")
def watch(repository: Path) -> Path:
    return repository / "examples" / "watch"


@pytest.fixture(scope="module")
def store(watch: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profile") / "me.store"
    learn = watch / "users" / "1603" / "learn.npz"
    edge_sdk("ingest", learn, "--model", watch / "watch.onnx", "--datastore", folder)
    return folder


def edge_sdk(*words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command as a user does."""
    command = [sys.executable, "-m", "edge_tools", *(str(word) for word in words)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == code, finished.stderr
    return finished


def profile(*words: object, code: int = 0) -> Any:
    return json.loads(edge_sdk("profile", *words, "--repeats", "10", "--json", code=code).stdout)


def test_every_step_of_a_device_is_measured(watch: Path, store: Path) -> None:
    found = profile(watch / "watch.onnx", "--datastore", store)
    names = [step["name"] for step in found["memory"]]
    assert names[0] == "interpreter"
    assert names[-3:] == ["datastore opened", "first prediction", "1000 predictions"]
    peaks = [step["peak"] for step in found["memory"]]
    assert all(later >= earlier - (1 << 20) for earlier, later in pairwise(peaks))  # the kernel counts in batches
    assert all(step["anonymous"] <= step["resident"] <= step["peak"] for step in found["memory"])
    assert 0 < found["start_up_ms"] < found["memory"][-1]["milliseconds"]
    assert set(found["latency_ms"]) == {"encode", "search", "blend", "predict", "learn"}
    assert found["recall"]["recall"] == 1.0
    assert found["disk_bytes"]["total"] == sum(
        found["disk_bytes"][name] for name in found["disk_bytes"] if name not in ("total", "model_file")
    )


def test_a_read_only_datastore_is_measured_on_a_copy_that_can_be_written(
    watch: Path, store: Path, tmp_path: Path
) -> None:
    sealed = Path(shutil.copytree(store, tmp_path / "sealed.store"))
    for path in (*sealed.rglob("*"), sealed):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with ExitStack() as stack:
            copied = scratch_copy(sealed, stack)
            assert copied is not None
            assert all(path.stat().st_mode & 0o200 for path in (copied, *copied.rglob("*")))
        assert "learn" in profile(watch / "watch.onnx", "--datastore", sealed)["latency_ms"]
        assert [path.name for path in tmp_path.iterdir()] == ["sealed.store"]
    finally:
        for path in (sealed, *sealed.rglob("*")):
            path.chmod(0o700)


def test_a_failed_measurement_names_neither_a_class_nor_a_temporary_path(
    watch: Path, store: Path, tmp_path: Path
) -> None:
    damaged = Path(shutil.copytree(store, tmp_path / "damaged.store"))
    (damaged / "entries.npy").write_bytes(b"")
    with pytest.raises(EdgeSDKError) as caught:
        measure(watch / "watch.onnx", damaged, repeats=1)
    assert str(caught.value).startswith(f"measuring failed: {damaged / 'entries.npy'}: 0 bytes")


def test_profiling_leaves_the_datastore_and_its_neighbourhood_alone(watch: Path, store: Path) -> None:
    before = (store / "entries.npy").read_bytes()
    profile(watch / "watch.onnx", "--datastore", store)
    assert (store / "entries.npy").read_bytes() == before
    assert [path.name for path in store.parent.iterdir()] == [store.name]


def test_a_model_file_alone_is_profiled_too(watch: Path) -> None:
    found = profile(watch / "watch.onnx", "--capacity", 500)
    assert set(found["latency_ms"]) == {"encode"}
    assert found["predicted"]["slot_bytes"] == 320
    assert found["index"] is None


def test_a_budget_that_is_not_met_is_exit_code_3(watch: Path, store: Path) -> None:
    at = (watch / "watch.onnx", "--datastore", store)
    limits = ("--budget-ram", "1GB", "--budget-disk", "20MB", "--budget-latency", "60s")
    assert all(budget["met"] for budget in profile(*at, *limits)["budgets"])
    found = profile(*at, "--capacity", 100_000, *limits, code=3)
    assert [(budget["name"], budget["met"]) for budget in found["budgets"]] == [
        ("ram", True),
        ("disk", False),
        ("latency", True),
    ]
    assert found["total_disk_bytes"] > found["predicted"]["entries_bytes"] > 20 << 20


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize(("capacity", "dim", "n_classes"), [(1, 1, 2), (300, 64, 18), (1000, 40, 300)])
def test_the_formulas_agree_with_a_full_store(
    tmp_path: Path, capacity: int, dim: int, n_classes: int, dtype: str
) -> None:
    model = ModelMetadata(
        classes=tuple(str(number) for number in range(n_classes)),
        input=InputSpec(name="input", shape=(dim,)),
        dim=dim,
        fingerprint="f" * 64,
        graph_crc32=0,
    )
    random = np.random.default_rng(0)
    with Datastore.create(tmp_path / "me.store", model=model, capacity=capacity, dtype=dtype) as store:
        embeddings = random.standard_normal((capacity, dim)).astype(np.float32)
        probabilities = np.full((capacity, n_classes), 1 / n_classes, np.float32)
        store.add(embeddings, ["1"] * capacity, probabilities, sync=False)
        index = ExactIndex(store)
        index.search(embeddings[:1], 1)
        predicted = formulas.predict(
            capacity, dim=dim, n_model_classes=n_classes, dtype=dtype, columns=index.describe()["columns"]
        )
        assert predicted.entries_bytes == (store.folder / "entries.npy").stat().st_size
        assert predicted.table_bytes == table_bytes(store)
        directions = index.ram_bytes - predicted.index_bytes
        assert 0 <= directions <= 8 * dim * index.describe()["columns"]


def test_budget_that_is_none_is_wrong_usage(watch: Path) -> None:
    refused = edge_sdk("profile", watch / "watch.onnx", "--budget-ram", "much", code=2)
    assert '"much" is no number of bytes' in refused.stderr


def test_a_budget_says_what_it_needs() -> None:
    assert str(Budget("ram", 1 << 20, 3 << 20, "bytes")) == "budget ram 1.0 MB: NOT met, needs 3.0 MB"


def test_the_waterfall_is_a_picture(watch: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="drawing needs the plot extra")
    edge_sdk("profile", watch / "watch.onnx", "--plot", tmp_path / "memory.svg", "--repeats", 10)
    assert b"<svg" in (tmp_path / "memory.svg").read_bytes()
