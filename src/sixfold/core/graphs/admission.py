"""What the graphs that run on one server share: memory, and turns for free runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator

from sixfold.core.graphs.limits import GraphTooLarge


class GraphMemory:
    """Counts the memory of all running graphs: values that wait for a node, and nodes at work.

    For one event loop.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._working = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def hold(self, count: int) -> None:
        """Count `count` bytes more, or less; raises `GraphTooLarge` above the limit."""
        if count > 0 and self.used + count > self.limit:
            limit = self.limit // 2**20
            raise GraphTooLarge(
                f"The graphs that run here hold more than {limit} MiB at once; try again later"
            )
        self.used += count
        if count < 0:
            self._admit()

    @contextlib.asynccontextmanager
    async def working(self, count: int) -> AsyncGenerator[None]:
        """Reserve memory for a node at work; waits in turn until it fits or no other node works."""
        if self._waiting or not self._fits(count):
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

    def _fits(self, count: int) -> bool:
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
            if not turn.done() and not self._fits(count):
                return
            self._waiting.popleft()
            if not turn.done():
                self._take(count)
                turn.set_result(None)


class FreeRuns:
    """Lets an account run so many free graphs at a time; others wait for their turn."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._accounts: dict[str, tuple[asyncio.Semaphore, int]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, account_id: str) -> AsyncGenerator[None]:
        """Wait for a turn of the account, and hold it."""
        gate, users = self._accounts.get(account_id, (asyncio.Semaphore(self._most), 0))
        self._accounts[account_id] = gate, users + 1
        try:
            async with gate:
                yield
        finally:
            users = self._accounts[account_id][1] - 1
            if users:
                self._accounts[account_id] = gate, users
            else:
                del self._accounts[account_id]
