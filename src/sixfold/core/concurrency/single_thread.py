"""A thread for functions that hold the GIL, which runs one function at a time.

Running such functions concurrently would not make them faster, and the event loop would wait for each in
turn. The owners of waiting functions take turns, so that one owner's functions do not delay those of all
others.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from sixfold.core.concurrency.fair_threads import FairThreadPool
from sixfold.core.concurrency.loop_turns import TURNS

P = ParamSpec("P")
T = TypeVar("T")

# The size of an input that can be parsed in at most 10 ms, so that the event loop can parse it.
LOOP_BYTES = 256 * 1024


class SingleThread:
    """Runs functions one after another in a separate thread, alternating between owners."""

    def __init__(self, name: str) -> None:
        self._executor = FairThreadPool(1, name)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return or raise the result of a function that runs in the thread with the caller's context."""
        call = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
        return await asyncio.wrap_future(self._executor.submit(call))

    async def run_large(self, size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function; it runs in the thread if `size` exceeds `LOOP_BYTES`.

        Otherwise it runs in a turn of the event loop, since many requests may parse their inputs at once.
        """
        if size <= LOOP_BYTES:
            # A coroutine costs a third of a microsecond even if it does not wait.
            if not TURNS.take(size):
                await TURNS.next(size)
            return function(*args, **kwargs)
        return await self.run(function, *args, **kwargs)


# Parses, counts and encodes large documents.
PARSER = SingleThread("parser")
