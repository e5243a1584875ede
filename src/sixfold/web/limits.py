"""What one request may send, and how often one may try a password."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Generator
from contextlib import contextmanager

from starlette.types import Message, Receive, Scope

from sixfold import errors
from sixfold.core import quantities
from sixfold.web import refusals

_MAX_LENGTH_DIGITS = 18
_MAX_KEYS = 10_000
_FREE_BYTES = 64 * 1024
_TOO_MANY_BYTES = (
    "Too many large bodies without a key in the header Authorization at once: retry, or send it there"
)


def check_length(scope: Scope, max_bytes: int) -> None:
    """Refuse a body that says itself that it is too large."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            digits = len(value) if value.isdigit() else 0
            if digits > _MAX_LENGTH_DIGITS or (digits and int(value) > max_bytes):
                raise too_large(max_bytes)


def capped(receive: Receive, max_bytes: int) -> Receive:
    """`receive`, which raises `TooLarge` as soon as more than `max_bytes` of body have come in."""
    seen = 0

    async def counting() -> Message:
        nonlocal seen
        message = await receive()
        if message["type"] == "http.request":
            seen += len(message.get("body", b""))
            if seen > max_bytes:
                raise too_large(max_bytes)
        return message

    return counting


def too_large(max_bytes: int) -> errors.TooLarge:
    """The error that names the limit."""
    return errors.TooLarge(f"The request body is larger than {quantities.limit(max_bytes)}")


class BodyBudget:
    """Bytes of bodies in memory, of requests whose key is not known yet: in all, and half of it per caller.

    The first 64 KiB of each body are not counted.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._total = 0
        self._callers: Counter[str] = Counter()

    @contextmanager
    def counting(self, caller: str, receive: Receive) -> Generator[Receive]:
        """`receive`, which raises `TooManyRequests` over the budget; its bytes are given back at the end."""
        seen = counted = 0

        async def metered() -> Message:
            nonlocal seen, counted
            message = await receive()
            seen += len(message.get("body", b""))
            more = max(0, seen - _FREE_BYTES) - counted
            counted += more
            self._total += more
            self._callers[caller] += more
            if more and (self._total > self._max_bytes or 2 * self._callers[caller] > self._max_bytes):
                refusals.recorder().add("unauthenticated_body", caller)
                raise errors.TooManyRequests(_TOO_MANY_BYTES)
            return message

        try:
            yield metered
        finally:
            self._total -= counted
            self._callers[caller] -= counted
            if self._callers[caller] <= 0:
                del self._callers[caller]


class Attempts:
    """At most `limit` tries per key within `seconds`; `clock` gives seconds that never go back."""

    def __init__(self, limit: int, seconds: float, clock: Callable[[], float]) -> None:
        self._limit = limit
        self._seconds = seconds
        self._clock = clock
        self._tries: OrderedDict[str, deque[float]] = OrderedDict()

    def spend(self, key: str) -> None:
        """Count one try; raises `TooManyRequests` when there were too many."""
        now = self._clock()
        tries = self._tries.setdefault(key, deque())
        self._tries.move_to_end(key)
        while len(self._tries) > _MAX_KEYS:
            self._tries.popitem(last=False)
        while tries and tries[0] <= now - self._seconds:
            tries.popleft()
        if len(tries) >= self._limit:
            wait = math.ceil(tries[0] + self._seconds - now)
            raise errors.TooManyRequests("Too many attempts: wait a little", retry_after=max(1, wait))
        tries.append(now)
