"""edge-sdk ingest: labelled examples into a datastore, which is then tuned."""

import logging
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from edge_sdk import ConfigError, DatastoreError, Encoder, ModelFile, Predictor
from edge_sdk.datastore import DEFAULT_LOCK_WAIT
from edge_sdk.datastore.kept_inputs import InputsSpec
from edge_sdk.datastore.opening import DEFAULT_CAPACITY
from edge_sdk.inputs import Batch, Refused, Source, open_source
from edge_sdk.inputs.ahead import read_ahead
from edge_sdk.inputs.base import STREAM
from edge_sdk.inputs.ingest import Ingested, check_strictly, ingest, vetted
from edge_sdk.inputs.rehearsal import rehearse
from edge_tools.options import DatastoreOption, InputArgument, JsonOption, ModelOption, parse_bytes
from edge_tools.output import print_json, print_table, say
from edge_tools.progress import progress
from edge_tools.start import INTERRUPTED_EXIT

EXAMPLE = "edge-sdk ingest learn.npz --model watch.onnx --datastore me.store"
BATCH_SIZE = 1024
"""Inputs learnt at once: looking for duplicates costs about 2 ms a batch at 50 000 entries, however few are new."""

REFUSED_EXIT = 4

CapacityOption = Annotated[int | None, typer.Option(help="Most entries of a new datastore (default 1000).")]
PolicyOption = Annotated[str | None, typer.Option(help="Of a new datastore: fifo, concatenate, fixed or balanced.")]
LabelOption = Annotated[str | None, typer.Option("--label", help="One label for every input.")]
LabelColumnOption = Annotated[
    str | None, typer.Option(help="The array or column with the labels, if not called label.")
]
NewClassesOption = Annotated[bool, typer.Option("--allow-new-classes", help="Accept labels the model does not know.")]
DuplicatesOption = Annotated[bool, typer.Option("--allow-duplicates", help="Add what is stored already once more.")]
StrictOption = Annotated[bool, typer.Option("--strict", help="Add nothing if any input is refused.")]
NearOption = Annotated[
    float,
    typer.Option("--min-distance", min=0.0, help="Leave out what is nearer than this to an entry of the same label."),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Read and check everything, add nothing.")]
NoTuneOption = Annotated[bool, typer.Option("--no-tune", help="Leave the interpolation weight as it is.")]
SyncOption = Annotated[
    int, typer.Option(min=1, help="Entries between syncs: a power cut costs at most these, until ingest runs again.")
]
WaitOption = Annotated[
    float,
    typer.Option(
        min=0.0,
        help="Seconds to wait for another process that writes. 0: keep the others out, or be refused, from the first "
        "entry to the last.",
    ),
]
KeepOption = Annotated[
    str | None,
    typer.Option(
        "--keep-inputs",
        metavar="BYTES",
        help="Store the inputs beside the entries in at most so many bytes (such as 64MB), for edge-sdk reembed.",
    ),
]


def ingest_command(
    examples: InputArgument,
    model: ModelOption,
    datastore: DatastoreOption,
    capacity: CapacityOption = None,
    policy: PolicyOption = None,
    label: LabelOption = None,
    label_column: LabelColumnOption = None,
    allow_new_classes: NewClassesOption = False,
    allow_duplicates: DuplicatesOption = False,
    min_distance: NearOption = 0.0,
    strict: StrictOption = False,
    dry_run: DryRunOption = False,
    no_tune: NoTuneOption = False,
    sync_every: SyncOption = 1000,
    wait: WaitOption = DEFAULT_LOCK_WAIT,
    keep_inputs: KeepOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add labelled examples to a datastore, which is made if missing, then tune it.

    Running it again adds nothing twice, and continues what was interrupted. Refused inputs are named on stderr, and the
    exit code is then 4.
    """
    hush_pillow()
    spec = ModelFile.open(model).metadata.input
    with ExitStack() as stack:
        if strict and examples == STREAM:
            examples = _spooled(stack)
        source = open_source(examples, spec, label=label, labels="required", label_column=label_column)
        kept_bytes = None if keep_inputs is None else parse_bytes(keep_inputs)
        if kept_bytes is not None:  # before a datastore is made that would be left behind empty
            InputsSpec.within(kept_bytes, shape=spec.shape, dtype=spec.dtype, most=None)
        target = Target(model, datastore, capacity, policy, allow_new_classes, stack, wait, kept_bytes)
        target.check(read_only=dry_run)
        if strict:
            check_strictly(_watched(source, target, "check"), Encoder.open(model).encode)
        if dry_run:
            done = rehearse(
                _watched(source, target, "check"),
                target.predictor.datastore if target.predictor else None,
                capacity=target.room,
                allow_duplicates=allow_duplicates,
                on_refused=name_refused,
            )
        else:
            try:
                done = ingest(
                    _watched(source, target, "ingest", batch_size=min(BATCH_SIZE, sync_every)),
                    target.open,
                    allow_duplicates=allow_duplicates,
                    min_distance=min_distance,
                    sync_every=sync_every,
                    on_refused=name_refused,
                )
                if done.added and not no_tune:
                    target.open().tune()
            except KeyboardInterrupt as error:
                say(f"interrupted; {target.entries} entries kept, run it again to continue")
                raise typer.Exit(INTERRUPTED_EXIT) from error
        for note in [*source.notes, *target.notes(done)]:
            say(note)
        _report(done, target, dry_run=dry_run, as_json=as_json)
    if done.refused:
        raise typer.Exit(REFUSED_EXIT)


@dataclass
class Target:
    """The datastore that examples go into; it may not exist yet."""

    model: Path
    folder: Path
    capacity: int | None
    policy: str | None
    allow_new_classes: bool
    stack: ExitStack
    """Closes what was opened."""

    wait: float = DEFAULT_LOCK_WAIT
    """Seconds for another writer; 0: the others are kept out until the end."""

    kept_bytes: int | None = None
    """Bound of the kept inputs; None: as the datastore has it."""

    predictor: Predictor | None = None

    def check(self, *, read_only: bool) -> None:
        """Open the datastore if there is one.

        Raises:
            EdgeSDKError: it cannot take these examples; it is as it was.
        """
        if not self.folder.exists():
            return
        self._open(read_only=read_only)
        if self.allow_new_classes and not self.takes_new_classes:
            raise ConfigError(
                f"{self.folder}: was made without --allow-new-classes; leave it out or make a new datastore"
            )

    def open(self) -> Predictor:
        """The predictor over the datastore, which is made now if it is missing."""
        return self.predictor or self._open(read_only=False)

    @property
    def entries(self) -> int:
        """Entries in the datastore, 0 while there is none."""
        return len(self.predictor.datastore) if self.predictor is not None else 0

    @property
    def room(self) -> int:
        """Most entries of the datastore, the one that would be made where there is none."""
        if self.predictor is not None:
            return self.predictor.datastore.capacity
        return DEFAULT_CAPACITY if self.capacity is None else self.capacity

    @property
    def takes_new_classes(self) -> bool:
        """Whether labels that the model does not know are welcome."""
        if self.predictor is not None:
            return self.predictor.datastore.manifest.allow_new_classes
        return self.allow_new_classes

    @property
    def known(self) -> tuple[str, ...] | None:
        """The labels that may be learnt, or None when every label may."""
        if self.takes_new_classes:
            return None
        return self.predictor.classes if self.predictor else ModelFile.open(self.model).metadata.classes

    def notes(self, done: Ingested) -> list[str]:
        """What a person should know about where the examples went."""
        room = self.predictor.datastore.capacity if self.predictor else done.added
        if done.added <= room or self.predictor is None or self.predictor.datastore.policy == "concatenate":
            return []
        lost = done.added - room
        return [f"{lost} of the {done.added} added examples were evicted again: {self.folder} has room for {room}"]

    def _open(self, *, read_only: bool) -> Predictor:
        is_new = not self.folder.exists()
        self.predictor = self.stack.enter_context(
            Predictor.open(
                self.model,
                self.folder,
                capacity=self.capacity,
                policy=self.policy,
                allow_new_classes=self.allow_new_classes,
                read_only=read_only,
            )
        )
        store = self.predictor.datastore
        store.lock_wait = self.wait
        if not store.read_only:
            if self.wait == 0:
                self.stack.enter_context(store.exclusive())
            if self.kept_bytes is not None:
                self._keep_inputs(self.predictor, self.kept_bytes, is_new=is_new)
        return self.predictor

    def _keep_inputs(self, predictor: Predictor, kept_bytes: int, *, is_new: bool) -> None:
        """Have the datastore keep inputs; one that was made for it and has no room for them is removed again."""
        spec, store = predictor.metadata.input, predictor.datastore
        try:
            store.keep_inputs(kept_bytes, shape=spec.shape, dtype=spec.dtype)
        except DatastoreError:
            if is_new and not len(store):
                shutil.rmtree(self.folder)
            raise


def hush_pillow() -> None:
    """Keep Pillow's remarks on damaged metadata off the terminal: a picture that could be decoded is no news."""
    warnings.filterwarnings("ignore", module=r"PIL\b")
    logging.getLogger("PIL").setLevel(logging.CRITICAL)


def name_refused(refused: Refused) -> None:
    """Say which input was not taken, and why."""
    say(f"refused {refused.name}: {refused.reason}")


def _watched(source: Source, target: Target, doing: str, *, batch_size: int = BATCH_SIZE) -> Iterator[Batch]:
    """The vetted batches of a source, with a bar that counts inputs."""
    can_take_others = target.predictor is None  # not with this option alone where a datastore was made without it
    cure = "to learn others too, make the datastore with --allow-new-classes" if can_take_others else ""
    read = source.batches(batch_size)
    batches = vetted(read if source.request.path == STREAM else read_ahead(read), target.known, cure=cure)
    return progress(batches, total=source.count, label=doing, size=inputs_in)


def inputs_in(batch: Batch) -> int:
    """Inputs that were read for a batch, refused ones included."""
    return len(batch) + len(batch.refused)


def _spooled(stack: ExitStack) -> Path:
    """Standard input as a file, because it is to be read twice."""
    path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="edge-sdk-"))) / "stdin.jsonl"
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return path


def _report(done: Ingested, target: Target, *, dry_run: bool, as_json: bool) -> None:
    """Print what was done, and what the datastore holds now."""
    store = target.predictor.datastore if target.predictor else None
    held = dict(zip(store.classes, store.table.counts, strict=True)) if store is not None else {}
    facts = {"added": done.added, "duplicates": done.duplicates, "near": done.near, "refused": done.refused}
    facts["entries"] = len(store) if store is not None else 0
    names = [name for name in {**held, **done.per_class} if held.get(name) or done.per_class[name]]
    if as_json:
        per_class = {name: {"added": done.per_class[name], "entries": held.get(name, 0)} for name in names}
        print_json({"datastore": str(target.folder), "dry_run": dry_run, **facts, "per_class": per_class})
        return
    title = f"{target.folder}: would be added (dry run)" if dry_run else str(target.folder)
    print_table(title, tuple(facts), [tuple(facts.values())])
    if names:
        rows = [(name, done.per_class[name], held.get(name, 0)) for name in names]
        print_table("Per class", ("label", "added", "entries"), rows)
