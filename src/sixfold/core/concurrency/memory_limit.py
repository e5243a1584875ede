"""A limit on the bytes that all requests together hold of something large, such as responses of servers."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from contextvars import ContextVar

from sixfold.errors import TooManyRequests

_WAIT_SECONDS = 30.0
# Leases of one owner that wait; each of their requests has read a little already.
_MAX_WAITING = 32


class MemoryScope:
    """The leases of a request, which are released when its response has been sent."""

    def __init__(self) -> None:
        self._leases: list[MemoryLease] = []
        self._is_closed = False

    def keep(self, lease: MemoryLease) -> bool:
        """Release a lease at the end of the request; return False if that is over already."""
        if not self._is_closed:
            self._leases.append(lease)
        return not self._is_closed

    def close(self) -> None:
        """Release all leases."""
        self._is_closed = True
        for lease in self._leases:
            lease.release()


scope: ContextVar[MemoryScope | None] = ContextVar("memory_scope", default=None)
"""The scope of this request."""


class MemoryLimit:
    """At most `max_bytes` at a time, and half of them for one owner; 0 means no limit.

    The oldest lease, and the only one of an owner, may exceed the limit of all and of the owner: a lease
    that has grown is completed.
    """

    def __init__(self, max_bytes: int, message: str, wait_seconds: float = _WAIT_SECONDS) -> None:
        self._max_bytes = max_bytes
        self._message = message
        self._wait_seconds = wait_seconds
        # The leases that have grown, oldest first.
        self._leases: dict[MemoryLease, None] = {}
        self._owners = Counter[str]()
        self._counts = Counter[str]()
        self._waiting = Counter[str]()
        self._changed = asyncio.Event()
        self.total = 0

    @asynccontextmanager
    async def lease(self, owner: str) -> AsyncGenerator[MemoryLease]:
        """Yield an empty lease, which is released at the end of the request, or of the block on an error."""
        lease = MemoryLease(self, owner)
        try:
            yield lease
        except BaseException:
            lease.release()
            raise
        request = scope.get()
        if lease.size and (request is None or not request.keep(lease)):
            lease.release()

    async def resize(self, lease: MemoryLease, size: int) -> None:
        """Grow a lease when its bytes are available; raises `TooManyRequests` if they are not soon."""
        if not self._is_available(lease, size):
            await self._wait(lease, size)
        self._set(lease, size)

    async def _wait(self, lease: MemoryLease, size: int) -> None:
        if self._waiting[lease.owner] >= _MAX_WAITING:
            raise TooManyRequests(self._message)
        self._waiting[lease.owner] += 1
        try:
            async with asyncio.timeout(self._wait_seconds):
                while not self._is_available(lease, size):
                    await self._changed.wait()
        except TimeoutError as error:
            raise TooManyRequests(self._message) from error
        finally:
            self._waiting[lease.owner] -= 1
            if not self._waiting[lease.owner]:
                del self._waiting[lease.owner]

    def release(self, lease: MemoryLease) -> None:
        self._set(lease, 0)

    def _is_available(self, lease: MemoryLease, size: int) -> bool:
        more = size - lease.size
        if not self._max_bytes or more <= 0 or next(iter(self._leases), lease) is lease:
            return True
        is_only = self._counts[lease.owner] <= (lease in self._leases)
        owner_size = self._owners[lease.owner] + more
        return self.total + more <= self._max_bytes and (is_only or 2 * owner_size <= self._max_bytes)

    def _set(self, lease: MemoryLease, size: int) -> None:
        more, owner = size - lease.size, lease.owner
        lease.size = size
        self.total += more
        self._owners[owner] += more
        if size and lease not in self._leases:
            self._leases[lease] = None
            self._counts[owner] += 1
        elif not size and lease in self._leases:
            del self._leases[lease]
            self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner], self._owners[owner]
        if more < 0:
            self._changed.set()
            self._changed = asyncio.Event()


class MemoryLease:
    """Bytes of one owner."""

    def __init__(self, limit: MemoryLimit, owner: str) -> None:
        self.owner = owner
        self.size = 0
        self._limit = limit

    async def resize(self, size: int) -> None:
        """Hold `size` bytes, after waiting for them; raises `TooManyRequests`."""
        await self._limit.resize(self, size)

    def release(self) -> None:
        self._limit.release(self)
