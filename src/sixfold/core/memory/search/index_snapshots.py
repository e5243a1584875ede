"""Snapshots of large indexes on disk, so that a restarted server reads only the changes since then.

A snapshot has a random token. Once its file is complete, the token is added to `memory_change.snapshots` of
its account; a file whose token is not there is never used, and is deleted. A token in the database proves
that the database contains all changes of the snapshot: a backup from before the snapshot lacks the token, and
the erasure of an account removes all its tokens.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Sequence
from typing import Protocol

import msgspec

from sixfold.core.database import Database, Query, Transaction, one
from sixfold.core.memory.search.ports import Index

_LOG = logging.getLogger("sixfold.memory")
MIN_PAGES = 10_000  # smaller indexes are read from the database within about a second
_UNSAVED_SHARE = 0.05  # of the pages, after which a new snapshot is written
_TOKENS = 8  # snapshots of one account on all servers


class SnapshotName(msgspec.Struct, frozen=True):
    """The name of a snapshot: its account, the last change that it contains, and its token."""

    account_id: str
    change: int
    token: str


class SnapshotFiles(Protocol):
    """The snapshots of a data folder; errors of the disk are raised as `OSError`."""

    def names(self) -> Sequence[SnapshotName]: ...

    def write(self, name: SnapshotName, index: Index) -> bool:
        """Write a snapshot, or return False if some words of the index are not in memory."""
        ...

    def read(self, name: SnapshotName) -> Index | None:
        """Return the index, or None if the file is damaged or another version of the program wrote it."""
        ...

    def remove(self, name: SnapshotName) -> None: ...

    def trim(self, keep: SnapshotName) -> None:
        """Delete the oldest snapshots except `keep` while the total is too large, and abandoned files."""
        ...


class IndexSnapshots:
    """The snapshots that a server stores in its data folder."""

    def __init__(self, database: Database, files: SnapshotFiles) -> None:
        self._database = database
        self._files = files

    def due(self, pages: int, unsaved: int) -> bool:
        """Return whether an index with so many pages and changed pages needs a new snapshot."""
        return pages >= MIN_PAGES and unsaved >= pages * _UNSAVED_SHARE

    async def load(self, account_id: str) -> Index | None:
        """Return the newest valid snapshot of an account."""
        names = [name for name in await self._names() if name.account_id == account_id]
        if not names:
            return None
        tokens = await self._database.read(_tokens(account_id))
        for name in sorted(names, key=lambda name: -name.change):
            if name.token in tokens and (index := await self._read(name)) is not None:
                return index
        return None

    async def save(self, account_id: str, index: Index, change: int) -> None:
        """Write a snapshot that replaces those of this account; a full disk only logs a warning."""
        name = SnapshotName(account_id, change, secrets.token_hex(8))
        try:
            if not await asyncio.to_thread(self._files.write, name, index):
                return
            replaced = [
                other for other in await self._names() if other.account_id == account_id and other != name
            ]
            tokens = {other.token for other in replaced}
            await self._database.write(_publish(name, tokens))
            for other in replaced:
                await asyncio.to_thread(self._files.remove, other)
            await asyncio.to_thread(self._files.trim, name)
        except OSError as error:
            _LOG.warning("The search index of account %s cannot be saved: %s", account_id, error)

    async def sweep(self) -> None:
        """Delete the snapshots whose tokens are not in the database, such as those of erased accounts."""
        for name in await self._names():
            if name.token not in await self._database.read(_tokens(name.account_id)):
                await asyncio.to_thread(self._files.remove, name)

    async def _names(self) -> Sequence[SnapshotName]:
        return await asyncio.to_thread(self._files.names)

    async def _read(self, name: SnapshotName) -> Index | None:
        try:
            return await asyncio.to_thread(self._files.read, name)
        except OSError as error:
            _LOG.warning("The search index of account %s cannot be read: %s", name.account_id, error)
            return None


def _tokens(account_id: str) -> Transaction[Sequence[str]]:
    row = yield from one("memory_snapshots", account_id=account_id)
    return row["snapshots"].split() if row is not None else ()


def _publish(name: SnapshotName, replaced: set[str]) -> Transaction[None]:
    """Add the token of a snapshot, unless its account has been erased."""
    tokens = yield from _tokens(name.account_id)
    remaining = [token for token in tokens if token not in replaced]
    snapshots = " ".join((*remaining[1 - _TOKENS :], name.token))
    yield Query("memory_snapshots_put", {"account_id": name.account_id, "snapshots": snapshots})
