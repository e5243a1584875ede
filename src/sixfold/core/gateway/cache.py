"""Optional in-memory cache that repeats a response to an identical request of the same account."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sixfold.core.gateway.ports import GatewayRequest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _CacheEntry(Generic[T]):
    value: T
    size: int
    until: float


class ResponseCache(Generic[T]):
    """An LRU cache of at most `max_bytes` whose entries expire after `seconds`."""

    def __init__(self, max_bytes: int, seconds: float, clock: Callable[[], float]) -> None:
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._clock = clock
        self._kept: OrderedDict[bytes, _CacheEntry[T]] = OrderedDict()
        self._bytes = 0

    def get(self, ask: GatewayRequest) -> T | None:
        """Return the cached response to a request, or None."""
        key = _key(ask)
        found = self._kept.get(key)
        if found is None:
            return None
        if found.until < self._clock():
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return found.value

    def put(self, ask: GatewayRequest, value: T, size: int) -> None:
        """Store the response to a request."""
        key = _key(ask)
        if key in self._kept:
            self._drop(key)
        if size > self._max_bytes:
            return
        self._kept[key] = _CacheEntry(value, size, self._clock() + self._seconds)
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: bytes) -> None:
        self._bytes -= self._kept.pop(key).size


def _key(ask: GatewayRequest) -> bytes:
    told = "\0".join((ask.account_id, ask.wire, ask.model)).encode()
    # Requests of internal callers have no body.
    said = ask.body or repr(ask.parse()).encode()
    return hashlib.sha256(told + b"\0" + said).digest()
