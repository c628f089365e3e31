"""Storage: every system call that a datastore makes on its folder.

All of them are here, each a small method with the file's name in it, so that the power-cut test can record a running
store and replay any prefix of what it did. Files are written by `pwrite` and only ever mapped read-only: a full disk
or a bad card is then an `OSError`, never a SIGBUS that no Python code can catch.
"""

import errno
import fcntl
import mmap
import os
import time
from pathlib import Path

from edge_sdk.errors import DatastoreError
from edge_sdk.owner_only import owner_only

ENTRIES = "entries.npy"
MANIFEST = "manifest.json"
SPARE = "manifest.json.new"
"""Where the next manifest is written. Stays allocated between two replacements, so that `forget` works on a full
disk."""

LOCK = "lock"
INDEX = "index"
PROTOTYPES = "prototypes.npz"

_SPARE_BYTES = 8192
EXCLUSIVE, _SHARED = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_SH | fcntl.LOCK_NB
_FIRST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02
_FREE_TRIES = 3
"""Tries that even a wait of zero makes: a reader may hold the lock for microseconds to look at a dead writer's slot."""


class Storage:
    """The files of one datastore folder, opened on first use.

    Raises (every method): DatastoreError that names the path, the bytes and the cure when the system refuses.
    """

    def __init__(self, folder: Path, *, writable: bool) -> None:
        self.folder = folder
        self.writable = writable
        self._files: dict[str, int] = {}

    def descriptor(self, name: str) -> int:
        """The open file of this name."""
        number = self._files.get(name)
        if number is None:
            try:
                number = os.open(self.folder / name, (os.O_RDWR if self.writable else os.O_RDONLY) | os.O_CLOEXEC)
            except OSError as error:
                raise self._error("open", name, error) from error
            self._files[name] = number
        return number

    def close(self) -> None:
        """Close every file; locks are dropped with them."""
        for name in list(self._files):
            self.reopen(name)

    def reopen(self, name: str) -> None:
        """Forget an open file, so that its next use opens the path again."""
        number = self._files.pop(name, None)
        if number is not None:
            os.close(number)

    # Reading

    def exists(self, name: str) -> bool:
        """Whether the folder holds this name."""
        return (self.folder / name).exists()

    def size(self, name: str) -> int:
        """Bytes of the file."""
        try:
            return os.fstat(self.descriptor(name)).st_size
        except OSError as error:
            raise self._error("read", name, error) from error

    def state(self, name: str) -> tuple[int, int]:
        """(modification time in ns, size): differs after a write, to the clock's resolution (about 4 ms)."""
        try:
            status = os.fstat(self.descriptor(name))
        except OSError as error:
            raise self._error("read", name, error) from error
        return status.st_mtime_ns, status.st_size

    def is_current(self, name: str) -> bool:
        """Whether the open file is still the one at its path (nobody has removed or replaced it)."""
        try:
            opened, at_path = os.fstat(self.descriptor(name)), os.stat(self.folder / name)
        except (OSError, DatastoreError):
            return False
        return (opened.st_ino, opened.st_dev) == (at_path.st_ino, at_path.st_dev)

    def is_unlinked(self, name: str) -> bool:
        """Whether the open file has no name any more: what is written to it is lost (0.3 µs while it has one)."""
        try:
            # The path is asked as well, because some file systems in user space give every file 0 names.
            return os.fstat(self.descriptor(name)).st_nlink == 0 and not self.is_current(name)
        except OSError as error:
            raise self._error("read", name, error) from error

    def read(self, name: str, size: int, offset: int) -> bytes:
        """`size` bytes from `offset`, fewer at the file's end.

        Raises:
            OSError: the medium cannot give them (the caller knows what that costs).
        """
        descriptor = self.descriptor(name)
        data = os.pread(descriptor, size, offset)
        while len(data) < size:
            more = os.pread(descriptor, size - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def read_whole(self, name: str, limit: int) -> bytes:
        """The file at this path now, whichever one has been renamed to it."""
        path = self.folder / name
        try:
            with path.open("rb") as file:
                data = file.read(limit + 1)
        except OSError as error:
            raise self._error("read", name, error) from error
        if len(data) > limit:
            raise DatastoreError(f"{path}: more than {limit} bytes, not a file of a datastore")
        return data

    def map(self, name: str, size: int) -> mmap.mmap:
        """The first `size` bytes, mapped read-only. The file must be that long."""
        try:
            return mmap.mmap(self.descriptor(name), size, prot=mmap.PROT_READ)
        except (OSError, ValueError) as error:
            raise DatastoreError(f"{self.folder / name}: cannot map {size} bytes: {error}") from error

    # Changing

    def write(self, name: str, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Write all of `data` at `offset`; on the medium only after `sync`."""
        try:
            descriptor = self._files[name] if name in self._files else self.descriptor(name)
            written = os.pwrite(descriptor, data, offset)
            if written != len(data):
                self._write_rest(descriptor, data, offset, written)
        except OSError as error:
            raise self._error(f"write {len(data)} bytes at {offset} of", name, error) from error

    @staticmethod
    def _write_rest(descriptor: int, data: bytes | bytearray | memoryview, offset: int, written: int) -> None:
        """Go on after a short write (a signal, or the last free byte); the next one tells the reason."""
        rest = memoryview(data)
        while written < len(rest):
            written += os.pwrite(descriptor, rest[written:], offset + written)

    def sync(self, name: str) -> None:
        """Wait until what was written to the file is on the medium."""
        try:
            os.fdatasync(self.descriptor(name))
        except OSError as error:
            raise self._error("sync", name, error) from error

    def allocate(self, name: str, size: int) -> None:
        """Make the file `size` bytes long, every one of them backed by the medium (new bytes are zero).

        A sparse file would accept more slots than the disk has room for, and fail when a slot is written.
        """
        try:
            os.posix_fallocate(self.descriptor(name), 0, size)
        except OSError as error:
            raise self._error(f"allocate {size} bytes for", name, error) from error

    def create(self, name: str) -> None:
        """Make an empty file, or open the one that is there."""
        self.reopen(name)
        try:
            self._files[name] = owner_only(os.fspath(self.folder / name), os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise self._error("create", name, error) from error

    def cut(self, name: str, size: int) -> None:
        """Shorten a file that nobody maps (never the entries or the lock)."""
        try:
            os.ftruncate(self.descriptor(name), size)
        except OSError as error:
            raise self._error("shorten", name, error) from error

    def rename(self, old: str, new: str) -> None:
        """Put the file `old` in the place of `new`, in one step; on the medium after `sync_folder`."""
        try:
            os.replace(self.folder / old, self.folder / new)
        except OSError as error:
            raise self._error(f"rename {old} to", new, error) from error
        self.reopen(old)
        self.reopen(new)

    def remove(self, name: str) -> None:
        """Unlink a file, if it is there."""
        self.reopen(name)
        try:
            (self.folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise self._error("remove", name, error) from error

    def sync_folder(self) -> None:
        """Wait until the folder's names are on the medium."""
        sync_folder(self.folder)

    def replace(self, name: str, data: bytes) -> None:
        """Put `data` in the place of the file: whole and durable, or (on an error or a power cut) the old one as it
        was.

        The new text goes to `SPARE`, whose blocks were allocated when there was room; the old file's blocks then become
        the next spare.
        """
        self.create(SPARE)
        self.write(SPARE, data, 0)
        self.cut(SPARE, len(data))
        self.sync(SPARE)
        self.rename(SPARE, name)
        self.sync_folder()
        self.keep_spare(len(data))

    def keep_spare(self, size: int) -> None:
        """Allocate room for the next manifest; a refusal is no error, the next replacement tries again."""
        self.create(SPARE)
        try:
            self.allocate(SPARE, max(_SPARE_BYTES, 2 * size))
        except DatastoreError:
            self.remove(SPARE)
        self.reopen(SPARE)

    # Locking

    def lock(self, wait: float) -> bool:
        """Take the write lock; False when it could not be had within `wait` seconds."""
        if self.try_lock(EXCLUSIVE):
            return True
        deadline = time.monotonic() + wait
        pause, tries = _FIRST_PAUSE, 1
        while tries < _FREE_TRIES or time.monotonic() < deadline:
            time.sleep(pause)
            if self.try_lock(EXCLUSIVE):
                return True
            pause, tries = min(2 * pause, _LONGEST_PAUSE), tries + 1
        return False

    def try_lock(self, kind: int = _SHARED) -> bool:
        """Take the lock if nobody who excludes us holds it now."""
        try:
            fcntl.flock(self._files.get(LOCK) or self.descriptor(LOCK), kind)
        except BlockingIOError:
            return False
        except OSError as error:
            raise self._error("lock", LOCK, error) from error
        return True

    def unlock(self) -> None:
        """Give the lock back."""
        fcntl.flock(self._files[LOCK], fcntl.LOCK_UN)

    def holder(self) -> int | None:
        """Process id of whoever holds the lock, where the system tells it (Linux, same container)."""
        try:
            inode = os.fstat(self.descriptor(LOCK)).st_ino
            lines = Path("/proc/locks").read_text().splitlines()
        except OSError:
            return None
        for line in lines:
            fields = line.split()
            if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].endswith(f":{inode}") and int(fields[4]) > 0:
                return int(fields[4])
        return None

    def _error(self, action: str, name: str, error: OSError) -> DatastoreError:
        """The one-line error of a refused system call."""
        path = self.folder / name
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return DatastoreError(
                f"cannot {action} {path}: no room, {free_bytes(self.folder)} bytes are free; free some space"
            )
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            return DatastoreError(f"cannot {action} {path}: {error.strerror}; the datastore can only be read")
        return DatastoreError(f"cannot {action} {path}: {error.strerror}")


def free_bytes(folder: Path) -> int:
    """Bytes that an ordinary user may still allocate on the folder's file system."""
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the medium.

    Raises:
        DatastoreError: the system refuses.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise DatastoreError(f"cannot sync {folder}: {error.strerror}") from error
