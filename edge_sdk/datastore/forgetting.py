"""Condition: which entries are to be forgotten, applied to all places where something of them lies.

Entries lie in slots or, in a compressed datastore, behind prototypes, which know labels but neither sequences nor
ages; a condition that would divide them is refused before anything is changed.
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from edge_sdk.datastore.slots import MAX_SEQUENCE
from edge_sdk.datastore.storage import INDEX, PROTOTYPES, Storage
from edge_sdk.datastore.table import SlotTable
from edge_sdk.errors import ConfigError, DatastoreError, InputError
from edge_sdk.labels import normalise_label, unknown_label_message
from edge_sdk.protonn import Prototypes

logger = logging.getLogger(__name__)


class Condition(NamedTuple):
    """What an entry must be to be forgotten; None: anything."""

    sequences: tuple[int, ...] | None
    class_id: int | None
    before: int | None
    """Its sequence is smaller."""

    @classmethod
    def of(
        cls,
        class_ids: dict[str, int],
        *,
        sequences: Sequence[int] | np.ndarray | None,
        label: str | None,
        before: int | None,
    ) -> "Condition":
        """From what a caller gives.

        Raises:
            ConfigError: no condition at all.
            InputError: a label that is not among the classes.
        """
        if sequences is None and label is None and before is None:
            raise ConfigError("forget needs sequences, a label, or before=SEQUENCE")
        name = None if label is None else normalise_label(label)
        if name is not None and name not in class_ids:
            raise InputError(unknown_label_message(name, tuple(class_ids)))
        wanted = None if sequences is None else tuple(np.asarray(sequences).reshape(-1).tolist())
        return cls(wanted, None if name is None else class_ids[name], before)

    def slots(self, table: SlotTable) -> np.ndarray:
        """int64 (m,): slots of the entries that meet it, ascending."""
        chosen = table.sequences != 0
        if self.sequences is not None:
            wanted = [number for number in self.sequences if 0 < number <= MAX_SEQUENCE]
            chosen &= np.isin(table.sequences, np.array(wanted, np.uint64))
        if self.class_id is not None:
            chosen &= table.labels == self.class_id
        if self.before is not None:
            chosen &= table.sequences < np.uint64(min(max(0, self.before), MAX_SEQUENCE))
        return np.flatnonzero(chosen)

    def forget_prototypes(self, storage: Storage) -> bool:
        """Take what meets it out of the compressed memory, the only place where the entries it stands for lie.

        Returns:
            Whether there was any of it.

        Raises:
            ConfigError: it asks for some of the entries that lie in the prototypes and not for others.
            DatastoreError: the medium refuses. The memory is as it was.
        """
        path = storage.folder / PROTOTYPES
        if not path.exists():
            return False
        try:
            memory = Prototypes.load(path)
        except DatastoreError as error:
            logger.warning("%s; removed, because what it holds of the forgotten entries cannot be told", error)
            storage.remove(PROTOTYPES)
            return True
        left = memory.forget(self.class_id, before=self.before, sequences=self.sequences)
        if left is memory or np.array_equal(left.masses, memory.masses):
            return False
        left.save(path)
        storage.sync_folder()
        return True


def remove_index(storage: Storage) -> None:
    """Remove the files of the search index; they are computed again from the entries that stay."""
    for path in sorted((storage.folder / INDEX).rglob("*")):
        if path.is_file():
            storage.remove(str(path.relative_to(storage.folder)))
