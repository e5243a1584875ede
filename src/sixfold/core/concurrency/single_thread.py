"""A thread for functions that hold the GIL: it runs one of them at a time.

Such functions do not end sooner when several run at once, and the event loop would wait for each in turn. The
owners of waiting functions take turns, so that the functions of one do not keep those of all others waiting.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from sixfold.core.concurrency.fair_threads import FairThreadPool

P = ParamSpec("P")
T = TypeVar("T")

# The size of an input that takes at most 10 ms to parse, so that the event loop can do it.
LOOP_BYTES = 256 * 1024


class SingleThread:
    """Runs functions one after another in a thread of its own, those of different owners in turn."""

    def __init__(self, name: str) -> None:
        self._executor = FairThreadPool(1, name)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function, called in the context of the caller; raises what it raises."""
        call = functools.partial(contextvars.copy_context().run, function, *args, **kwargs)
        return await asyncio.wrap_future(self._executor.submit(call))

    async def run_large(self, size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function of an input of `size` bytes: called here if that is little."""
        if size <= LOOP_BYTES:
            return function(*args, **kwargs)
        return await self.run(function, *args, **kwargs)


# Parses, counts and encodes large documents.
PARSER = SingleThread("parser")
