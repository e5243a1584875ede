"""What one request may send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from starlette.types import Message, Receive, Scope

from sixfold import errors
from sixfold.core import humanize
from sixfold.web import refusals

_MAX_LENGTH_DIGITS = 18
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
    return errors.TooLarge(f"The request body is larger than {humanize.limit(max_bytes)}")


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
