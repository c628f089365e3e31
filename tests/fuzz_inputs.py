"""Fuzz: mutated files through every door, in a child that may not crash, hang or grow.

Each round takes a good file, damages it (bytes flipped, cut, repeated, overwritten by numbers that matter, spliced with
another file), and reads it to the end. The only answers are samples of the right shape, refused inputs, or an
`InputError`; each of them in one line. The seed and number of a round make it again:

    python tests/fuzz_inputs.py --files 100000 --seed 0
    python tests/fuzz_inputs.py --only 4711 --seed 0 --keep FOLDER
"""

import argparse
import importlib.util
import json
import logging
import random
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

from edge_sdk.errors import EdgeSDKError
from edge_sdk.inputs import open_source
from edge_sdk.model import InputSpec

PICTURES = InputSpec(
    name="x", shape=(3, 16, 16), dtype="float32", kind="image", preprocessing={"background": [9, 9, 9]}
)
NUMBERS = InputSpec(name="x", shape=(2, 3), dtype="float32")
SOUNDS = InputSpec(
    name="x", shape=(800,), dtype="float32", kind="audio", preprocessing={"rate": 8000, "fit": "pad-or-crop"}
)
DOORS = ("image", "image", "npz", "csv", "jsonl", "wav")
"""Pictures twice, because theirs is the largest room for faults."""

LONGEST_SECONDS = 5.0
WORDS = (
    b"nan",
    b"inf",
    b"1e999",
    b"-",
    b'"',
    b"\n",
    b",",
    b";",
    b"\0",
    b"[",
    b"{",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"0" * 50,
)
NUMBERS_THAT_MATTER = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF)


class Seed(NamedTuple):
    """One good file."""

    door: str
    name: str
    content: bytes
    spec: InputSpec


class Result(NamedTuple):
    """What one mutated file did."""

    door: str
    outcome: str
    """"read", "refused" (in part or as a whole), or what went wrong."""

    seconds: float


class Begun(NamedTuple):
    """A round begins."""

    number: int


class Ended(NamedTuple):
    """A child ends."""

    peak_mb: int


def pack(folder: Path) -> list[Seed]:
    """Good files for every door, from the pack of bad inputs and a few more."""
    maker = _load_maker()
    seeds: list[Seed] = []
    for make, door, spec in (
        (maker.make_pictures, "image", PICTURES),
        (maker.make_tables, "csv", NUMBERS),
        (maker.make_json_lines, "jsonl", NUMBERS),
        (maker.make_sounds, "wav", SOUNDS),
    ):
        inside = folder / door
        inside.mkdir()
        for name in make(inside):
            content = (inside / name).read_bytes()
            if 0 < len(content) < 100_000:
                seeds.append(Seed(door, name, content, spec))
    for compressed in (False, True):
        path = folder / "a.npz"
        save: Callable[..., None] = np.savez_compressed if compressed else np.savez
        save(path, x=np.arange(60.0).reshape(10, 2, 3), label=np.array(list("abcdefghij")))
        seeds.append(Seed("npz", f"{compressed}.npz", path.read_bytes(), NUMBERS))
        save(
            path,
            x=np.arange(60, dtype=np.int16).reshape(10, 2, 3),
            y=np.arange(10),
            label_names=np.array(list("abcdefghij")),
        )
        seeds.append(Seed("npz", f"{compressed}_y.npz", path.read_bytes(), NUMBERS))
    np.save(folder / "a.npy", np.asfortranarray(np.arange(60.0).reshape(10, 2, 3)))
    seeds.append(Seed("npz", "a.npy", (folder / "a.npy").read_bytes(), NUMBERS))
    picture = json.dumps({"image": maker.as_base64(maker.encoded(maker.picture(), "PNG")), "label": "a"}).encode()
    seeds.append(Seed("jsonl", "image.jsonl", picture, PICTURES))
    return seeds


