"""Records of a sync: files, pages, the last common state, and the result."""

from __future__ import annotations

import os
from typing import Protocol

import msgspec

# A file read this soon after its modification time may change again without a new time.
SETTLED_NS = 2_000_000_000


class SyncConflict(Exception):
    """Raised when a page is not at the expected version, or exists when it should be new."""


class SyncRefusal(Exception):
    """Raised when the memory rejects a file; the message is the reason."""


class RemoteListing(msgspec.Struct, frozen=True):
    """An entry of the memory's page list: the version, and the ID that stays the same after a rename."""

    version: int
    id: str = ""


class RemoteFile(msgspec.Struct, frozen=True):
    """A page as a file: its version, its bytes and the path it was imported from, or ""."""

    version: int
    data: bytes
    path: str = ""


class RemoteSide(Protocol):
    """The operations on the memory that a sync needs."""

    def list_pages(self) -> dict[str, RemoteListing]: ...

    def fetch(self, slug: str) -> RemoteFile | None:
        """Return a page as a file, or None if it does not exist."""
        ...

    def version(self, slug: str, number: int) -> bytes | None:
        """Return a page as a file at an earlier version, or None if that is not available."""
        ...

    def store(self, slug: str, data: bytes, version: int | None, path: str) -> int:
        """Write a page whose current version is `version`, None for a new page; return the new version.

        Raises `SyncConflict`, `SyncRefusal`.
        """
        ...

    def remove(self, slug: str, version: int) -> None:
        """Delete a page that is at `version`. Raises `SyncConflict`."""
        ...

    def rename(self, slug: str, to: str, version: int, path: str) -> int:
        """Rename a page that is at `version` and return the new version.

        Raises `SyncConflict`.
        """
        ...


class SyncedFile(msgspec.Struct):
    """The last common state of a page and its file: path, content hash and version."""

    path: str
    version: int
    digest: str
    mtime_ns: int = 0
    size: int = -1
    seen_ns: int = 0
    # The page's ID; "" until the page list has been read.
    id: str = ""

    def is_page(self, page: RemoteListing) -> bool:
        return page.id == self.id if self.id else page.version == self.version

    def is_version(self, page: RemoteListing) -> bool:
        """Return whether a listed page has this record's version and is not another page of its slug."""
        return page.version == self.version and (not self.id or page.id in ("", self.id))

    def is_unchanged(self, stat: os.stat_result) -> bool:
        """Return whether time and size prove that the file still has this content."""
        same = (stat.st_mtime_ns, stat.st_size) == (self.mtime_ns, self.size)
        return same and self.mtime_ns + SETTLED_NS < self.seen_ns


class SyncResult(msgspec.Struct):
    """The result of a sync, as lists of slugs and paths."""

    sent: list[str] = []
    received: list[str] = []
    removed_here: list[str] = []
    removed_there: list[str] = []
    renamed: list[str] = []
    merged: list[str] = []
    conflicts: list[str] = []
    problems: list[str] = []

    def __bool__(self) -> bool:
        return any(self.plain().values())

    def plain(self) -> dict[str, list[str]]:
        return msgspec.structs.asdict(self)


class LocalSide(msgspec.Struct, frozen=True):
    """A file of the folder; `data` is empty if its time and size show that it has not changed."""

    path: str
    digest: str
    data: bytes
    mtime_ns: int
    size: int
