"""A thread for functions that hold the GIL: it runs one of them at a time.

Such functions do not end sooner when several run at once, and the event loop would wait for each in turn. The
owners of waiting functions take turns, so that the functions of one do not keep those of all others waiting.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# The size of an input that takes at most 10 ms to parse, so that the event loop can do it.
LOOP_BYTES = 256 * 1024


owner: contextvars.ContextVar[str] = contextvars.ContextVar("owner", default="")
"""The account that this request is for, or the address that sent it before that is known."""


class SingleThread:
    """Runs functions one after another in a thread of its own, those of different owners in turn."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[Callable[[], None]]] = {}

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function, called in the context of the caller; raises what it raises."""
        context = contextvars.copy_context()
        future: Future[T] = Future()
        call = functools.partial(_settle, future, lambda: context.run(function, *args, **kwargs))
        with self._lock:
            self._waiting.setdefault(owner.get(), deque()).append(call)
        self._executor.submit(self._run_next)
        return await asyncio.wrap_future(future)

    def _run_next(self) -> None:
        """Run the next function of the owner whose turn it is, who is then the last."""
        with self._lock:
            name = next(iter(self._waiting))
            calls = self._waiting.pop(name)
            call = calls.popleft()
            if calls:
                self._waiting[name] = calls
        call()

    async def run_large(self, size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function of an input of `size` bytes: called here if that is little."""
        if size <= LOOP_BYTES:
            return function(*args, **kwargs)
        return await self.run(function, *args, **kwargs)


def _settle(future: Future[T], function: Callable[[], T]) -> None:
    """Run a function and set its result or error, unless its caller was canceled."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except BaseException as error:  # noqa: BLE001 - the caller's
        future.set_exception(error)


# Parses, counts and encodes large documents.
PARSER = SingleThread("parser")
