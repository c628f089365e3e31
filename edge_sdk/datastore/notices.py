"""Notices: how a writer tells the readers of other processes which slots it is about to change.

The `lock` file holds a ring of 511 small records. A writer, holding the lock, appends one record *before* it changes
the slots that the record names. A reader compares one mapped 8-byte word to see that nothing happened (60 ns), and
otherwise reads only the slots that were named. A reader that fell behind by more than the ring reads everything
again. Nothing here needs to be durable: after a power cut every process reads the whole store anyway.
"""

import mmap
import os
import struct
import zlib
from typing import NamedTuple

LOCK_BYTES = 16384
"""Size of the lock file: a record's worth of magic, then the ring."""

MAGIC = b"edge-sdk lock 1\n".ljust(32, b"\0")

_RECORD = struct.Struct("<QQIII")  # number, first sequence, first slot, slots, process
_CHECK = struct.Struct("<I")
_RECORD_BYTES = _RECORD.size + _CHECK.size
RING = LOCK_BYTES // _RECORD_BYTES - 1

FOLDER_REPLACED = 2
"""`start` of a record of 0 slots: the same store goes on in another folder under this path; its last record here."""

_IN_FLIGHT_TRIES = 1000


class Notice(NamedTuple):
    """One record: what a writer is about to change."""

    number: int
    """Counts up from 1 over the life of the lock file."""

    first_sequence: int
    """Of the entry that goes into `start`; the following slots get the following ones. 0: the slots become empty."""

    start: int
    """First slot of the run."""

    length: int
    """Slots in the run; 0: no slot, the manifest was replaced (or, where `start` is `FOLDER_REPLACED`, the folder)."""

    process: int
    """Process id of the writer."""


class Notices:
    """One process's place in the ring."""

    def __init__(self, ring: mmap.mmap) -> None:
        self._ring = ring
        self._words = memoryview(ring).cast("Q")
        self.process = os.getpid() & 0xFFFFFFFF
        self._record = bytearray(_RECORD_BYTES)
        self._unchecked = memoryview(self._record)[: _RECORD.size]
        self.advance(self.latest())

    @staticmethod
    def _offset(number: int) -> int:
        """Where a record of this number lies in the file."""
        return _RECORD_BYTES * (1 + number % RING)

    def quiet(self) -> bool:
        """Whether nothing has been written since `seen`."""
        return self._words[self._word] == self._idle

    def latest(self) -> int:
        """Highest number of a whole record in the ring, 0 for none."""
        numbers = (self._read(position) for position in range(RING))
        return max((notice.number for notice in numbers if notice is not None), default=0)

    def _read(self, position: int) -> Notice | None:
        """The record at a position of the ring, None where it is not whole."""
        start = _RECORD_BYTES * (1 + position)
        data = self._ring[start : start + _RECORD_BYTES]
        if _CHECK.unpack_from(data, _RECORD.size)[0] != zlib.crc32(data[: _RECORD.size]):
            return None
        notice = Notice(*_RECORD.unpack_from(data))
        return notice if notice.number % RING == position else None

    def unseen(self) -> list[Notice] | None:
        """The records after `seen` in order; None when some are lost (read everything, then call `catch_up`)."""
        found: list[Notice] = []
        number = self.seen
        while True:
            number += 1
            notice = self._read(number % RING)
            if notice is None and self._words[self._offset(number) // 8] == number:
                notice = self._settle(number)  # its bytes are still arriving
                if notice is None:
                    return None
            if notice is None or notice.number < number:
                # The word that made us look is not a record: damage, or a writer that started from a new lock file.
                return found or ([] if self.quiet() else None)
            if notice.number > number:
                return None
            found.append(notice)

    def _settle(self, number: int) -> Notice | None:
        """Look again at a record whose writer is in the middle of its 32 bytes."""
        for _ in range(_IN_FLIGHT_TRIES):
            notice = self._read(number % RING)
            if notice is not None:
                return notice
        return None

    def advance(self, number: int) -> None:
        """Everything up to this record has been acted upon."""
        self.seen = number
        """Number of the last record that this process has acted upon."""
        self.next_at = at = _RECORD_BYTES * (1 + (number + 1) % RING)
        """Where the next record will lie."""
        self._word = at >> 3
        idle = self._words[self._word]
        # What a new record will overwrite; if that one is there already (a writer was quicker), nothing equals -1.
        self._idle = -1 if idle > number and (idle - number) % RING == 1 else idle

    def catch_up(self) -> Notice | None:
        """Go on from the newest record (call before everything is read again, so that nothing falls between).

        Returns:
            That record: its writer may still be changing the slots it names. All older ones are done.
        """
        latest = self.latest()
        self.advance(latest)
        return self._read(latest % RING) if latest else None

    def next_record(self, first_sequence: int, start: int, length: int) -> bytearray:
        """The bytes of the record that goes to `next_at`; the caller holds the lock and has seen all records."""
        record = self._record
        _RECORD.pack_into(record, 0, self.seen + 1, first_sequence, start, length, self.process)
        _CHECK.pack_into(record, _RECORD.size, zlib.crc32(self._unchecked))
        return record

    def newest(self) -> Notice | None:
        """The newest record."""
        latest = self.latest()
        return self._read(latest % RING) if latest else None

    def last_writer(self) -> int | None:
        """Process id in the newest record."""
        notice = self.newest()
        return notice.process if notice else None
