"""What the export tests share: exporting a live module, running a file, and holding a refusal to one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edge_export import ExportReport, export_model
from edge_export.parity import open_session, run
from edge_sdk.errors import EdgeSDKError


def export_module(net: nn.Module, folder: Path, shape: tuple[int, ...], **options: Any) -> ExportReport:
    """Pickle a module whole, as many people do, and export it to model.onnx."""
    torch.save(net, folder / "model.pt")
    return export_model(
        folder / "model.pt", folder / "model.onnx", input_shape=shape, **{"trust_pickle": True, **options}
    )


def answers(path: Path, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(embedding, probabilities) that a model file gives."""
    return run(open_session(path), x)


def normal(*shape: int) -> np.ndarray:
    """Seeded standard normal numbers, float32."""
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def refused(call: Callable[[], object], *words: str) -> None:
    """Assert that a call is refused by one line that holds these words."""
    with pytest.raises(EdgeSDKError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message, message
    assert "Traceback" not in message, message
    for word in words:
        assert word in message, message
