"""Memory accounting for the graphs that run on one server."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator

from sixfold.core.workflows.limits import GraphTooLarge

_WAIT_SECONDS = 600.0


class GraphMemory:
    """Counts the memory of all running graphs: of values that wait for nodes, and of running nodes.

    Values are limited separately from running nodes, whose reservations end with the nodes. Use it from one
    event loop.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.admitted = 0
        self._shares: list[MemoryShare] = []
        self._working = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def join(self) -> MemoryShare:
        """Register a run and return its memory account; the caller must close it."""
        share = MemoryShare(self)
        self._shares.append(share)
        return share

    def leave(self, share: MemoryShare) -> None:
        """Free all memory of a share."""
        self._shares.remove(share)
        self.count(-share.pending)
        self.admit(share, -share.admitted)
        self.settle()

    def count(self, count: int) -> None:
        """Count bytes that are in memory, admitted or not."""
        self.used += count
        if count < 0:
            self._admit()

    def admit(self, share: MemoryShare, count: int) -> None:
        """Count bytes of a share as admitted; added bytes are already part of `used`."""
        share.admitted += count
        self.admitted += count
        if count < 0:
            self.count(count)

    def values_fit(self, share: MemoryShare, count: int) -> bool:
        """Return whether values fit now; a run without admitted values waits behind all waiting runs."""
        is_queued = not share.admitted and any(other.waiting for other in self._shares if other is not share)
        return not is_queued and self.admitted + count <= self.limit

    def settle(self) -> None:
        """Admit the values that fit, oldest run first.

        If all runs with values are waiting, the newest of them fails.
        """
        is_blocked = False
        for share in self._shares:
            if share.waiting is None or (is_blocked and not share.admitted):
                continue
            if self.admitted + share.pending <= self.limit:
                share.resume()
            else:
                is_blocked = True
        holding = [share for share in self._shares if share.admitted]
        if is_blocked and all(share.waiting for share in holding):
            holding[-1].fail()

    @contextlib.asynccontextmanager
    async def working(self, count: int) -> AsyncGenerator[None]:
        """Reserve memory for a running node; wait in order until it fits or all other nodes have ended."""
        if self._waiting or not self._node_fits(count):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((count, turn))
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._return(count)
                else:
                    self._admit()
                raise
        else:
            self._take(count)
        try:
            yield
        finally:
            self._return(count)

    def _node_fits(self, count: int) -> bool:
        return not self._working or self.used + count <= self.limit

    def _take(self, count: int) -> None:
        self._working += 1
        self.used += count

    def _return(self, count: int) -> None:
        self._working -= 1
        self.used -= count
        self._admit()

    def _admit(self) -> None:
        while self._waiting:
            count, turn = self._waiting[0]
            if not turn.done() and not self._node_fits(count):
                return
            self._waiting.popleft()
            if not turn.done():
                self._take(count)
                turn.set_result(None)


class MemoryShare:
    """The values of one run in `GraphMemory`: `admitted` bytes, and `pending` bytes that wait for memory."""

    def __init__(self, memory: GraphMemory) -> None:
        self._memory = memory
        self.admitted = 0
        self.pending = 0
        self.waiting: asyncio.Future[None] | None = None

    def hold(self, count: int) -> None:
        """Count `count` more bytes, which may be negative; raises `GraphTooLarge` above the run's limit.

        If `pending` is not zero afterwards, the run must `wait_for_capacity` before its next node.
        """
        memory = self._memory
        if count <= 0:
            pending = min(self.pending, -count)
            self.pending -= pending
            memory.count(-pending)
            memory.admit(self, count + pending)
            memory.settle()
            return
        if self.admitted + self.pending + count > memory.limit:
            raise GraphTooLarge(
                f"The values of the graph use more than {memory.limit // 2**20} MiB at a time: "
                "split it into smaller graphs"
            )
        memory.count(count)
        if not self.pending and memory.values_fit(self, count):
            memory.admit(self, count)
        else:
            self.pending += count

    async def wait_for_capacity(self) -> None:
        """Wait until other runs free enough memory for the pending bytes.

        Nodes of this run must not be running.

        Raises `GraphTooLarge` after 10 minutes, or if the other runs wait for this one.
        """
        if not self.pending:
            return
        turn = self.waiting = asyncio.get_running_loop().create_future()
        self._memory.settle()
        try:
            async with asyncio.timeout(_WAIT_SECONDS):
                await turn
        except TimeoutError:
            raise self._full() from None
        finally:
            self.waiting = None

    def resume(self) -> None:
        """Admit the pending bytes."""
        if self.waiting is not None and not self.waiting.done():
            count, self.pending = self.pending, 0
            self._memory.admit(self, count)
            self.waiting.set_result(None)
            self.waiting = None

    def fail(self) -> None:
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_exception(self._full())
            self.waiting = None

    def close(self) -> None:
        """Free all memory that the run uses."""
        self._memory.leave(self)

    def _full(self) -> GraphTooLarge:
        limit = self._memory.limit // 2**20
        return GraphTooLarge(f"The values of all running graphs use more than {limit} MiB: try again later")
