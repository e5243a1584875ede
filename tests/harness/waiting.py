"""Waiting for a condition that no event reports."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")
PAUSE_SECONDS = 0.01


@overload
async def wait_until(condition: Callable[[], Awaitable[T]], seconds: float = 60) -> T: ...
@overload
async def wait_until(condition: Callable[[], T], seconds: float = 60) -> T: ...
async def wait_until(condition: Callable[[], Any], seconds: float = 60) -> Any:
    """Return the first true value of `condition`; raises `TimeoutError` after `seconds`."""
    async with asyncio.timeout(seconds):
        while True:
            result = condition()
            if inspect.isawaitable(result):
                result = await result
            if result:
                return result
            await asyncio.sleep(PAUSE_SECONDS)
