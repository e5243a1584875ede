"""An optional in-memory cache of responses to identical requests of the same tenant.

The response of a call that was refunded, or whose prediction was not charged, is not returned, because nobody
has paid for it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from sixfold.core.database import Database
from sixfold.core.gateway import request_log
from sixfold.core.gateway.ports import GatewayReply, GatewayRequest


class _CacheEntry(msgspec.Struct, frozen=True):
    """A response with the id of its call, and that of the prediction that pays for the call, if any."""

    call_id: str
    prediction_id: str
    reply: GatewayReply
    size: int
    expires_at: float


class ResponseCache:
    """An LRU cache of at most `max_bytes` whose entries expire after `seconds`."""

    def __init__(
        self, database: Database, max_bytes: int, seconds: float, clock: Callable[[], float]
    ) -> None:
        self._database = database
        self._max_bytes = max_bytes
        self._seconds = seconds
        self._clock = clock
        self._entries: OrderedDict[bytes, _CacheEntry] = OrderedDict()
        self._bytes = 0

    async def get(self, request: GatewayRequest) -> GatewayReply | None:
        """Return the response to an identical request if it has been paid for."""
        entry = self._find(_key(request))
        if entry is None:
            return None
        is_paid = request_log.has_succeeded(entry.call_id, entry.prediction_id)
        return entry.reply if await self._database.read(is_paid, snapshot=False) else None

    def _find(self, key: bytes) -> _CacheEntry | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.expires_at < self._clock():
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry

    def put(self, request: GatewayRequest, reply: GatewayReply) -> None:
        """Store the response to a call that has been charged, or is charged with its prediction."""
        key, size = _key(request), _memory_size(request, reply)
        if key in self._entries:
            self._drop(key)
        if size > self._max_bytes:
            return
        expires_at = self._clock() + self._seconds
        self._entries[key] = _CacheEntry(request.request_id, request.prediction_id, reply, size, expires_at)
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


def _memory_size(request: GatewayRequest, reply: GatewayReply) -> int:
    """Estimate the bytes of memory that a cached reply uses."""
    content = reply.raw or b"" if reply.answer is None else repr(reply.answer.parts)
    return len(content) + len(request.body) + 1024
