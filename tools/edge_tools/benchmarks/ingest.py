"""Ingest speed: 50 000 small pictures into a datastore, against bare onnxruntime on the same pixels in equal batches.

Both are timed in turn on every batch of one run, so a busy machine slows both; the ratio of their processor times
leaves out what others do to the disk and the clock. Decoding is timed apart: it is the same work for whoever reads the
files. What remains of `ingest` is checking, digesting, looking for duplicates, encoding and storing.

    python -m edge_tools.benchmarks.ingest
"""

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
from PIL import Image

from edge_sdk import Encoder, Predictor
from edge_sdk.encoder import BATCH_SIZE
from edge_sdk.inputs import Batch, open_source
from edge_sdk.inputs.ingest import ingest, vetted
from edge_sdk.model import EMBEDDING_OUTPUT, PROBABILITIES_OUTPUT
from edge_tools.commands.ingest import BATCH_SIZE as READ_AT_ONCE
from edge_tools.output import print_json, say
from edge_tools.progress import progress

if TYPE_CHECKING:
    import torch

MODEL, PICTURES = "model.onnx", "pictures"
N_CLASSES = 10
DIM = 256
SAMPLES_OF_MEMORY = 10


def network() -> "torch.nn.Module":
    """The CIFAR-10 network of the benchmarks with random weights: speed does not depend on them."""
    import torch

    from edge_tools.benchmarks.cifar_net import SmallNet

    torch.manual_seed(0)
    return SmallNet(DIM)


def make_model(folder: Path) -> Path:
    """A model file for 32 x 32 pictures as uint8."""
    import torch

    from edge_export import export_model
    from edge_export.preprocess import Preprocess

    checkpoint = folder / "model.pt"
    torch.save(network().state_dict(), checkpoint)
    export_model(
        checkpoint,
        folder / MODEL,
        model="edge_tools.benchmarks.ingest:network",
        input_shape=(3, 32, 32),
        preprocess=Preprocess(uint8=True, channels_last=True),
    )
    return folder / MODEL


def make_pictures(folder: Path, n: int) -> None:
    """`n` JPEG files of 32 x 32 random pixels, one sub-folder a class."""
    generator = np.random.default_rng(0)
    for label in range(N_CLASSES):
        (folder / str(label)).mkdir(parents=True)
    for number in progress(range(n), total=n, label="making pictures"):
        coarse = generator.integers(0, 256, (8, 8, 3), np.uint8)
        image = Image.fromarray(coarse).resize((32, 32))
        image.save(folder / str(number % N_CLASSES) / f"{number:06}.jpg", quality=90)


class Stopwatch:
    """Batches of a source, each run through a bare session before it is handed on, with the time of every part."""

    def __init__(self, session: onnxruntime.InferenceSession, input_name: str) -> None:
        self._session = session
        self._input_name = input_name
        self.decoding = self.bare = self.learning = 0.0
        self.bare_cpu = self.learning_cpu = 0.0
        self.n_inputs = 0
        self.resident_mb: list[float] = []

    def watch(self, batches: Iterator[Batch], *, every: int) -> Iterator[Batch]:
        """The same batches; `every` so many inputs the process's memory is noted."""
        while True:
            start = time.perf_counter()
            batch = next(batches, None)
            self.decoding += time.perf_counter() - start
            if batch is None:
                return
            start, start_cpu = time.perf_counter(), time.thread_time()
            for row in range(0, len(batch), BATCH_SIZE):
                self._session.run(
                    [EMBEDDING_OUTPUT, PROBABILITIES_OUTPUT], {self._input_name: batch.x[row : row + BATCH_SIZE]}
                )
            self.bare += time.perf_counter() - start
            self.bare_cpu += time.thread_time() - start_cpu
            start, start_cpu = time.perf_counter(), time.thread_time()
            yield batch
            self.learning += time.perf_counter() - start
            self.learning_cpu += time.thread_time() - start_cpu
            self.n_inputs += len(batch)
            if self.n_inputs // every > len(self.resident_mb):
                self.resident_mb.append(resident_mb())


def resident_mb() -> float:
    """Megabytes of this process in memory now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20


def bare_session(model: Path) -> onnxruntime.InferenceSession:
    """A session with the settings of `Encoder`, and nothing around it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def measure(folder: Path, *, capacity: int) -> dict[str, float]:
    """Ingest the pictures in `folder`; rates in inputs a second. For a process that has not loaded torch."""
    model = folder / MODEL
    metadata = Encoder.open(model).metadata
    source = open_source(folder / PICTURES, metadata.input, labels="required")
    stopwatch = Stopwatch(bare_session(model), metadata.input.name)
    with Predictor.open(model, folder / "me.store", capacity=capacity, threads=1) as predictor:
        batches = vetted(source.batches(READ_AT_ONCE), predictor.classes)
        done = ingest(
            stopwatch.watch(batches, every=max(1, (source.count or 0) // SAMPLES_OF_MEMORY)), lambda: predictor
        )
    return {
        "images": done.added,
        "duplicates": done.duplicates,
        "refused": done.refused,
        "capacity": capacity,
        "bare_per_s": round(done.added / stopwatch.bare, 1),
        "ingest_per_s": round(done.added / stopwatch.learning, 1),
        "decode_per_s": round(done.added / stopwatch.decoding, 1),
        "ratio": round(stopwatch.bare / stopwatch.learning, 3),
        "cpu_ratio": round(stopwatch.bare_cpu / stopwatch.learning_cpu, 3),
        "rss_mb_first": round(stopwatch.resident_mb[0], 1),
        "rss_mb_last": round(stopwatch.resident_mb[-1], 1),
    }


def main() -> int:
    """Measure, print one JSON object, and fail when ingest reaches less than 0.8 of bare onnxruntime."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--capacity", type=int, default=50_000)
    options = parser.parse_args()
    say(f"ingest of {options.images} pictures, one thread, session runs of {BATCH_SIZE}")
    with tempfile.TemporaryDirectory(prefix="edge-sdk-bench-") as name:
        folder = Path(name)
        make_model(folder)
        make_pictures(folder / PICTURES, options.images)
        with get_context("spawn").Pool(1) as pool:
            result = pool.apply(measure, (folder,), {"capacity": options.capacity})
    print_json(result)
    return 0 if result["ratio"] >= 0.8 else 3


if __name__ == "__main__":
    sys.exit(main())
