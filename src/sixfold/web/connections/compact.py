"""Replacements for objects of uvicorn that every connection has and that are rarely used.

An `asyncio.Event` and a `deque` allocate 700 bytes each when they are created. An open stream has two events
and the queue of pipelined requests, nearly always without a waiter or a request.
"""

from __future__ import annotations

import asyncio
from typing import TypeVar, cast

from uvicorn.protocols.http.flow_control import FlowControl

T = TypeVar("T")


class CompactEvent:
    """An event as `asyncio.Event`, which allocates a list of waiters only while a task waits."""

    __slots__ = ("_is_set", "_waiters")

    def __init__(self, *, is_set: bool = False) -> None:
        self._is_set = is_set
        self._waiters: list[asyncio.Future[None]] | None = None

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Set the event, and wake up all tasks that wait."""
        self._is_set = True
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)

    def clear(self) -> None:
        self._is_set = False

    async def wait(self) -> None:
        """Return when the event is set, even if it has been cleared again since."""
        if self._is_set:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self._waiters
        if waiters is None:
            waiters = self._waiters = []
        waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            waiters.remove(waiter)
            raise


class CompactQueue(list[T]):
    """A queue of a few items with the methods of `deque` that uvicorn calls: the oldest item is last."""

    __slots__ = ()

    def appendleft(self, item: T) -> None:
        self.insert(0, item)


class ConnectionFlow(FlowControl):
    """Flow control that does not resume reading while data that was read is not parsed."""

    is_held = False

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        self._is_writable_event = cast("asyncio.Event", CompactEvent(is_set=True))

    def hold(self) -> None:
        self.is_held = True
        self.pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused and not self.is_held:
            super().resume_reading()
