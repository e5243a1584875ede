"""A limit on the bytes that all requests together use for large data, such as responses of servers."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextvars import ContextVar
from typing import Self

from sixfold.errors import TooManyRequests

_WAIT_SECONDS = 30.0
# Maximum number of waiting leases of one owner; each of their requests has already read some data.
MAX_WAITING = 32


class MemoryScope:
    """The leases of a request, which are released when the response has been sent."""

    def __init__(self) -> None:
        self._leases: list[MemoryLease] = []
        self._is_closed = False

    def keep(self, lease: MemoryLease) -> bool:
        """Release a lease at the end of the request; return False if the request has already ended."""
        if not self._is_closed:
            self._leases.append(lease)
        return not self._is_closed

    def close(self) -> None:
        """Release all leases."""
        self._is_closed = True
        for lease in self._leases:
            lease.release()


scope: ContextVar[MemoryScope | None] = ContextVar("memory_scope", default=None)
"""The memory scope of this request."""


class MemoryLimit:
    """A limit of `max_bytes` for all owners, and half of that for each; 0 disables the limit.

    The oldest lease may exceed the limit for all owners, and an owner's only lease may exceed the limit for
    the owner, so that a growing lease can be completed.
    """

    def __init__(
        self,
        max_bytes: int,
        message: str,
        wait_seconds: float = _WAIT_SECONDS,
        max_waiting: int | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._message = message
        self.wait_seconds = wait_seconds
        self._max_waiting = MAX_WAITING if max_waiting is None else max_waiting
        # The leases that have grown, oldest first.
        self._leases: dict[MemoryLease, None] = {}
        self._owners = Counter[str]()
        self._counts = Counter[str]()
        self._waiting = Counter[str]()
        self._changed = asyncio.Event()
        self.total = 0

    def lease(self, owner: str) -> MemoryLease:
        """Return an empty lease, to be used in an `async with` block."""
        return MemoryLease(self, owner)

    async def resize(self, lease: MemoryLease, size: int) -> None:
        """Grow a lease when enough bytes are available; raises `TooManyRequests` after a timeout."""
        if not self._is_available(lease, size):
            await self._wait(lease, size)
        self._set(lease, size)

    async def _wait(self, lease: MemoryLease, size: int) -> None:
        if self._waiting[lease.owner] >= self._max_waiting:
            raise TooManyRequests(self._message)
        self._waiting[lease.owner] += 1
        try:
            async with asyncio.timeout(self.wait_seconds):
                while not self._is_available(lease, size):
                    await self._changed.wait()
        except TimeoutError as error:
            raise TooManyRequests(self._message) from error
        finally:
            self._waiting[lease.owner] -= 1
            if not self._waiting[lease.owner]:
                del self._waiting[lease.owner]

    def shrink(self, lease: MemoryLease, size: int) -> None:
        self._set(lease, size)

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
    """The bytes that one owner uses.

    As a context manager it is released at the end of the request, or of the block if an error occurs.
    """

    def __init__(self, limit: MemoryLimit, owner: str) -> None:
        self.owner = owner
        self.size = 0
        self._limit = limit

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, error: type[BaseException] | None, *_details: object) -> None:
        request = scope.get()
        if error is not None or (self.size and (request is None or not request.keep(self))):
            self.release()

    async def resize(self, size: int) -> None:
        """Change the lease to `size` bytes, waiting until they are available; raises `TooManyRequests`."""
        await self._limit.resize(self, size)

    def shrink(self, size: int) -> None:
        """Reduce the lease to `size` bytes."""
        self._limit.shrink(self, size)

    def release(self) -> None:
        self.shrink(0)
