"""A thread pool that accounts share in turn; one account uses at most half of the threads."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# The size of asyncio's default pool, but with enough threads for concurrent accounts.
_THREADS = max(8, min(32, (os.cpu_count() or 1) + 4))

owner: contextvars.ContextVar[str] = contextvars.ContextVar("owner", default="")
"""The account of this request, or the client's address until the account is known."""


class FairThreadPool(ThreadPoolExecutor):
    """A thread pool with a separate queue of functions for each owner."""

    def __init__(self, threads: int, name: str) -> None:
        super().__init__(threads, name)
        self._share = (threads + 1) // 2
        self._lock = threading.Lock()
        self._queues: dict[str, deque[Callable[[], None]]] = {}
        self._running: Counter[str] = Counter()
        # The number of turns that were skipped because all waiting owners had their share.
        self._skipped = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a function for the owner of the caller's context."""
        future: Future[T] = Future()
        call = functools.partial(_settle, future, functools.partial(fn, *args, **kwargs))
        with self._lock:
            self._queues.setdefault(owner.get(), deque()).append(call)
        super().submit(self._run)
        return future

    def _run(self) -> None:
        while (turn := self._begin()) is not None:
            name, call = turn
            call()
            # The traceback of an error that the function raised refers to this frame.
            del turn, call
            if not self._end(name):
                return

    def _begin(self) -> tuple[str, Callable[[], None]] | None:
        """Return the next function with its owner, who moves to the end, or None if all must wait."""
        with self._lock:
            name = next((each for each in self._queues if self._running[each] < self._share), None)
            if name is None:
                self._skipped += 1
                return None
            queue = self._queues.pop(name)
            call = queue.popleft()
            if queue:
                self._queues[name] = queue
            self._running[name] += 1
            return name, call

    def _end(self, name: str) -> bool:
        """Return whether a skipped turn is due."""
        with self._lock:
            self._running[name] -= 1
            if not self._running[name]:
                del self._running[name]
            if not self._skipped:
                return False
            self._skipped -= 1
            return True


def use_for_loop() -> None:
    """Use a pool for the running loop's `asyncio.to_thread` that one account cannot occupy alone."""
    asyncio.get_running_loop().set_default_executor(FairThreadPool(_THREADS, "asyncio"))


def _settle(future: Future[T], function: Callable[[], T]) -> None:
    """Run a function and set its result or error, unless the caller was canceled."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except BaseException as error:  # noqa: BLE001 - the caller's
        future.set_exception(error)
        # The traceback refers to this frame: without a reference cycle, data that the function has read is
        # freed at once.
        del future, function
