"""Makes store_v1/: golden datastores of format version 1, which every later version must open as they are.

Run once, when the format was fixed; a later format gets a folder of its own. The entries are functions of their source
(`expected.json` says them in full), so that no code of this version is needed to judge what a later one reads.

    python tests/data/make_store_v1.py
"""

import json
import shutil
from pathlib import Path

import numpy as np

from edge_sdk.datastore import Datastore
from edge_sdk.model import InputSpec, ModelMetadata

DIM = 6


def entries(sources: list[int], n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings (n, DIM) and probabilities (n, n_classes) of some sources, exact in every dtype."""
    embeddings = np.array(
        [[127.0, *(((source * 37 + i * 11) % 255) - 127.0 for i in range(DIM - 1))] for source in sources]
    )
    probabilities = np.zeros((len(sources), n_classes))
    for row, source in enumerate(sources):
        probabilities[row, source % n_classes] = 0.5
        probabilities[row, (source + 1) % n_classes] = 0.25
        probabilities[row, (source + 2) % n_classes] = 0.25
    return embeddings.astype(np.float32), probabilities.astype(np.float32)


def make(folder: Path, *, policy: str, dtype: str, classes: tuple[str, ...]) -> dict[str, object]:
    """One store that has turned over, forgotten its newest entry and taken a new class; returns what it holds."""
    shutil.rmtree(folder, ignore_errors=True)
    model = ModelMetadata(classes, InputSpec("input", (DIM,)), DIM, fingerprint="0123456789abcdef" * 4, graph_crc32=0)
    with Datastore.create(folder, model=model, capacity=5, policy=policy, dtype=dtype, allow_new_classes=True) as store:
        n = 4 if policy == "fixed" else 8
        for source in range(1, n + 1):
            embeddings, probabilities = entries([source], len(classes))
            label = "new class é" if source == n - 1 else classes[source % 3]
            store.add(embeddings, [label], probabilities, sources=[source])
        store.forget(sequences=[n])
        store.save_interpolation({"interpolation_weight": 0.25, "kernel": "laplacian", "bandwidth": 3.5, "k": 4})
        slots = store.table.order
        if dtype == "float16" and len(classes) < 100:
            lost = int(slots[0])
            slots = slots[1:]
        else:
            lost = -1
        held = {
            "sequences": store.table.sequences[slots].tolist(),
            "sources": store.table.sources[slots].tolist(),
            "labels": [store.classes[label] for label in store.table.labels[slots]],
            "embeddings": store.embeddings(slots).tolist(),
            "probabilities": [[[i, float(p)] for i, p in enumerate(row) if p] for row in store.probabilities(slots)],
            "classes": list(store.classes),
            "capacity": store.capacity,
            "policy": policy,
            "dtype": dtype,
            "damaged": int(lost >= 0),
            "interpolation": store.interpolation,
            "next_sequence_above": n,
        }
        size, header = store.manifest.layout.n_bytes, store.manifest.layout.header(store.capacity)
    if lost >= 0:
        raw = bytearray((folder / "entries.npy").read_bytes())
        raw[len(header) + lost * size + size // 2] ^= 0x10
        (folder / "entries.npy").write_bytes(raw)
    (folder / "manifest.json.new").unlink()
    (folder / "lock").unlink()  # 16 KB that mean nothing to another process
    return held


def main() -> None:
    """Write all golden stores and what they hold."""
    top = Path(__file__).with_name("store_v1")
    few, many = ("left", "right", "up"), tuple(f"class {i}" for i in range(300))
    expected = {
        "float16.fifo": make(top / "float16.fifo", policy="fifo", dtype="float16", classes=few),
        "float32.concatenate": make(top / "float32.concatenate", policy="concatenate", dtype="float32", classes=few),
        "int8.balanced": make(top / "int8.balanced", policy="balanced", dtype="int8", classes=few),
        "float16.many": make(top / "float16.many", policy="fixed", dtype="float16", classes=many),
    }
    (top / "expected.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
