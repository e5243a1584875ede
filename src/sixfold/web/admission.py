"""Limits on callers: open streams, request rates and attempts, each counted in the memory of this server."""

from __future__ import annotations

import functools
import hashlib
import math
import secrets
import time
from array import array
from collections import Counter
from collections.abc import Callable, MutableMapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope

from sixfold import errors
from sixfold.settings import Settings
from sixfold.web import refusals
from sixfold.web.bodies import BodyBudget
from sixfold.web.trusted_hosts import TrustedHosts

# An export keeps the names of all its members: 100 MB for 250,000 pages.
_EXPORTS_PER_ACCOUNT, _EXPORTS = 2, 16
_TOO_MANY_BYTES = "Too many large request bodies at a time: retry when earlier requests have ended"


class Admission:
    """The limits of one server, shared by the dispatcher and all streaming routes."""

    def __init__(self, settings: Settings, origins: TrustedHosts) -> None:
        self._origins = origins
        self.accounts = RequestRates(settings.requests_per_second_per_account, "An account")
        self._keyless = RequestRates(settings.requests_per_second_per_peer, "An address without a valid key")
        self.websockets = StreamLimit(
            "websockets", "websockets", settings.websockets_per_account, settings.websockets
        )
        self.event_streams = StreamLimit(
            "event_streams", "event streams", settings.event_streams_per_account, settings.event_streams
        )
        self._exports = StreamLimit("exports", "exports", _EXPORTS_PER_ACCOUNT, _EXPORTS)
        # Larger bodies are uploads, which go to disk.
        self.held_bytes = settings.inline_body_bytes
        self._bodies = BodyBudget(settings.body_memory_bytes, "body_memory", _TOO_MANY_BYTES)
        self.chat_streams = StreamLimit("chat_streams", "streamed chats", settings.chat_streams_per_account)

    def event_stream(self, request: HTTPConnection, account_id: str) -> None:
        """Occupy a slot for an event stream until its request ends.

        Raises `TooManyStreams` or `TooManyConnections`.
        """
        self.event_streams.hold(request.scope, account_id)
        self.event_streams.enter(request.scope, account_id)

    def export(self, request: HTTPConnection, account_id: str) -> None:
        """Occupy a slot for an export until its request ends.

        Raises `TooManyStreams` or `TooManyConnections`.
        """
        self._exports.hold(request.scope, account_id)
        self._exports.enter(request.scope, account_id)

    def body(self, scope: Scope, receive: Receive) -> AbstractContextManager[Receive]:
        """Return a `receive` that counts the body in the memory of its client's address."""
        return self._bodies.track(self._origins.network(HTTPConnection(scope)), receive)

    def keyless(self, connection: HTTPConnection) -> None:
        """Count a request without a valid key against its address; raises `TooManyRequests` over the rate."""
        peer = self._origins.limited(connection)
        if peer is not None:
            self._keyless.spend(peer)


# The scope key of the callbacks that release its slots when the request or websocket ends.
_RELEASE_CALLBACKS = "sixfold.release_callbacks"


class StreamLimit:
    """A limit on open streams: `per_holder` for each account, `total` for the server; 0 means no limit.

    `reason` is the label in the metrics, `noun` the name in error messages.
    """

    def __init__(self, reason: str, noun: str, per_holder: int, total: int = 0) -> None:
        self._reason = reason
        self._noun = noun
        self._per_holder = per_holder
        self._total = total
        self.open = 0
        self.holders = Counter[str]()

    def hold(self, scope: MutableMapping[str, Any], holder: str) -> None:
        """Occupy a slot of an account until the request of `scope` ends; raises `TooManyStreams`."""
        if not self._per_holder:
            return
        if self.holders[holder] >= self._per_holder:
            refusals.recorder().add(self._reason, holder)
            raise errors.TooManyStreams(
                f"This account has {self._per_holder} open {self._noun}, which is the limit: close some",
                code=f"too_many_{self._reason}",
            )
        self.holders[holder] += 1
        _callbacks(scope).append(functools.partial(self._release_holder, holder))

    def enter(self, scope: MutableMapping[str, Any], caller: str) -> None:
        """Occupy a slot of the server until the request of `scope` ends; raises `TooManyConnections`."""
        if self._total and self.open >= self._total:
            refusals.recorder().add(self._reason, caller)
            raise errors.TooManyConnections(f"The server has too many open {self._noun}: retry in a moment")
        self.open += 1
        _callbacks(scope).append(self._release)

    def _release(self) -> None:
        self.open -= 1

    def _release_holder(self, holder: str) -> None:
        self.holders[holder] -= 1
        if self.holders[holder] <= 0:
            del self.holders[holder]


