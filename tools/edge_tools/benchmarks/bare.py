"""Run in a fresh interpreter: the same model file in the same session without edge_sdk, and what the process then uses.

The arguments are the model file, the input's shape as JSON, the session's threads, and how many runs.
"""

import json
import sys

from edge_tools.probe import Reporter


def main(model: str, shape: list[int], threads: int, runs: int) -> None:
    """Run the model and write one line as `edge_tools.probe` does."""
    import numpy as np
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    sample = np.zeros((1, *shape), np.float32)
    for _ in range(runs):
        session.run(None, {session.get_inputs()[0].name: sample})
    Reporter(0.0).step("bare")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
