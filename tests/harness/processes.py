"""Programs that tests start, with a bounded lifetime that includes their child processes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

# For short operations; generous, since a loaded machine is slow.
PATIENCE_SECONDS = 60
# For operations that are most of a test; below the timeout of a test.
STORY_SECONDS = 200
Words = Sequence[str | os.PathLike[str]]


def start(command: Words, **more: Any) -> subprocess.Popen[str]:
    """Start a program in a new process group, which `stop` ends as a whole."""
    return subprocess.Popen(command, start_new_session=True, text=True, **more)


def run(
    command: Words, seconds: float = PATIENCE_SECONDS, *, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program and return its status and output; status −9 if it was killed at the timeout."""
    pipe = subprocess.PIPE
    process = start(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        out, err = "", f"it did not end within {seconds:.0f} seconds"
    finally:
        kill(process)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def stop(process: subprocess.Popen[Any], number: int = signal.SIGTERM) -> int:
    """Send a signal, kill the program if it does not stop, and return its exit status."""
    process.send_signal(number)
    with suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE_SECONDS)
    kill(process)
    return process.returncode


def kill(process: subprocess.Popen[Any]) -> None:
    """Kill a program and its process group, and close its pipes."""
    # The process group may not exist, or may be empty.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait(PATIENCE_SECONDS)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


async def wait_for_exit(process: asyncio.subprocess.Process) -> int:
    """Wait for a program that is stopping, kill it at the timeout, and return its exit status."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await process.wait()
    except TimeoutError:
        return await kill_and_wait(process)


async def read_output(
    process: asyncio.subprocess.Process, seconds: float = STORY_SECONDS
) -> tuple[bytes, bytes]:
    """Return the standard output and error of a program when it ends; kill it and its group after that."""
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate()
    finally:
        await kill_and_wait(process)
    return out or b"", err or b""


async def kill_and_wait(process: asyncio.subprocess.Process) -> int:
    """Kill a program and its process group, and return its exit status.

    `wait` would also wait for its pipes, which its child processes may hold open.
    """
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        process.kill()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while process.returncode is None:  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.01)
    return process.returncode
