"""`import edge_sdk` stays light: an application on a small board pays for numpy and onnxruntime, nothing else."""

import os
import subprocess
import sys
from pathlib import Path

HEAVY = {"PIL", "annoy", "matplotlib", "onnx", "onnxscript", "rich", "scipy", "sklearn", "torch", "typer"}


def _loaded_by(statement: str, folder: Path) -> set[str]:
    """Top-level modules of a fresh interpreter, started in an empty folder, after `statement`."""
    program = f"{statement}\nimport sys\nsys.stdout.write(' '.join({{name.partition('.')[0] for name in sys.modules}}))"
    path = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    run = subprocess.run(command, cwd=folder, env=path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.split())


def test_importing_edge_sdk_loads_nothing_heavy(tmp_path: Path) -> None:
    assert _loaded_by("from edge_sdk import *", tmp_path) & HEAVY == set()


def test_importing_edge_sdk_loads_only_numpy_and_onnxruntime_from_outside(tmp_path: Path) -> None:
    ours = _loaded_by("from edge_sdk import *", tmp_path) - _loaded_by("import numpy, onnxruntime", tmp_path)
    assert ours - set(sys.stdlib_module_names) == {"edge_sdk"}


def test_importing_edge_sdk_alone_loads_nothing_and_a_datastore_needs_no_onnxruntime(tmp_path: Path) -> None:
    assert not _loaded_by("import edge_sdk", tmp_path) & {"numpy", "onnxruntime"}
    assert "onnxruntime" not in _loaded_by("from edge_sdk import Datastore", tmp_path)


def test_importing_the_command_line_loads_nothing_of_the_workstation(tmp_path: Path) -> None:
    assert _loaded_by("import edge_tools.cli", tmp_path) & (HEAVY - {"rich", "typer"}) == set()


def test_importing_edge_sdk_loads_no_library_that_a_prediction_does_not_need(tmp_path: Path) -> None:
    """OpenSSL, compressors and the like: 5 MB of resident memory and a tenth of the start (docs/footprint.md)."""
    rare = {"bz2", "difflib", "hashlib", "hmac", "lzma", "secrets", "shutil", "subprocess", "tempfile", "zipfile"}
    ours = _loaded_by("from edge_sdk import Predictor", tmp_path) - _loaded_by("import numpy, onnxruntime", tmp_path)
    assert ours & rare == set()
