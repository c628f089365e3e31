"""What is in front of the camera? It knows nothing to begin with, and everything you have shown it once or twice.

    python -m examples.raspberry_pi.camera --folder pictures --teach
    python -m examples.raspberry_pi.camera                           # a board with a camera; type a label, press Enter

Any model file for pictures will do (--model); the one here looks at colours and edges and has learnt nothing.
"""

import argparse
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from edge_sdk import EdgeSDKError, Predictor
from examples.raspberry_pi.frames import Frame, from_camera, from_folder, from_stream
from examples.raspberry_pi.teaching import Teacher, correct, teacher_of

MODEL = Path(__file__).parent / "looks.onnx"


def main() -> None:
    """Run until the pictures end, or for ever."""
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    # Without a model of its own opinion the memory alone answers.
    weight = 1.0 if options.model == MODEL else None
    try:
        with Predictor.open(
            options.model, options.datastore, allow_new_classes=True, interpolation_weight=weight
        ) as predictor:
            look(predictor, frames(options), teacher_of(predictor, buttons=options.buttons), teach=options.teach)
    except EdgeSDKError as error:
        sys.exit(f"camera: {error}")
    except KeyboardInterrupt:
        print()


def look(predictor: Predictor, pictures: Iterator[Frame], corrections: Teacher, *, teach: bool) -> None:
    """Say what each picture shows, and learn what somebody says it shows.

    Args:
        predictor: model file and datastore.
        pictures: one after the other.
        corrections: who may say that the last answer was wrong.
        teach: let the folder's labels correct every wrong answer.
    """
    verdicts = []
    shown = None
    for number, frame in enumerate(pictures, start=1):
        correct(predictor, shown, corrections.correction())  # who corrects has seen the last answer, not the next
        try:
            answer = predictor.explain(frame.picture)
        except EdgeSDKError as error:  # one bad picture: go on
            print(f"{number:5d}  {error}", file=sys.stderr, flush=True)
            continue
        print(f"{number:5d}  {answer.label:16s} {answer.probability:4.0%}", flush=True)
        if frame.label is not None:
            verdicts.append(answer.label == frame.label)
            if teach and not verdicts[-1]:
                correct(predictor, frame.picture, frame.label)
        shown = frame.picture
    correct(predictor, shown, corrections.correction())
    if verdicts:
        half = len(verdicts) // 2
        first, second = verdicts[:half], verdicts[half:]
        print(
            f"right: {sum(first) / max(1, half):.0%} of the first half, {sum(second) / len(second):.0%} of the second; "
            f"{len(predictor.datastore)} entries"
        )


def frames(options: argparse.Namespace) -> Iterator[Frame]:
    if options.folder is not None:
        return from_folder(options.folder)
    if options.stream is not None:
        return from_stream(sys.stdin.buffer if options.stream == "-" else open(options.stream, "rb"))
    return from_camera(seconds=options.seconds)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", type=Path, default=MODEL)
    parser.add_argument("--datastore", type=Path, default=Path("camera.store"))
    parser.add_argument("--folder", type=Path, help="pictures instead of a camera; subfolders are labels")
    parser.add_argument("--stream", help="a Motion JPEG file instead of a camera, - for standard input")
    parser.add_argument("--seconds", type=float, default=1.0, help="between two pictures of the camera")
    parser.add_argument("--teach", action="store_true", help="let the folder's labels correct wrong answers")
    parser.add_argument("--buttons", help="push buttons, as 17=cup,27=phone (BCM pin numbers)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
