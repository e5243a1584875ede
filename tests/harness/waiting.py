"""Waiting for a condition that no event reports."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

T = TypeVar("T")
PAUSE_SECONDS = 0.01


async def wait_until(
    condition: Callable[[], T | Awaitable[T]], seconds: float = 60, pause: float = PAUSE_SECONDS
) -> T:
    """Return the first true value of `condition`; raises `TimeoutError` after `seconds`."""
    async with asyncio.timeout(seconds):
        while True:
            result = condition()
            value = cast("T", await result if inspect.isawaitable(result) else result)
            if value:
                return value
            await asyncio.sleep(pause)
