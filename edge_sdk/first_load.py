"""The self-check at a model file's first load on a machine: a wrong kernel warns today,
not by strange neighbours later.

It costs two runs of the model, so it is not made at every start: what passed, with which onnxruntime on which
processor, is noted in the datastore's `index/` folder, which anybody may delete. An upgrade, or a card that moves to
another board, is checked again.
"""

import logging
import os

from edge_sdk.datastore import Datastore
from edge_sdk.datastore.storage import INDEX
from edge_sdk.digests import blake2b
from edge_sdk.encoder import Encoder
from edge_sdk.owner_only import owner_only
from edge_sdk.runtime import onnxruntime
from edge_sdk.selfcheck import SelfCheck, self_check

logger = logging.getLogger(__name__)

NOTE = "self-check"
_IDENTITY = ("model name", "flags", "features", "cpu implementer", "cpu variant", "cpu part")


def check_first_load(encoder: Encoder, datastore: Datastore) -> SelfCheck | None:
    """Compare with the exporting machine's answers, unless that was done here; a difference is logged as a warning.

    Args:
        encoder: the running model file.
        datastore: keeps the note; where it cannot be written the check is made at every opening.

    Returns:
        What was found; None where it was done before or the model file carries no reference.
    """
    note = datastore.folder / INDEX / NOTE
    identity = f"{encoder.metadata.fingerprint} {onnxruntime.__version__} {os.uname().machine} {processor()}\n"
    try:
        if note.read_text(encoding="ascii") == identity:
            return None
    except (OSError, UnicodeDecodeError):
        pass  # no note, or not ours: check
    result = self_check(encoder.encode, encoder.metadata)
    if result is None:
        return None
    if not result.passed:
        logger.warning("%s: %s", encoder.model_file.path, result.message)
    elif not datastore.read_only:
        _write(note, identity)
    return result


def processor() -> str:
    """A short digest of what the processor is and can do."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = {line.strip() for line in file if line.lower().startswith(_IDENTITY)}
    except OSError:
        lines = set()
    return blake2b("\n".join(sorted(lines)).encode(), digest_size=8).hexdigest()


def _write(note: os.PathLike[str], identity: str) -> None:
    """Leave the note; where there is no room for it the next opening checks again."""
    beside = f"{os.fspath(note)}.{os.getpid()}.tmp"
    try:
        os.makedirs(os.path.dirname(beside), mode=0o700, exist_ok=True)
        with open(beside, "w", encoding="ascii", opener=owner_only) as file:
            file.write(identity)
        os.replace(beside, note)
    except OSError as error:
        logger.info("%s: %s", note, error.strerror)