def _load_maker() -> ModuleType:
    path = Path(__file__).with_name("data") / "make_bad_inputs.py"
    spec = importlib.util.spec_from_file_location("make_bad_inputs", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def mutated(content: bytes, other: bytes, chance: random.Random) -> bytes:
    """A damaged copy: one to four damages, most of them near the start, where headers are."""
    data = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        if not data:
            return b""
        at = int(len(data) * chance.random() ** chance.choice((1, 3)))
        kind = chance.randrange(8)
        if kind == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[at] = chance.randrange(256)
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            del data[at : at + chance.randrange(1, 30)]
        elif kind == 4:
            size = chance.choice((1, 2, 4))
            order = "little" if chance.random() < 0.5 else "big"
            data[at : at + size] = (chance.choice(NUMBERS_THAT_MATTER) & (256**size - 1)).to_bytes(size, order)
        elif kind == 5:
            data[at:at] = data[at : at + chance.randrange(1, 200)] * chance.choice((1, 2, 50))
        elif kind == 6:
            data[at:at] = chance.choice(WORDS)
        else:
            data[at:] = other[int(len(other) * chance.random()) :]
    return bytes(data)


def read_through(path: Path, spec: InputSpec) -> str:
    """Read a file to its end: "read" or "refused".

    Raises:
        Exception: whatever should not have come out.
    """
    taken = refused = 0
    try:
        for batch in open_source(path, spec).batches(64):
            if batch.x.shape[1:] != spec.shape or not np.isfinite(batch.x).all() or batch.x.dtype != spec.dtype:
                raise AssertionError(f"samples of shape {batch.x.shape}, {batch.x.dtype}")
            taken += len(batch)
            refused += len(batch.refused)
            for each in batch.refused:
                _check_line(f"{each.name}: {each.reason}")
    except EdgeSDKError as error:
        _check_line(str(error))
        return "refused"
    return "refused" if refused else "read"


def _check_line(line: str) -> None:
    if "\n" in line or len(line) > 2000:
        raise AssertionError(f"no single line: {line[:300]!r}")
    line.encode()  # a lone surrogate would break the terminal


def rounds(seeds: list[Seed], seed: int, numbers: range) -> Iterator[tuple[int, Seed, bytes]]:
    """(number, good file, its damaged copy) of each round; a round depends on nothing but its number and the seed."""
    for number in numbers:
        chance = random.Random(f"{seed}/{number}")
        door = chance.choice(DOORS)
        good = chance.choice([each for each in seeds if each.door == door])
        yield number, good, mutated(good.content, chance.choice(seeds).content, chance)


def work(folder: str, seed: int, numbers: range, pipe: Connection) -> None:
    """The child: say which round begins, then what came of it."""
    warnings.simplefilter("ignore")
    logging.getLogger("PIL").setLevel(logging.CRITICAL)
    inside = Path(folder)
    seeds = pack(inside)
    # Every door once, so that no round pays for its first imports (a resampler's take up to a second).
    for door in dict.fromkeys(DOORS):
        for each in (good for good in seeds if good.door == door):
            (inside / each.name).write_bytes(each.content)
            read_through(inside / each.name, each.spec)
    for number, good, content in rounds(seeds, seed, numbers):
        path = inside / f"mutated{Path(good.name).suffix}"
        path.write_bytes(content)
        pipe.send(Begun(number))
        start = time.perf_counter()
        try:
            outcome = read_through(path, good.spec)
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            outcome = f"{type(error).__name__}: {error}"[:500]
        pipe.send(Result(good.door, outcome, time.perf_counter() - start))
    pipe.send(Ended(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024))


class Tally(NamedTuple):
    """What all rounds did."""

    doors: Counter[str]
    outcomes: Counter[str]
    failures: list[str]
    hangs: list[int]
    slowest: float
    """Seconds of the slowest round."""

    slowest_round: int
    peak_mb: int


def run(n_files: int, seed: int, *, block: int = 5000) -> Tally:
    """Fuzz `n_files` files, in children of `block` rounds each; a child that dies or hangs costs its round alone."""
    doors: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    hangs: list[int] = []
    slowest, slowest_round, peak = 0.0, -1, 0
    next_round = 0
    while next_round < n_files:
        numbers = range(next_round, min(n_files, next_round + block))
        for event in _child(seed, numbers):
            if isinstance(event, Begun):
                next_round = event.number + 1
            elif isinstance(event, Ended):
                peak = max(peak, event.peak_mb)
            elif isinstance(event, Result):
                doors[event.door] += 1
                if event.seconds > slowest:
                    slowest, slowest_round = event.seconds, next_round - 1
                known = event.outcome in ("read", "refused")
                outcomes[event.outcome if known else "failed"] += 1
                if not known:
                    failures.append(f"round {next_round - 1} ({event.door}): {event.outcome}")
                if event.seconds > LONGEST_SECONDS:
                    hangs.append(next_round - 1)
            elif event == "hang":
                hangs.append(next_round - 1)
            else:
                failures.append(f"round {next_round - 1}: the process died")
    return Tally(doors, outcomes, failures, hangs, slowest, slowest_round, peak)


def _child(seed: int, numbers: range) -> Iterator[Begun | Result | Ended | str]:
    """What one child says, and "hang" or "crash" if it does not come to its end."""
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="edge-sdk-fuzz-") as folder:
        process = context.Process(target=work, args=(folder, seed, numbers, sender))
        process.start()
        sender.close()
        patience = 12 * LONGEST_SECONDS  # the first answer waits for the child's imports and its pack
        try:
            while True:
                if not receiver.poll(patience):
                    yield "hang"
                    return
                event = receiver.recv()
                yield event
                if isinstance(event, Ended):
                    return
                patience = 2 * LONGEST_SECONDS
        except EOFError:
            yield "crash"
        finally:
            process.kill()
            process.join()


def main() -> int:
    """Fuzz, and print one JSON object as the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="one round, in this process")
    parser.add_argument("--keep", type=Path, help="with --only: where to leave the file")
    options = parser.parse_args()
    if options.only is not None:
        return _again(options.seed, options.only, options.keep)
    start = time.perf_counter()
    tally = run(options.files, options.seed)
    for number in tally.hangs[:50]:
        sys.stdout.write(f"round {number}: longer than {LONGEST_SECONDS} s\n")
    for failure in tally.failures[:50]:
        sys.stdout.write(failure + "\n")
    summary = {
        "files": tally.doors.total(),
        "doors": dict(tally.doors),
        "outcomes": dict(tally.outcomes),
        "crashes": len(tally.failures),
        "hangs": len(tally.hangs),
        "slowest_s": round(tally.slowest, 2),
        "slowest_round": tally.slowest_round,
        "peak_mb": tally.peak_mb,
        "seconds": round(time.perf_counter() - start),
    }
    sys.stdout.write(json.dumps(summary) + "\n")
    return 1 if tally.failures or tally.hangs or tally.peak_mb > 300 else 0


def _again(seed: int, number: int, keep: Path | None) -> int:
    with tempfile.TemporaryDirectory() as folder:
        ((_, good, content),) = rounds(pack(Path(folder)), seed, range(number, number + 1))
        path = (keep or Path(folder)) / f"round{number}{Path(good.name).suffix}"
        path.write_bytes(content)
        sys.stdout.write(f"{good.door} {good.name} -> {path}\n")
        sys.stdout.write(read_through(path, good.spec) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
