"""`sixfold serve` on asyncio's loop, recording the longest callback of the loop in a file that tests read.

Usage: python -m tests.loops.child FILE serve --port 0 …
"""

from __future__ import annotations

import asyncio
import mmap
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

import uvloop

from sixfold.cli import main

# CPU seconds of the loop's thread.
LAYOUT = struct.Struct("<d")


class Meter:
    """Runner of the loop's handles that records the longest CPU time until a reader resets it."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), LAYOUT.size)
        self._run: Callable[[asyncio.Handle], None] = vars(asyncio.Handle)["_run"]

    def run(self, handle: asyncio.Handle) -> None:
        start = time.thread_time()
        self._run(handle)
        seconds = time.thread_time() - start
        if seconds > LAYOUT.unpack_from(self._memory)[0]:
            LAYOUT.pack_into(self._memory, 0, seconds)


def serve(path: Path) -> int:
    """Serve with asyncio's loop instead of uvloop's, since its handles are Python code."""
    meter = Meter(path)
    setattr(asyncio.Handle, "_run", lambda handle: meter.run(handle))  # noqa: B010  # a method of the library
    uvloop.new_event_loop = asyncio.new_event_loop
    return main.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(serve(Path(sys.argv[1])))
