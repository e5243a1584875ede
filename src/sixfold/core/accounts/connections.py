"""Connections that stay open, by the credential that opened each: they end within a second of its end.

Credentials are ended by this server, by another one, or by the command line, so the database is asked twice a
second whether each credential that has a connection here is still good. Nothing is asked while none has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, NamedTuple

import msgspec

from sixfold import errors
from sixfold.core.accounts import keys
from sixfold.core.database import Database, Transaction, many

LOOK_SECONDS = 0.5
Kind = Literal["key", "session"]
_QUERIES: dict[Kind, str] = {"key": "connections_keys", "session": "connections_sessions"}
_LOG = logging.getLogger("sixfold.connections")

authenticated: ContextVar[keys.Principal | None] = ContextVar("authenticated", default=None)
"""The principal whose key or local access the authenticator accepted for this request."""

browsing: ContextVar[str | None] = ContextVar("browsing", default=None)
"""The token of the browser session that this request carries."""


class Credential(NamedTuple):
    """A key by its id, or a browser session by the hash of its token (hexadecimal)."""

    kind: Kind
    id: str

    @property
    def text(self) -> str:
        """As it is stored: `kind:id`."""
        return f"{self.kind}:{self.id}"

    @classmethod
    def of(cls, text: str) -> Credential:
        """Read what `text` wrote."""
        kind, _, name = text.partition(":")
        return cls("key" if kind == "key" else "session", name)


class CredentialEnded(Exception):
    """The credential that opened this connection was revoked or ended."""


def current() -> Credential | None:
    """The credential of this request; None for one that has none."""
    principal, token = authenticated.get(), browsing.get()
    if principal is not None:
        return None if principal.key_id is None else Credential("key", principal.key_id)
    return None if token is None else Credential("session", keys.hash_of(token).hex())


def forget() -> None:
    """Begin a request with no credential: its task may have been made in the context of another one."""
    authenticated.set(None)
    browsing.set(None)


class Connections:
    """The open connections of this server; for one event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ends: defaultdict[Credential, set[Callable[[], None]]] = defaultdict(set)
        self._any = asyncio.Event()

    def __len__(self) -> int:
        return sum(len(ends) for ends in self._ends.values())

    def add(self, credential: Credential, end: Callable[[], None]) -> Callable[[], None]:
        """Call `end` when the credential ends; gives the function that takes the connection out again."""
        self._ends[credential].add(end)
        self._any.set()

        def remove() -> None:
            ends = self._ends.get(credential)
            if ends is not None:
                ends.discard(end)
                if not ends:
                    del self._ends[credential]

        return remove

    @contextmanager
    def during(self, credential: Credential | None) -> Generator[None]:
        """Cancel the block when the credential ends; then raises `CredentialEnded`."""
        if credential is None:
            yield
            return
        task, ended = asyncio.current_task(), False

        def end() -> None:
            nonlocal ended
            ended = True
            if task is not None:
                task.cancel()

        remove = self.add(credential, end)
        try:
            yield
        except asyncio.CancelledError:
            if not ended or task is None or task.uncancel() > 0:
                raise
            raise CredentialEnded from None
        finally:
            remove()

    async def run(self) -> None:
        """Look for ended credentials until canceled."""
        while True:
            await self._any.wait()
            try:
                await self.look()
            except errors.StoreFailed:
                _LOG.warning("cannot read which credentials have ended; trying again")
            if not self._ends:
                self._any.clear()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> int:
        """End the connections of credentials that have ended; gives how many."""
        asked = set(self._ends)
        if not asked:
            return 0
        living = await self._database.read(_living(asked))
        ended = 0
        for credential in asked - living:
            for end in tuple(self._ends.get(credential, ())):
                with contextlib.suppress(RuntimeError):  # its loop is closing
                    end()
                ended += 1
        return ended


def _living(asked: set[Credential]) -> Transaction[set[Credential]]:
    found: set[Credential] = set()
    for kind, query in _QUERIES.items():
        ids = sorted(each.id for each in asked if each.kind == kind)
        if ids:
            rows = yield from many(query, ids=msgspec.json.encode(ids).decode())
            found |= {Credential(kind, str(row["id"])) for row in rows}
    return found
