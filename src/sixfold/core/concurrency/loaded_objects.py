"""The memory of stored objects that requests load, limited for all requests of a process together.

A request of 200 bytes can name a file of 64 MB or continue a conversation of 32 MB, to which the limits on
bodies do not apply.
"""

from __future__ import annotations

import asyncio
from weakref import WeakKeyDictionary

from sixfold.core.concurrency import fair_threads, memory_limit
from sixfold.core.concurrency.memory_limit import MemoryLease, MemoryLimit, MemoryScope

MAX_BYTES = 256 * 2**20
# The bytes of a file and of its blocks, which are joined.
DOCUMENT_COPIES = 2
# The object, its base64 or its items, the body that contains it, and a copy of the body.
INLINED_COPIES = 4
# Smaller objects are not counted.
_SMALL_BYTES = 64 * 1024
_WAIT_SECONDS = 30.0
_MESSAGE = "Too many large files and conversations are being read: retry when other requests have ended"


class _LoadedObjects:
    """The limit of one event loop, and the lease of each request in progress."""

    def __init__(self) -> None:
        self.limit = MemoryLimit(MAX_BYTES, _MESSAGE, _WAIT_SECONDS)
        self.leases: WeakKeyDictionary[MemoryScope, MemoryLease] = WeakKeyDictionary()
        # The keys of the objects for which each request has reserved memory.
        self.keys: WeakKeyDictionary[MemoryScope, set[str]] = WeakKeyDictionary()


# A limit waits for events of its loop; a process has one loop, except in tests.
_by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoadedObjects] = WeakKeyDictionary()


async def reserve(size: int, copies: int, key: str = "") -> None:
    """Reserve memory for copies of an object of `size` bytes until the request ends.

    A request that loads an object again in place of its last copies, such as for another server, has
    reserved it once with the same `key`. Waits for earlier requests; raises `TooManyRequests`. Work without a
    request is not counted.
    """
    request = memory_limit.scope.get()
    if request is None or size <= _SMALL_BYTES:
        return
    loaded = _by_loop.setdefault(asyncio.get_running_loop(), _LoadedObjects())
    keys = loaded.keys.setdefault(request, set())
    if key in keys:
        return
    lease = loaded.leases.get(request) or loaded.limit.lease(fair_threads.owner.get())
    # The oldest lease may always grow, so requests with several objects do not wait for each other.
    if request.keep(lease):
        loaded.leases[request] = lease
        await lease.resize(lease.size + copies * size)
        if key:
            keys.add(key)
        if not request.keep(lease):
            lease.release()


def release() -> None:
    """Release the memory that this request has reserved, because it no longer uses the objects."""
    if (lease := _lease(forget=True)) is not None:
        lease.release()


def release_sent() -> None:
    """Release half of the memory that this request has reserved.

    The body that was sent to a server and its copy are gone; the request and its items remain.
    """
    if (lease := _lease()) is not None:
        lease.shrink(lease.size // 2)


def _lease(*, forget: bool = False) -> MemoryLease | None:
    """Return the lease of this request, or None; optionally forget the keys of its objects."""
    request, loaded = memory_limit.scope.get(), _by_loop.get(asyncio.get_running_loop())
    if request is None or loaded is None:
        return None
    if forget:
        loaded.keys.pop(request, None)
    return loaded.leases.get(request)
