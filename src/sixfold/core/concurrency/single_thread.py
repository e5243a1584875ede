"""A thread for functions that hold the GIL: it runs one of them at a time.

Such functions do not end sooner when several run at once, and the event loop would wait for each in turn.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# The size of an input that takes at most 10 ms to parse, so that the event loop can do it.
LOOP_BYTES = 256 * 1024


class SingleThread:
    """Runs functions one after another in a thread of its own."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, name)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function, called in the context of the caller; raises what it raises."""
        context = contextvars.copy_context()

        def call() -> T:
            return context.run(function, *args, **kwargs)

        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    async def run_large(self, size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of a function of an input of `size` bytes: called here if that is little."""
        if size <= LOOP_BYTES:
            return function(*args, **kwargs)
        return await self.run(function, *args, **kwargs)


# Parses, counts and encodes large documents.
PARSER = SingleThread("parser")
