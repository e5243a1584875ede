"""What a sync has of its two sides: files and pages, what was the same of them, and what was done."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import Protocol

SETTLED_NS = 2_000_000_000  # a file changed so shortly before it was read may change unseen


class SyncConflict(Exception):
    """The page is no longer at the version that was named, or is there when it should be new."""


class SyncRefusal(Exception):
    """The memory does not take this file; the text says why."""


@dataclass(frozen=True, slots=True)
class RemoteListing:
    """A page of the memory's list: its version, and the id that it keeps under whatever slug."""

    version: int
    id: str = ""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A page as a file: its version, its bytes, the path that it came from ("" if it did not)."""

    version: int
    data: bytes
    path: str = ""


class RemoteSide(Protocol):
    """The memory, as a sync sees it."""

    def listed(self) -> dict[str, RemoteListing]:
        """Every page by its slug."""
        ...

    def fetch(self, slug: str) -> RemoteFile | None:
        """A page as a file; None once the page is gone."""
        ...

    def version(self, slug: str, number: int) -> bytes | None:
        """What a page said as a file at one of its versions; None where that is not known."""
        ...

    def store(self, slug: str, data: bytes, version: int | None, path: str) -> int:
        """Write the page of the file `path` at `version` (None: not there yet); gives the new one.

        Raises `SyncConflict`, `SyncRefusal`.
        """
        ...

    def remove(self, slug: str, version: int) -> None:
        """Delete a page that is at `version`. Raises `SyncConflict`."""
        ...

    def rename(self, slug: str, to: str, version: int, path: str) -> int:
        """Give a page that is at `version` the slug of a file; gives the new version.

        Raises `SyncConflict`.
        """
        ...


@dataclass(slots=True)
class SyncedFile:
    """What was the same on both sides: the file's path and content, the page's version."""

    path: str
    version: int
    digest: str
    mtime_ns: int = 0
    size: int = -1
    seen_ns: int = 0
    id: str = ""  # of the page; "" until a list has told it

    def is_page(self, page: RemoteListing) -> bool:
        """Whether a page of the memory is the one that was known."""
        return page.id == self.id if self.id else page.version == self.version

    def stands(self, stat: os.stat_result) -> bool:
        """Whether a file surely still has this content, as far as its times and size tell."""
        same = (stat.st_mtime_ns, stat.st_size) == (self.mtime_ns, self.size)
        return same and self.mtime_ns + SETTLED_NS < self.seen_ns


@dataclass(slots=True)
class SyncResult:
    """What a sync has done, as slugs and paths."""

    sent: list[str] = field(default_factory=list[str])
    received: list[str] = field(default_factory=list[str])
    removed_here: list[str] = field(default_factory=list[str])
    removed_there: list[str] = field(default_factory=list[str])
    renamed: list[str] = field(default_factory=list[str])
    merged: list[str] = field(default_factory=list[str])
    conflicts: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])

    def __bool__(self) -> bool:
        return any(self.plain().values())

    def plain(self) -> dict[str, list[str]]:
        """The same for a program."""
        return {spec.name: getattr(self, spec.name) for spec in fields(self)}


@dataclass(frozen=True, slots=True)
class LocalSide:
    """A file of the folder as it was just found; `data` is not read where it surely is as it was."""

    path: str
    digest: str
    data: bytes
    mtime_ns: int
    size: int
