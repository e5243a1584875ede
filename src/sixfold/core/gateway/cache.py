"""An optional in-memory cache of responses to identical requests of the same tenant."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from sixfold.core.gateway.ports import GatewayReply, GatewayRequest

T = TypeVar("T")


class _CacheEntry(msgspec.Struct, Generic[T], frozen=True):
    value: T
    size: int
    expires_at: float


class ResponseCache(Generic[T]):
    """An LRU cache of at most `max_bytes` whose entries expire after `seconds`."""

    def __init__(self, max_bytes: int, seconds: float, clock: Callable[[], float]) -> None:
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._clock = clock
        self._entries: OrderedDict[bytes, _CacheEntry[T]] = OrderedDict()
        self._bytes = 0

    def get(self, request: GatewayRequest) -> T | None:
        key = _key(request)
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.expires_at < self._clock():
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry.value

    def put(self, request: GatewayRequest, value: T, size: int) -> None:
        key = _key(request)
        if key in self._entries:
            self._drop(key)
        if size > self._max_bytes:
            return
        self._entries[key] = _CacheEntry(value, size, self._clock() + self._seconds)
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: bytes) -> None:
        self._bytes -= self._entries.pop(key).size


def _key(request: GatewayRequest) -> bytes:
    # A body may name files, which only their credential can read, and headers select features of a server.
    owner = (request.account_id, request.caller.credential_id)
    prefix = repr((owner, request.wire, request.model, sorted(request.headers.items()))).encode()
    # Requests of internal callers have no body.
    content = request.body or repr(request.parse()).encode()
    return hashlib.sha256(prefix + b"\0" + content).digest()


def memory_size(request: GatewayRequest, reply: GatewayReply) -> int:
    """Estimate the bytes of memory that a cached reply uses."""
    content = reply.raw or b"" if reply.answer is None else repr(reply.answer.parts)
    return len(content) + len(request.body) + 1024
