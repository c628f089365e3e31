"""What is the wrist doing? A global model that has never seen this person, and learns from corrections.

python -m examples.raspberry_pi.activity --replay examples/watch/users/1603/test.npz --teach
python -m examples.raspberry_pi.activity --buttons 17=walking,27=typing    # a board with an MPU-6050
"""

import argparse
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from edge_sdk import EdgeSDKError, Predictor
from examples.raspberry_pi.motion import Window, replay, sense
from examples.raspberry_pi.teaching import Teacher, correct, teacher_of

MODEL = Path(__file__).parent.parent / "watch" / "watch.onnx"


def main() -> None:
    """Run until the recording ends, or for ever."""
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # systemd stops it: leave by the context manager
    try:
        with Predictor.open(options.model, options.datastore, policy="balanced") as predictor:
            windows = sense() if options.replay is None else replay(options.replay, speed=options.speed)
            watch(predictor, windows, teacher_of(predictor, buttons=options.buttons), teach=options.teach)
    except EdgeSDKError as error:
        sys.exit(f"activity: {error}")
    except KeyboardInterrupt:
        print()


def watch(predictor: Predictor, windows: Iterator[Window], corrections: Teacher, *, teach: bool) -> None:
    """Say what each window is, and learn what somebody says it was.

    Args:
        predictor: model file and datastore.
        windows: five seconds each.
        corrections: who may say that the last answer was wrong.
        teach: let the recording's own labels correct every wrong answer.
    """
    right: list[bool] = []
    right_alone: list[bool] = []
    shown = None
    for number, window in enumerate(windows, start=1):
        correct(predictor, shown, corrections.correction())  # who corrects has seen the last answer, not the next
        answer = predictor.explain(window.values)
        print(f"{number:5d}  {answer.label:16s} {answer.probability:4.0%}  {answer.source}", flush=True)
        if window.label is not None:
            right.append(answer.label == window.label)
            right_alone.append(predictor.classes[int(answer.global_probabilities.argmax())] == window.label)
            if teach and not right[-1]:
                correct(predictor, window.values, window.label)
        shown = window.values
    correct(predictor, shown, corrections.correction())
    if right:
        print(
            f"right: {sum(right) / len(right):.0%} with what was learnt ({len(predictor.datastore)} entries), "
            f"{sum(right_alone) / len(right):.0%} by the global model alone"
        )


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--datastore", type=Path, default=Path("activity.store"))
    parser.add_argument("--replay", type=Path, help="an .npz of windows instead of a sensor")
    parser.add_argument("--speed", type=float, default=0.0, help="of the replay: 1 is real time, 0 as fast as it goes")
    parser.add_argument("--teach", action="store_true", help="let the recording's labels correct wrong answers")
    parser.add_argument("--buttons", help="push buttons, as 17=walking,27=typing (BCM pin numbers)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
