"""Printed output of a worker, read in steps that let the event loop serve other tasks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from sixfold.worker import runner

# The capacity of a pipe, and therefore the output that can precede a message on the worker's socket.
_PIPE_BYTES = 1 << 16
# The pause after a pipe was full.
_PAUSE_SECONDS = 0.02


class PrintedOutput:
    """Reads the pipe of a worker and calls `log` with the complete lines, each cut to its maximum length."""

    def __init__(self, pipe: int, log: Callable[[list[bytes]], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._pipe: int | None = pipe
        self._log = log
        self._partial = b""
        self._resume()

    def _resume(self) -> None:
        if self._pipe is not None:
            self._loop.add_reader(self._pipe, self._readable)

    def _readable(self) -> None:
        if self.read() == _PIPE_BYTES and self._pipe is not None:
            self._loop.remove_reader(self._pipe)
            self._loop.call_later(_PAUSE_SECONDS, self._resume)

    def read(self) -> int:
        """Read what was printed so far, at most the capacity of the pipe, and return its length in bytes."""
        if self._pipe is None:
            return 0
        try:
            data = os.read(self._pipe, _PIPE_BYTES)
        except BlockingIOError:
            return 0
        except OSError:
            data = b""
        if not data:
            self.close()
            return 0
        *lines, partial = (self._partial + data).split(b"\n")
        self._partial = partial[: runner.MAX_LINE_CHARACTERS]
        self._log([line[: runner.MAX_LINE_CHARACTERS] for line in lines])
        return len(data)

    def end_line(self) -> None:
        """Treat an incomplete last line as complete."""
        if self._partial:
            partial, self._partial = self._partial, b""
            self._log([partial])

    def close(self) -> None:
        """Close the pipe. Idempotent."""
        if self._pipe is not None:
            self._loop.remove_reader(self._pipe)
            os.close(self._pipe)
            self._pipe = None
