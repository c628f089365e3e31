"""SessionSettings: how a model file is run, chosen for a small board.

Every default stands beside what it was measured to be worth (docs/footprint.md has the commands). They are in one
frozen object, so that an application which knows better says so once, to `Encoder.open` or `Predictor.open`.
"""

import os
from dataclasses import dataclass
from math import prod

import numpy as np

from edge_sdk.errors import ConfigError
from edge_sdk.model import InputSpec
from edge_sdk.runtime import onnxruntime

MOST_THREADS = 4
_BLOCK_BYTES = 128 * 1024
_MOST_ROWS = 32


@dataclass(frozen=True)
class SessionSettings:
    """Settings of one ONNX Runtime session."""

    threads: int = 0
    """Of one run of the model; 0: the processors this process may use, at most 4. Counted from the allowed set and not
    from the machine: onnxruntime's own default pins a thread to every core, which fails in a container that has
    fewer."""

    spinning: bool = False
    """Whether idle threads wait in a loop. MobileNetV2 with two threads takes 7.0 ms without and 6.3 with it, but 14
    instead of 44 ms of processor time, and an idle board stays cold."""

    memory_arena: bool = True
    """Whether freed buffers are kept for the next run. Without it MobileNetV2 peaks at 98 to 126 MB instead of 99, and
    takes a tenth more processor time."""

    memory_pattern: bool = False
    """Whether buffers are planned anew for every batch size. It costs MobileNetV2 1 to 2 MB and gains nothing that
    can be measured; with the batch sizes of real callers there would be one plan for each."""

    most_rows: int = 0
    """Rows of one run, at least 1; 0: as many as 128 KB of input hold, at most 32. Activations grow with the rows: 32
    pictures of 224 × 224 at once take 431 MB instead of 99 and half as much processor time again for each, while 32
    windows of the watch take 1 MB more and 0.049 instead of 0.069 ms for each. Rows are not padded to one size: 5 000
    runs of changing sizes end 0.6 MB above 500."""

    def __post_init__(self) -> None:
        if self.threads < 0 or self.most_rows < 0:
            raise ConfigError(
                f"threads and most_rows are at least 1, or 0 for the default; got {self.threads} and {self.most_rows}"
            )

    def n_threads(self) -> int:
        """Threads of one run on this machine."""
        return self.threads or min(MOST_THREADS, len(os.sched_getaffinity(0)))

    def n_rows(self, spec: InputSpec) -> int:
        """Rows of one run for a model file's input."""
        sample_bytes = max(1, prod(spec.shape) * np.dtype(spec.dtype).itemsize)
        return self.most_rows or max(1, min(_MOST_ROWS, _BLOCK_BYTES // sample_bytes))

    def options(self) -> onnxruntime.SessionOptions:
        """What ONNX Runtime takes."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.n_threads()
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", str(int(self.spinning)))
        options.enable_cpu_mem_arena = self.memory_arena
        options.enable_mem_pattern = self.memory_pattern
        options.log_severity_level = 3  # errors: a board without a graphics card is warned of that at every start
        return options
