"""Measurement of how long a function holds the global interpreter lock (GIL): CPU time between two calls.

Python hands the lock to another thread when a call begins or returns, and not while a function written in C
runs: in a separate thread, one search of 32 MiB holds up the event loop as well.

The time is divided by the slowdown that `loop_time` measures next to the function.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from tests import loop_time

TRIES = 5


def longest_call(function: Callable[[], Any], aim_ms: float) -> float:
    """Return the longest CPU time, in milliseconds of a quiet machine, that a function spends without a call.

    That is the least of some tries, of which the first below `aim_ms` is the last one.
    """
    least = _longest(function)
    for _ in range(TRIES - 1):
        if least < aim_ms:
            break
        least = min(least, _longest(function))
    return least


def _longest(function: Callable[[], Any]) -> float:
    longest = before = 0.0

    def event(_frame: FrameType, _event: str, _argument: Any) -> None:
        nonlocal longest, before
        now = time.thread_time()
        longest, before = max(longest, now - before), now

    slowdown = loop_time.slowdown()
    gc.collect()
    gc.disable()
    before = time.thread_time()
    sys.setprofile(event)
    try:
        function()
    finally:
        sys.setprofile(None)
        gc.enable()
    return 1000 * longest / max(slowdown, loop_time.slowdown())
