"""A full datastore of real embeddings: 10 000 pictures through the model file, minutes the first time and kept.

    python -m edge_tools.benchmarks.full_store mobilenetv2.onnx me.store 10000
"""

import shutil
import sys
from pathlib import Path

from edge_sdk import Datastore, Predictor
from edge_tools.benchmarks.pictures import LABELS, make_pictures
from edge_tools.progress import progress

_AT_ONCE = 32


def fill_store(model: Path, folder: Path, n_entries: int) -> None:
    """Make a datastore of `n_entries` entries, unless it is there already and full.

    Args:
        model: a model file that takes float32 (3, side, side) and knows the kinds of `pictures`.
        folder: where; one of another size or model is replaced.
        n_entries: its capacity, all of which is filled.
    """
    if folder.exists():
        with Datastore.open(folder, read_only=True) as store:
            if len(store) == n_entries:
                return
        shutil.rmtree(folder)
    with Predictor.open(model, folder, capacity=n_entries) as predictor:
        side = predictor.metadata.input.shape[-1]
        starts = range(0, n_entries, _AT_ONCE)
        for start in progress(starts, total=len(starts), label=f"filling {folder.name}"):
            pictures, kinds = make_pictures(min(_AT_ONCE, n_entries - start), side=side, seed=1000 + start)
            labels = [LABELS[kind] for kind in kinds.tolist()]
            predictor.learn(pictures, labels, sync=False, allow_duplicates=True, tune=False)
        predictor.tune()
        predictor.predict(make_pictures(1, side=side)[0][0])  # chooses the index and keeps the choice


if __name__ == "__main__":
    fill_store(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
