"""The additional processes of `serve --processes N`: started, watched and stopped by process 0.

A process reads its options as a line of JSON from its standard input. The end of the input means that
process 0 has ended. It writes a line to its standard output once it accepts requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from sixfold.cli.terminal import CommandError

_LOG = logging.getLogger("sixfold.processes")
_COMMAND = ("-m", "sixfold.cli.server.process")
READY = b"ready\n"
_START_SECONDS = 120
_FIRST_PAUSE, _LAST_PAUSE = 0.2, 10.0
# A process that has run for this time did not fail at its start, so the next pause is short.
_STABLE_SECONDS = 60


class ProcessOptions(msgspec.Struct):
    """Options of a process in addition to its environment; `overrides` are those of the command line."""

    number: int
    port: int
    overrides: Mapping[str, Any]


class ChildProcesses:
    """Processes 1 to N-1 of this server; a process that ends is restarted until `stop` is called."""

    def __init__(self, count: int, port: int, overrides: Mapping[str, Any]) -> None:
        self._options = [ProcessOptions(number, port, overrides) for number in range(1, count)]
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._tasks: list[asyncio.Task[None]] = []
        # Set at the start of a shutdown, after which ended processes are not started again.
        self.is_stopping = False

    async def start(self) -> None:
        """Start all processes and wait until they accept requests; raises `CommandError`."""
        await asyncio.gather(*(self._start(options) for options in self._options))
        self._tasks = [
            asyncio.create_task(self._watch(options), name=f"process-{options.number}")
            for options in self._options
        ]

    def signal(self, number: signal.Signals) -> None:
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    async def stop(self, seconds: float) -> None:
        """Shut down all processes, and kill those that have not ended after `seconds`."""
        self.is_stopping = True
        self.signal(signal.SIGTERM)
        ends = [asyncio.create_task(process.wait()) for process in self._running.values()]
        if ends:
            _, late = await asyncio.wait(ends, timeout=seconds)
            if late:
                self.signal(signal.SIGKILL)
                await asyncio.wait(late)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _start(self, options: ProcessOptions) -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *_COMMAND,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # Signals of the terminal are handled by process 0 only.
            start_new_session=True,
        )
        self._running[options.number] = process
        if self.is_stopping:
            process.kill()
        is_ready = await _send(process, options)
        if not is_ready and not self.is_stopping:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise CommandError(f"Process {options.number} of this server did not start: its error is above")

    async def _watch(self, options: ProcessOptions) -> None:
        pause = _FIRST_PAUSE
        clock = asyncio.get_running_loop().time
        while True:
            since = clock()
            status = await self._running[options.number].wait()
            if self.is_stopping:
                return
            pause = _FIRST_PAUSE if clock() - since > _STABLE_SECONDS else min(_LAST_PAUSE, 2 * pause)
            _LOG.error(
                "a process of this server ended and is started again",
                extra={"number": options.number, "status": status, "pause_seconds": pause},
            )
            await asyncio.sleep(pause)
            with contextlib.suppress(CommandError, OSError):
                await self._start(options)


async def _send(process: asyncio.subprocess.Process, options: ProcessOptions) -> bool:
    """Send a process its options; return whether it accepts requests now."""
    if process.stdin is None or process.stdout is None:
        raise TypeError("the process must have pipes as its stdin and stdout")
    process.stdin.write(msgspec.json.encode(options) + b"\n")
    try:
        async with asyncio.timeout(_START_SECONDS):
            return await process.stdout.readline() == READY
    except TimeoutError:
        return False
