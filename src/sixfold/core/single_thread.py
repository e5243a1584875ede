"""A thread for functions that keep all others waiting: it runs one of them at a time.

A function that holds the GIL does not end sooner beside others of its kind, and with several of them the
event loop waits for each in turn.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


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


# Parses, counts and encodes large documents.
PARSER = SingleThread("parser")
