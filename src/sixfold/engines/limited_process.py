"""Execution of a function in a separate process, with limits on memory and CPU time.

Usage: python -m sixfold.engines.limited_process MODULE:FUNCTION MEMORY_BYTES SECONDS < arguments

The arguments are a MessagePack array.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from sixfold import import_string, settings
from sixfold.core.catalog.engines import UnusableInput

_UNUSABLE = 3
Argument = str | int | float | None


def call(target: str, memory_bytes: int, seconds: int, message: str, *arguments: Argument) -> Any:
    """Return the result of the function named `module:function`, from a process with an address space limit.

    Raises `UnusableInput` with the function's reason, or `message` if the process ended otherwise.
    """
    return _ProcessCall(target, memory_bytes, seconds, message).run(arguments)


class LimitedProcesses:
    """Calls functions in separate processes, `size` at a time.

    Each thread of the pool waits for one process, which can take minutes. Other work has other threads.
    """

    def __init__(self, size: int) -> None:
        self._threads = ThreadPoolExecutor(size, "process")

    async def call(
        self, target: str, memory_bytes: int, seconds: int, message: str, *arguments: Argument
    ) -> Any:
        """Call a function like `call`; a cancellation ends the process."""
        process_call = _ProcessCall(target, memory_bytes, seconds, message)
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, process_call.run, arguments
            )
        finally:
            process_call.end()


class _ProcessCall:
    """A call in a separate process, which another thread can end."""

    def __init__(self, target: str, memory_bytes: int, seconds: int, message: str) -> None:
        self._command = [sys.executable, "-P", "-m", __name__, target, str(memory_bytes), str(seconds)]
        self._seconds, self._message = seconds, message
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ended = False
        self._lock = threading.Lock()

    def run(self, arguments: Sequence[Argument]) -> Any:
        with self._lock:
            if self._is_ended:
                raise UnusableInput(self._message)
            self._process = process = subprocess.Popen(  # noqa: S603  # this interpreter and a named function
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=settings.worker_environment(),
            )
        with process:
            try:
                output, reason = process.communicate(msgspec.msgpack.encode(arguments), self._seconds)
            except subprocess.TimeoutExpired as error:
                raise UnusableInput(self._message) from error
            finally:
                process.kill()
        if process.returncode == 0:
            return msgspec.msgpack.decode(output)
        raise UnusableInput(reason.decode() if process.returncode == _UNUSABLE else self._message)

    def end(self) -> None:
        """End the process, or prevent its start."""
        with self._lock:
            self._is_ended = True
            if self._process is not None:
                self._process.kill()


def main() -> int:
    """Call the function within the limits and write its result; return the exit status."""
    memory, seconds = int(sys.argv[2]), int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    results, reasons = os.fdopen(os.dup(1), "wb"), os.fdopen(os.dup(2), "wb")
    # Libraries print lines about each fault of a file, which would fill the server's memory.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for standard in (1, 2):
        os.dup2(nowhere, standard)
    with results, reasons:
        try:
            result = import_string.load(sys.argv[1])(*msgspec.msgpack.decode(sys.stdin.buffer.read()))
        except UnusableInput as error:
            reasons.write(str(error).encode())
            return _UNUSABLE
        results.write(msgspec.msgpack.encode(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
