"""The files of index snapshots: a header, the pickled `PageIndex`, and a checksum of both.

Only the classes of an index can be unpickled. A file is valid only for the code that wrote it: the header has
a checksum of this package's source, and the version of the entries and of numpy.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from sixfold.core.memory.indexing.entries import FORM
from sixfold.core.memory.search.index_snapshots import SnapshotName
from sixfold.store import durable

if TYPE_CHECKING:  # importing numpy takes 15 MB of memory
    from sixfold.store.search.index import PageIndex

_NAME = re.compile(r"([\w-]+)\.(\d+)\.([0-9a-f]{16})\.index")
_CHECKSUM_BYTES = 4
_PART_BYTES = 2**20
_ABANDONED_SECONDS = 3600  # age of an unfinished file that no process writes anymore
_MODULES = (
    "columns", "folder_order", "index", "link_table", "page_numbers", "page_store", "postings", "spelling",
    "strings",
)  # fmt: skip
_OTHERS = {
    ("array", "array"),
    ("array", "_array_reconstructor"),
    ("numpy", "dtype"),
    ("numpy._core.numeric", "_frombuffer"),
}
_CLASSES = {
    "BytesColumn", "FolderOrder", "FreeList", "LinkTable", "PackedColumn", "PageIndex", "PageNumbers",
    "Postings", "SharedBuffer", "Spellings", "StringColumn", "StringTable", "_StringPart",
}  # fmt: skip


class _Unpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        package, _, module = module_name.rpartition(".")
        own = package == __package__ and module in _MODULES and global_name in _CLASSES
        if own or (module_name, global_name) in _OTHERS:
            return super().find_class(module_name, global_name)
        raise pickle.UnpicklingError(f"{module_name}.{global_name} is not part of an index")


class _CheckedFile:
    """A file that computes the checksum of the written bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.checksum = 0

    def write(self, data: Any) -> int:
        self.checksum = zlib.crc32(data, self.checksum)
        return self._file.write(data)


class SnapshotFolder:
    """The snapshots in a folder, which only the server's user can read."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        """Use `folder`; the files together have at most `most_bytes`."""
        self._folder = folder
        self._most_bytes = most_bytes
        # An upgrade may replace the source while the server runs.
        self._version = _version()

    def names(self) -> Sequence[SnapshotName]:
        found = [_NAME.fullmatch(name) for name in self._listed()]
        return [SnapshotName(match[1], int(match[2]), match[3]) for match in found if match is not None]

    def write(self, name: SnapshotName, index: Any) -> bool:
        if not index.in_memory or index.size > self._most_bytes:
            return False
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".new-", dir=self._folder)
        try:
            with os.fdopen(handle, "wb") as file:
                checked = _CheckedFile(file)
                checked.write(self._header(name))
                pickle.Pickler(checked, pickle.HIGHEST_PROTOCOL).dump(index)
                file.write(checked.checksum.to_bytes(_CHECKSUM_BYTES, "big"))
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).rename(self._path(name))
        finally:
            Path(temporary).unlink(missing_ok=True)
        durable.sync_folder(self._folder)
        return True

    def read(self, name: SnapshotName) -> PageIndex | None:
        header = self._header(name)
        with contextlib.suppress(FileNotFoundError), self._path(name).open("rb") as file:
            if file.read(len(header)) == header and _is_whole(file):
                file.seek(len(header))
                with contextlib.suppress(pickle.UnpicklingError):
                    return _Unpickler(file).load()
            self.remove(name)
        return None

    def remove(self, name: SnapshotName) -> None:
        self._path(name).unlink(missing_ok=True)

    def trim(self, keep: SnapshotName) -> None:
        files = [self._folder / name for name in self._listed()]
        stats = {path: path.stat() for path in files if path != self._path(keep) and path.exists()}
        total = self._path(keep).stat().st_size
        for path, stat in sorted(stats.items(), key=lambda item: -item[1].st_mtime):
            total += stat.st_size
            unfinished = path.name.startswith(".new-")
            if unfinished and time.time() - stat.st_mtime < _ABANDONED_SECONDS:
                continue
            if unfinished or total > self._most_bytes:
                path.unlink(missing_ok=True)

    def _header(self, name: SnapshotName) -> bytes:
        return f"sixfold index {self._version} {name.account_id} {name.change} {name.token}\n".encode()

    def _listed(self) -> Sequence[str]:
        try:
            return [path.name for path in self._folder.iterdir()]
        except FileNotFoundError:
            return ()

    def _path(self, name: SnapshotName) -> Path:
        return self._folder / f"{name.account_id}.{name.change}.{name.token}.index"


def _is_whole(file: BinaryIO) -> bool:
    """Return whether the last bytes of a file are the checksum of all others."""
    left = file.seek(0, os.SEEK_END) - _CHECKSUM_BYTES
    file.seek(0)
    checksum = 0
    for part in _parts(file, left):
        checksum = zlib.crc32(part, checksum)
    return file.read() == checksum.to_bytes(_CHECKSUM_BYTES, "big")


def _parts(file: BinaryIO, left: int) -> Iterator[bytes]:
    while left > 0 and (part := file.read(min(left, _PART_BYTES))):
        left -= len(part)
        yield part


def _version() -> str:
    source = b"".join(Path(__file__).with_name(f"{module}.py").read_bytes() for module in _MODULES)
    return f"{zlib.crc32(source):08x}-{FORM}-{metadata.version('numpy')}"