def _callbacks(scope: MutableMapping[str, Any]) -> list[Callable[[], None]]:
    return scope.setdefault(_RELEASE_CALLBACKS, [])


def release(scope: MutableMapping[str, Any]) -> None:
    """Release the slots that a request or websocket occupies."""
    for callback in scope.pop(_RELEASE_CALLBACKS, ()):
        callback()


# A burst may contain as many requests as the rate allows in this many seconds.
BURST_SECONDS = 10.0
_MAX_KEYS = 100_000
# The key that all callers beyond `max_keys` share.
_SHARED = ""


class RequestRates:
    """A limit of `per_second` requests for each key, by the generic cell rate algorithm; 0 means no limit.

    Keys whose requests no longer count are removed. When `max_keys` are still active, all further
    keys share one limit, so that no active key loses its count.
    """

    def __init__(
        self,
        per_second: float,
        noun: str,
        clock: Callable[[], float] = time.monotonic,
        max_keys: int = _MAX_KEYS,
    ) -> None:
        self._per_second = per_second
        self._step = 1 / per_second if per_second else 0.0
        self._noun = noun
        self._clock = clock
        self._max_keys = max_keys
        # For each key, the time at which its previous requests no longer count.
        self._due: dict[str, float] = {}
        self._full_until = -math.inf

    def spend(self, key: str) -> None:
        """Count a request; raises `TooManyRequests` over the rate."""
        if not self._step:
            return
        now = self._clock()
        due = self._due.get(key)
        if due is None:
            key, due = self._admit_key(key, now)
        due = (due if due > now else now) + self._step
        if due > now + BURST_SECONDS:
            self._refuse(key, due - now)
        self._due[key] = due

    def _admit_key(self, key: str, now: float) -> tuple[str, float]:
        if len(self._due) >= self._max_keys:
            if now >= self._full_until:
                self._due = {name: due for name, due in self._due.items() if due > now}
                self._full_until = now + 1
            if len(self._due) >= self._max_keys:
                return _SHARED, self._due.get(_SHARED, now)
        return key, now

    def _refuse(self, key: str, ahead: float) -> None:
        refusals.recorder().add("rate", key)
        raise errors.TooManyRequests(
            f"{self._noun} may make at most {self._per_second:g} requests per second, with bursts of up to "
            f"{BURST_SECONDS:g} seconds' worth: retry later",
            retry_after=max(1, math.ceil(ahead - BURST_SECONDS)),
        )


_ROWS, _WIDTH = 4, 65_536
_MAX_COUNT = 65_535


class CountedAttempt(NamedTuple):
    """The cells in which an attempt was counted."""

    window: int
    cells: tuple[int, ...]


class Attempts:
    """A limit of `limit` attempts per key in each window of `seconds`, in fixed memory (a count-min sketch).

    `clock` returns monotonic seconds. A key counts in one cell of each row, and its count is the smallest of
    them, which is never too low. It is too high if each of its cells is shared with another key: this affects
    one key in 2,500 when 10,000 others have used up their attempts. A secret determines the cells.
    """

    def __init__(self, limit: int, seconds: float, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._seconds = seconds
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._ends = -math.inf
        self._window = 0
        self._rows: list[array[int]] = []

    def spend(self, key: str) -> CountedAttempt:
        """Count one attempt and return its cells; raises `TooManyRequests` over the limit."""
        now = self._clock()
        if now >= self._ends:
            self._ends = now + self._seconds
            self._window += 1
            self._rows = [array("H", bytes(2 * _WIDTH)) for _ in range(_ROWS)]
        cells = self._cells(key)
        if min(row[cell] for row, cell in zip(self._rows, cells, strict=True)) >= self._limit:
            raise errors.TooManyRequests(
                "Too many attempts: retry later", retry_after=max(1, math.ceil(self._ends - now))
            )
        for row, cell in zip(self._rows, cells, strict=True):
            row[cell] = min(_MAX_COUNT, row[cell] + 1)
        return CountedAttempt(self._window, cells)

    def release(self, attempt: CountedAttempt) -> None:
        if attempt.window == self._window:
            for row, cell in zip(self._rows, attempt.cells, strict=True):
                row[cell] = max(0, row[cell] - 1)

    def _cells(self, key: str) -> tuple[int, ...]:
        name = key.encode("utf-8", "replace")
        digest = hashlib.blake2b(name, key=self._secret, digest_size=2 * _ROWS).digest()
        return tuple(int.from_bytes(digest[at : at + 2]) for at in range(0, 2 * _ROWS, 2))
