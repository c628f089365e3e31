"""`edge-sdk doctor`: a killed child is a finding, and every finding that is not fine says what to do in one line."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge_tools.doctor import Finding, Verdict
from edge_tools.doctor.examination import examine_datastore
from edge_tools.doctor.machine import Machine, examine_machine

PI = Machine(
    architecture="aarch64",
    pointer_bits=64,
    python=(3, 11),
    libc="glibc 2.36",
    features=frozenset(("fp", "asimd", "crc32")),
    available=3 << 30,
    throttled=0,
    wheels={"numpy": ["manylinux_2_27_aarch64"], "onnxruntime": ["manylinux_2_28_aarch64"]},
    onnxruntime="1.32.0",
)
"""A Raspberry Pi 4 with Raspberry Pi OS 64-bit."""


@pytest.fixture(scope="module")
def watch(repository: Path) -> Path:
    return repository / "examples" / "watch"


def doctor(*words: object, stubs: Path | None = None, code: int = 0) -> dict[str, Any]:
    """Run the command with a folder of stub libraries in front, and return its findings by subject."""
    path = [str(stubs)] if stubs else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*path, *filter(None, sys.path)])}
    command = [sys.executable, "-m", "edge_tools", "doctor", *(str(word) for word in words), "--json"]
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert finished.returncode == code, finished.stderr + finished.stdout
    return {finding["subject"]: finding for finding in json.loads(finished.stdout)}


def problems(machine: Machine) -> list[Finding]:
    return [finding for finding in examine_machine(machine) if finding.verdict in (Verdict.PROBLEM, Verdict.WARNING)]


def test_a_healthy_machine_is_healthy(watch: Path, tmp_path: Path) -> None:
    found = doctor("--model", watch / "watch.onnx", "--datastore", tmp_path / "me.store")
    assert {found[name]["verdict"] for name in ("numpy", "onnxruntime", "Pillow", "model file", "writing")} == {"ok"}
    assert found["datastore"]["verdict"] == "skipped"


@pytest.mark.parametrize("name", ["numpy", "onnxruntime"])
def test_a_library_that_dies_of_an_illegal_instruction_is_a_finding(name: str, tmp_path: Path) -> None:
    (tmp_path / f"{name}.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGILL)\n")
    found = doctor(stubs=tmp_path, code=1)
    assert found[name]["verdict"] == "problem"
    assert "killed by SIGILL" in found[name]["detail"]
    assert "pip install" in found[name]["advice"]
    assert found["Pillow"]["verdict"] == "ok"


def test_a_library_that_computes_wrong_numbers_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "onnxruntime.py").write_text(
        "class InferenceSession:\n"
        "    def __init__(self, *a, **k): pass\n"
        "    def run(self, outputs, feeds): return [feeds['a']]\n"
    )
    found = doctor(stubs=tmp_path, code=1)
    assert "computes wrong numbers" in found["onnxruntime"]["detail"]


def test_a_damaged_model_file_is_a_finding(watch: Path, tmp_path: Path) -> None:
    content = bytearray((watch / "watch.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "model.onnx").write_bytes(content)
    found = doctor("--model", tmp_path / "model.onnx", code=1)["model file"]
    assert "damaged model file" in found["detail"]
    assert "copy it" in found["advice"]


def test_a_datastore_of_another_model_and_a_damaged_slot_are_findings(
    repository: Path, watch: Path, tmp_path: Path
) -> None:
    store = tmp_path / "me.store"
    shutil.copytree(repository / "tests" / "data" / "store_v1" / "float16.fifo", store)
    found = doctor("--model", watch / "watch.onnx", "--datastore", store, code=1)["datastore"]
    assert found["verdict"] == "problem"
    with (store / "entries.npy").open("r+b") as file:
        file.seek(4096 + 40)
        file.write(b"\xff\xff\xff")
    found = doctor("--datastore", store)["datastore"]
    assert found["verdict"] == "warning"
    assert "damaged slots" in found["detail"]


def test_a_folder_that_others_may_read_is_a_finding(tmp_path: Path) -> None:
    found = {finding.subject: finding for finding in examine_datastore(tmp_path / "new.store", None)}
    assert "privacy" not in found
    (tmp_path / "me.store").mkdir(mode=0o755)
    found = {finding.subject: finding for finding in examine_datastore(tmp_path / "me.store", None)}
    assert found["privacy"].advice.startswith("chmod 700")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_a_finding(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    found = {finding.subject: finding for finding in examine_datastore(tmp_path / "me.store", None)}
    assert "predicts but does not learn" in found["writing"].detail


def test_a_raspberry_pi_is_well() -> None:
    assert problems(PI) == []


def test_32_bits_are_named_with_the_way_out() -> None:
    for machine in (replace(PI, architecture="armv7l", pointer_bits=32), replace(PI, pointer_bits=32)):
        first = problems(machine)[0]
        assert first.verdict is Verdict.PROBLEM
        assert "no onnxruntime for 32-bit" in first.detail
        assert "Raspberry Pi OS 64-bit" in first.advice


def test_what_does_not_fit_the_machine_is_named() -> None:
    cases = {
        "built for manylinux_2_28_x86_64": replace(PI, wheels={"onnxruntime": ["manylinux_2_28_x86_64"]}),
        "illegal instruction on a Raspberry Pi 4": replace(PI, onnxruntime="1.21.0"),
        "needs 3.11": replace(PI, python=(3, 9)),
        "needs 2.28": replace(PI, libc="glibc 2.24"),
        "no wheels for it": replace(PI, libc=""),
        "has no asimd": replace(PI, features=frozenset(("fp",))),
        "60 MB available": replace(PI, available=60 << 20),
        "under-voltage since the start": replace(PI, throttled=0x50000),
        "under-voltage now": replace(PI, throttled=0x50005),
    }
    for words, machine in cases.items():
        (found,) = problems(machine)
        assert words in found.detail
        assert found.advice
        assert "\n" not in found.advice


def test_the_doctor_itself_imports_nothing_native(tmp_path: Path) -> None:
    program = "import sys, edge_tools.commands.doctor\nprint('numpy' in sys.modules, 'onnxruntime' in sys.modules)"
    finished = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert finished.stdout.split() == ["False", "False"]
