"""Open connections by credential; each is closed within a second of the credential's revocation.

Credentials may be revoked by this server, by another server or by the CLI. Therefore this server queries the
database twice a second for the credentials of its open connections, if it has any.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal, NamedTuple

from sixfold import errors
from sixfold.core.accounts import keys, rights
from sixfold.core.concurrency import fair_threads
from sixfold.core.database import Database, T, Transaction, encode_json, many

CHECK_SECONDS = 0.5
# The time limit of a check, which grows while checks exceed it.
_FIRST_SECONDS, _GROWTH, _MAX_SECONDS = 1.0, 1.25, 60.0
# A request that has taken this long checks its credential again before it has an effect.
LATE_SECONDS = CHECK_SECONDS
Kind = Literal["key", "session", "login", "folder"]
_QUERIES: dict[Kind, str] = {
    "key": "connections_keys",
    "session": "connections_sessions",
    "login": "connections_logins",
    "folder": "connections_folders",
}
_LOG = logging.getLogger("sixfold.connections")

authenticated: ContextVar[keys.Principal | None] = ContextVar("authenticated", default=None)
"""The principal of this request, once its key or local access has been authenticated."""


class Credential(NamedTuple):
    """An API key by its id, a login session by the hexadecimal hash of its token or (`login`) its own id, or
    the share of a `folder` of another account's memory by its id.

    A session that switches to another account gets a new token, which ends its connections. `suspended` means
    that the request began while its account was suspended or closed: its rights still allow, for example, an
    export. `role` is the lowest role that the request requires: an export ends when its user is no longer the
    owner.
    """

    kind: Kind
    id: str
    suspended: bool = False
    role: rights.Role = "member"

    @property
    def text(self) -> str:
        """The stored form, `kind:id`."""
        return f"{self.kind}:{self.id}"

    @classmethod
    def of(cls, text: str) -> Credential:
        """Parse the stored form, `kind:id`."""
        kind, _, name = text.partition(":")
        return cls("key" if kind == "key" else "session", name)


session: ContextVar[Credential | None] = ContextVar("session", default=None)
"""The login session of this request's cookie."""


signed_in: ContextVar[keys.Principal | None] = ContextVar("signed_in", default=None)
"""The principal of the login session, once it has been authenticated."""


_authenticated_at: ContextVar[float | None] = ContextVar("authenticated_at", default=None)
shared_folder: ContextVar[Credential | None] = ContextVar("shared_folder", default=None)
"""The share of the folder that this request addresses, with which its response ends."""


_OF_REQUEST: tuple[ContextVar[Any], ...] = authenticated, session, signed_in, _authenticated_at, shared_folder


class CredentialEnded(Exception):
    """The credential of a connection was revoked or has expired."""


def current() -> Credential | None:
    """Return the credential of the current request, or None."""
    principal = authenticated.get()
    if principal is None:
        return session.get()
    if principal.key_id is None:
        return None
    return Credential("key", principal.key_id, principal.suspended, rights.declared.get().role)


def has_credential() -> bool:
    """Return whether the current request has presented a valid credential, or needed none on this machine."""
    return authenticated.get() is not None or session.get() is not None


def authenticate(principal: keys.Principal) -> None:
    """Set the principal of the current request, which a key or a login session has authenticated."""
    (signed_in if principal.authentication == "session" else authenticated).set(principal)
    _authenticated_at.set(time.monotonic())


def is_late() -> bool:
    """Return whether the credential of the current request was checked some time ago."""
    at = _authenticated_at.get()
    return at is not None and time.monotonic() - at >= LATE_SECONDS


def reset(peer: str = "") -> None:
    """Start a request of `peer` without a credential that its task may have inherited."""
    # Reading a variable takes a fraction of the time of setting it.
    for variable in _OF_REQUEST:
        if variable.get() is not None:
            variable.set(None)
    fair_threads.owner.set(peer)


class Connections:
    """Open connections of this server. Not thread-safe: all calls come from one event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._ends: defaultdict[Credential, set[Callable[[], None]]] = defaultdict(set)
        self._any = asyncio.Event()

    def __len__(self) -> int:
        return sum(len(ends) for ends in self._ends.values())

    def add(self, credential: Credential, end: Callable[[], None]) -> Callable[[], None]:
        """Call `end` once the credential has ended; return a function that removes the connection."""
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
        """Cancel the block when the credential ends, and raise `CredentialEnded` instead."""
        if credential is None:
            yield
            return
        task, ended = asyncio.current_task(), False

        def end() -> None:
            nonlocal ended
            # While the block ends, the credential may be checked again.
            if task is not None and not ended:
                task.cancel()
            ended = True

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
        """Close connections of ended credentials, twice a second, until canceled."""
        seconds = _FIRST_SECONDS
        while True:
            await self._any.wait()
            try:
                async with asyncio.timeout(seconds):
                    await self.check()
                seconds = _FIRST_SECONDS
            except TimeoutError:
                # The connection to the database may be lost without an error; the next check uses another.
                seconds = min(_GROWTH * seconds, _MAX_SECONDS)
            except errors.StoreFailed:
                _LOG.warning("expired and revoked credentials could not be read; retrying")
            if not self._ends:
                self._any.clear()
            await asyncio.sleep(CHECK_SECONDS)

    async def is_valid(self, credential: Credential) -> bool:
        """Return whether a credential may open a connection."""
        return credential in await self._database.read(valid({credential}))

    async def read(self, transaction: Transaction[T]) -> T:
        """Read the current state of a credential."""
        return await self._database.read(transaction, snapshot=False)

    async def check(self) -> int:
        """Close the connections of credentials that have ended; return their number."""
        credentials = set(self._ends)
        if not credentials:
            return 0
        active = await self._database.read(valid(credentials))
        count = 0
        for credential in credentials - active:
            for end in tuple(self._ends.get(credential, ())):
                with contextlib.suppress(RuntimeError):  # The connection's event loop is closed.
                    end()
                count += 1
        return count


def valid(credentials: set[Credential]) -> Transaction[set[Credential]]:
    """Return those of the credentials that have not ended."""
    groups: defaultdict[Credential, list[str]] = defaultdict(list)
    for each in credentials:
        groups[each._replace(id="")].append(each.id)
    found: set[Credential] = set()
    for group, ids in groups.items():
        rows = yield from many(
            _QUERIES[group.kind],
            ids=encode_json(sorted(ids)),
            suspended=int(group.suspended),
            role=group.role,
        )
        found |= {group._replace(id=str(row["id"])) for row in rows}
    return found
