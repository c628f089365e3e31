"""The Raspberry Pi examples by replay: every command of their README, corrections by keys and by mock pins."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_sdk import Predictor
from examples.raspberry_pi.activity import MODEL, watch
from examples.raspberry_pi.camera import look
from examples.raspberry_pi.draw_pictures import draw_pictures
from examples.raspberry_pi.frames import Frame, from_folder, from_stream
from examples.raspberry_pi.motion import Window, replay
from examples.raspberry_pi.teaching import Buttons, Keys, Nobody, parse_buttons

BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS_A_BOARD = ("python3", ".venv-pi/bin/pip")


@pytest.fixture
def pi(repository: Path) -> Path:
    return repository / "examples" / "raspberry_pi"


def commands(readme: str) -> Iterator[list[str]]:
    """The words of every command that its sh blocks show, with this interpreter in the place of the board's."""
    for block in BLOCK.findall(readme):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] not in NEEDS_A_BOARD:
                program = [sys.executable, "-m", "edge_tools"] if words[0].endswith("/edge-sdk") else [sys.executable]
                yield [*program, *words[1:]]


def test_every_command_of_the_readme_runs(pi: Path, repository: Path, tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(repository / "examples")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    outputs = []
    for command in commands((pi / "README.md").read_text(encoding="utf-8")):
        finished = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL
        )
        assert finished.returncode == 0, f"{command[1:]}: {finished.stdout[-500:]} {finished.stderr}"
        outputs.append(finished.stdout)
    assert len(outputs) == 6
    with_memory, alone = (int(share) for share in re.findall(r"(\d+)% ", outputs[2].splitlines()[-1]))
    assert with_memory >= alone + 5
    first, second = (int(share) for share in re.findall(r"(\d+)% of", outputs[5].splitlines()[-1]))
    assert second > first


def test_a_typed_label_is_learnt_from_the_window_it_was_typed_for(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = repository / "examples" / "watch" / "users" / "1603" / "test.npz"
    values = [window.values for window, _ in zip(replay(recording, speed=0), range(3), strict=False)]
    reader, writer = os.pipe()

    def typing_along() -> Iterator[Window]:
        os.write(writer, b"sitting\n")  # before anything was shown: about nothing
        for window, typed in zip(values, (b"wal\n", b"nonsense\n", b"typing\n"), strict=True):
            yield Window(window, None)
            os.write(writer, typed)

    with Predictor.open(MODEL, tmp_path / "me.store") as predictor:
        watch(predictor, typing_along(), Keys(predictor.classes, reader), teach=False)
        nearest = [predictor.explain(values[number]).voters[0] for number in (0, 2)]
        assert [(voter.label, voter.distance < 0.1) for voter in nearest] == [("walking", True), ("typing", True)]
        assert len(predictor.datastore) == 2
    printed = capsys.readouterr()
    assert "learnt: that was walking" in printed.out
    assert 'unknown label "nonsense"' in printed.err
    os.close(writer)
    os.close(reader)


def test_keys_wait_for_nobody_and_survive_the_end_of_their_input() -> None:
    reader, writer = os.pipe()
    keys = Keys(("typing", "walking", "writing"), reader)
    assert keys.correction() is None
    os.write(writer, b"wr")
    assert keys.correction() is None
    os.write(writer, b"iting\nw\n")
    assert [keys.correction() for _ in range(3)] == ["writing", "w", None]
    os.close(writer)
    assert keys.correction() is None
    os.close(reader)


def test_a_pressed_button_is_its_label(repository: Path, tmp_path: Path) -> None:
    gpiozero = pytest.importorskip("gpiozero", reason="gpiozero is not installed")
    mock = pytest.importorskip("gpiozero.pins.mock")
    factory = gpiozero.Device.pin_factory = mock.MockFactory()
    buttons = Buttons(parse_buttons("17=walking, 27=typing"))
    try:
        assert buttons.correction() is None
        values = next(replay(repository / "examples" / "watch" / "users" / "1603" / "test.npz", speed=0)).values

        def pressing() -> Iterator[Window]:
            yield Window(values, None)
            factory.pin(27).drive_low()
            factory.pin(27).drive_high()

        with Predictor.open(MODEL, tmp_path / "me.store") as predictor:
            watch(predictor, pressing(), buttons, teach=False)
            assert predictor.explain(values).voters[0].label == "typing"
            assert len(predictor.datastore) == 1
    finally:
        buttons.close()
        factory.reset()


def test_a_stream_of_jpeg_pictures_gives_the_pictures_of_the_folder(pi: Path, tmp_path: Path) -> None:
    draw_pictures(tmp_path / "pictures")
    files = list(from_folder(tmp_path / "pictures"))
    stream_file = tmp_path / "all.mjpeg"
    stream_file.write_bytes(b"".join(Path(str(frame.picture)).read_bytes() for frame in files) + b"\xff\xd8")
    with stream_file.open("rb") as stream:
        streamed = list(from_stream(stream))
    assert [frame.picture for frame in streamed] == [Path(str(frame.picture)).read_bytes() for frame in files]
    with Predictor.open(pi / "looks.onnx", tmp_path / "me.store", allow_new_classes=True) as predictor:
        for one, other in zip(files[:3], streamed[:3], strict=True):
            assert np.array_equal(predictor.predict_proba(one.picture), predictor.predict_proba(other.picture))


def test_a_picture_that_cannot_be_read_does_not_stop_the_camera(
    pi: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw_pictures(tmp_path / "pictures")
    good = next(from_folder(tmp_path / "pictures"))
    with Predictor.open(pi / "looks.onnx", tmp_path / "me.store", allow_new_classes=True) as predictor:
        look(predictor, iter([Frame(b"\xff\xd8 no picture", None), good]), Nobody(), teach=True)
    printed = capsys.readouterr()
    assert "    1  " in printed.err
    assert "learnt: that was ball" in printed.out


def test_the_unit_keeps_what_was_learnt_on_the_device(pi: Path) -> None:
    unit = (pi / "edge-sdk-activity.service").read_text(encoding="utf-8")
    for line in ("PrivateNetwork=yes", "StateDirectoryMode=0700", "ProtectSystem=strict"):
        assert line in unit.splitlines()
