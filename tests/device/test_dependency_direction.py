"""Arrows: edge_tools -> edge_export, edge_protonn -> edge_sdk -> numpy, onnxruntime; never back, never across."""

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.device.conftest import Sources

ALLOWED = {
    "edge_sdk": {"numpy", "onnxruntime"},
    "export/edge_export": {"edge_sdk", "numpy", "onnx", "onnxruntime", "onnxscript", "torch"},
    "protonn/edge_protonn": {"edge_sdk", "numpy", "scipy", "sklearn"},
    "tools/edge_tools": {
        *("edge_sdk", "edge_export", "edge_protonn"),
        *("PIL", "annoy", "matplotlib", "numpy", "onnxruntime", "rich", "sklearn", "torch", "typer"),
    },
    "tests/device": {
        *("edge_sdk", "edge_tools", "examples", "tests"),
        *("PIL", "hypothesis", "numpy", "onnxruntime", "pyarrow", "pytest", "typer"),
    },
}
"""What the files of a folder may import, beside the standard library and their own package."""

THE_ONE_FILE = {
    ("edge_sdk/neighbors/annoy.py", "annoy"),
    ("edge_sdk/inputs/audio.py", "scipy"),
    ("edge_sdk/inputs/audio.py", "soxr"),
    ("edge_sdk/inputs/images.py", "PIL"),
    ("edge_sdk/inputs/sources/parquet.py", "pyarrow"),
    ("tools/edge_tools/benchmarks/compress.py", "examples"),  # the watch's people; benchmarks run in a checkout
    ("tools/edge_tools/benchmarks/compress_choose.py", "examples"),
    ("tools/edge_tools/benchmarks/reproduce/clients.py", "examples"),
    *(("tools/edge_tools/benchmarks/search_peers.py", peer) for peer in ("faiss", "hnswlib", "usearch")),
}
"""Where the runtime may use what it does not load at import time, and the benchmark what it compares with."""


@pytest.mark.parametrize("folder", ALLOWED)
def test_imports_follow_the_arrows(sources: "Sources", folder: str) -> None:
    allowed = ALLOWED[folder] | {folder.rpartition("/")[2]} | set(sys.stdlib_module_names)
    wrong = [
        f"{file}:{line} imports {name}"
        for file, line, name in sources.imports(folder)
        if name not in allowed and (file, name) not in THE_ONE_FILE
    ]
    assert not wrong, "\n".join(wrong)
