"""Folder: one sub-folder a label, files in it (at any depth) are samples.

Files are read in the order of their names, so the sequences of a datastore do not depend on the file system. What
systems and phones leave between pictures is passed over and counted; everything else is tried, and named when it is no
sample.
"""

import os
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from edge_sdk.datastore.storage import ENTRIES, MANIFEST
from edge_sdk.errors import InputError
from edge_sdk.inputs.base import Example, Refused, Request, Source
from edge_sdk.inputs.samples import SampleReader, shown

_LEFTOVERS = {"thumbs.db", "desktop.ini", "icon\r", "ehthumbs.db"}
_SIDE_FILES = {".json", ".xmp", ".aae", ".txt", ".md", ".ini", ".db", ".csv", ".xml", ".yaml", ".yml", ".html", ".log"}


class FolderSource(Source):
    """A folder of samples, labelled by the first folder below it."""

    kind = "folder with one sub-folder of pictures, sounds or .npy files a label"

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self._top = request.path
        self._reader = SampleReader(request.spec)
        if request.spec.kind == "image":
            _ = self._reader.images  # a model file with rules that are not understood is named before the first picture
        elif request.spec.kind == "audio":
            _ = self._reader.audio
        if _is_datastore(self._top):
            raise InputError(f"{request.path}: is a datastore, not inputs; look into it with edge-sdk info")
        self._ignored: Counter[str] = Counter()
        self._count = 0
        self._labelled = False
        for path in self._files(self._top, self._ignored):
            self._count += 1
            self._labelled = self._labelled or path.parent != self._top
        if not self._count:
            raise InputError(f"{request.path}: holds no files to read{_counted(self._ignored, '; passed over: ')}")
        if request.reads_labels and request.labels == "required" and not self._labelled:
            raise InputError(
                f"{request.path}: its {self._count} files lie in no sub-folder, whose name would be the label; "
                "give one label for all with --label L"
            )

    @classmethod
    def recognises(cls, path: Path, head: bytes) -> bool:
        """Any folder."""
        return path.is_dir()

    @property
    def count(self) -> int:
        """Files, those included that will turn out to be no samples."""
        return self._count

    @property
    def has_labels(self) -> bool:
        """Whether there are sub-folders."""
        return self._labelled

    @property
    def notes(self) -> list[str]:
        """What was passed over, and animations."""
        n = self._ignored.total()
        what = "1 file is no sample and was" if n == 1 else f"{n} files are no samples and were"
        passed = _counted(self._ignored, f"{what} passed over: ")
        return [*([passed] if passed else []), *self._reader.notes()]

    def examples(self) -> Iterator[Example | Refused]:
        """Files by name; those of a folder before those of its sub-folders."""
        for path in self._files(self._top, Counter()):
            relative = path.relative_to(self._top)
            name = shown(relative)
            label = os.fsencode(relative.parts[0]).decode("utf-8", "replace") if len(relative.parts) > 1 else None
            if self.request.reads_labels and self._labelled and label is None:
                yield Refused(name, "lies in no sub-folder, whose name would be its label; move it into one")
                continue
            try:
                yield Example(name, self._reader.read(path), label)
            except InputError as error:
                yield Refused(name, str(error))

    def _files(self, folder: Path, ignored: Counter[str]) -> Iterator[Path]:
        """Every file below, sorted by name; links to folders are not followed."""
        try:
            with os.scandir(folder) as entries:
                listed = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        except OSError as error:
            raise InputError(f"{shown(folder)}: cannot list the folder: {error.strerror}") from error
        for name, is_folder in listed:
            if not is_folder:
                why = _why_ignored(folder / name)
                if why:
                    ignored[why] += 1
                else:
                    yield folder / name
        for name, is_folder in listed:
            if is_folder:
                if _is_datastore(folder / name):
                    ignored[f"datastore {shown(name)}"] += 1
                elif name.startswith(".") or name == "__MACOSX":
                    ignored[f"folder {name}"] += 1
                else:
                    yield from self._files(folder / name, ignored)


def _is_datastore(folder: Path) -> bool:
    return (folder / MANIFEST).is_file() and (folder / ENTRIES).is_file()


def _why_ignored(path: Path) -> str:
    """Under which name a file is counted as passed over, or "" when it is to be read."""
    name = path.name.lower()
    if name.startswith("._"):
        return "._*"
    if name in _LEFTOVERS or name.startswith("."):
        return path.name if path.name.isprintable() else "hidden"
    if path.suffix.lower() in _SIDE_FILES:
        return f"*{path.suffix.lower()}"
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return "special files"
    except OSError:
        return "broken links"
    return ""


def _counted(ignored: Counter[str], start: str) -> str:
    """The most frequent names and their numbers after `start`, or "" when there is nothing to count."""
    most = ", ".join(f"{shown(name)} {number}" for name, number in ignored.most_common(8))
    return start + most if ignored else ""


SOURCE = FolderSource
