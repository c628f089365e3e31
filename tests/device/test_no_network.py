"""Nothing leaves the device: its whole story in a network namespace without interfaces, and no attempt at a socket."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

GUARD = """
import os, sys

def watch(event, arguments):
    if event.startswith("socket.") or event in ("urllib.Request", "ftplib.connect", "http.client.connect"):
        with open(os.environ["SOCKET_ATTEMPTS"], "a") as file:
            file.write(event + "\\n")

sys.addaudithook(watch)
"""
"""Runs at the start of every Python process, the children's too."""

STORY = """
import sys
import numpy as np
from edge_sdk import Predictor
from edge_tools import cli

model, learn, test, store = sys.argv[1:5]

def edge_sdk(*words, code=0):
    sys.argv = ["edge-sdk", *words]
    try:
        cli.main()
    except SystemExit as stopped:
        assert (stopped.code or 0) == code, (words, stopped.code)

at = ("--model", model, "--datastore", store)
edge_sdk("ingest", learn, *at)
edge_sdk("tune", store)
edge_sdk("evaluate", test, *at)
edge_sdk("predict", test, *at, "--json")
edge_sdk("info", store)
edge_sdk("forget", store, "--label", "typing")
edge_sdk("backup", store, store + ".zip")
edge_sdk("restore", store + ".zip", store + ".again")
edge_sdk("profile", model, "--datastore", store, "--repeats", "10")
edge_sdk("doctor", *at)
windows = np.load(test)["x"]
with Predictor.open(model, store) as predictor:
    predictor.learn(windows[0], "walking")
    predictor.predict(windows)
    predictor.explain(windows[1])
"""

Story = Callable[[list[str], dict[str, str]], Path]


@pytest.fixture
def tell(repository: Path, tmp_path: Path) -> Story:
    """Run the story behind a prefix of words; returns its datastore."""

    def run(prefix: list[str], extra: dict[str, str]) -> Path:
        watch, store = repository / "examples" / "watch", tmp_path / "me.store"
        user = watch / "users" / "1603"
        story = tmp_path / "story.py"
        story.write_text(STORY)
        path = os.pathsep.join([*extra.get("PYTHONPATH", "").split(os.pathsep), *filter(None, sys.path)])
        files = (watch / "watch.onnx", user / "learn.npz", user / "test.npz", store)
        finished = subprocess.run(
            [*prefix, sys.executable, str(story), *(str(file) for file in files)],
            env={**os.environ, **extra, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert finished.returncode == 0, finished.stderr[-2000:]
        return store

    return run


def without_network() -> list[str]:
    """The words that start a program in a network namespace of its own, in which not even the loopback is up."""
    for words in (["unshare", "--net"], ["unshare", "--user", "--map-root-user", "--net"]):
        if shutil.which(words[0]) is None:
            break
        if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0:
            return words
    pytest.skip("this machine lets nobody make a network namespace")


def test_the_whole_story_runs_without_a_network_and_opens_no_socket(tell: Story, tmp_path: Path) -> None:
    guard, attempts = tmp_path / "guard", tmp_path / "attempts"
    guard.mkdir()
    (guard / "sitecustomize.py").write_text(GUARD)
    store = tell(without_network(), {"PYTHONPATH": str(guard), "SOCKET_ATTEMPTS": str(attempts)})
    assert not attempts.exists(), attempts.read_text()
    assert stat.S_IMODE(store.stat().st_mode) == 0o700


def test_the_guard_sees_a_socket(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(GUARD)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "SOCKET_ATTEMPTS": str(tmp_path / "attempts")}
    subprocess.run([sys.executable, "-c", "import socket; socket.socket().close()"], env=environment, check=True)
    assert "socket.__new__" in (tmp_path / "attempts").read_text()


def test_an_application_that_loads_onnxruntime_first_is_silenced_too(tmp_path: Path) -> None:
    program = "import os, onnxruntime, edge_sdk; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    path = os.pathsep.join(filter(None, sys.path))
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    finished = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert finished.stdout.strip() == "1"


def test_no_library_opens_a_socket_below_python(tell: Story, tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None or subprocess.run([strace, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("strace is not installed or may not trace")
    log = tmp_path / "calls"
    tell([strace, "-f", "-qq", "-e", "trace=socket,connect", "-e", "signal=none", "-o", str(log)], {})
    assert log.read_text() == ""
