"""Programs that tests start: each has an end, and whatever it started itself ends with it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 60  # for what takes a moment: a loaded machine is slow, and patience costs nothing
STORY_SECONDS = 200  # for what is most of a test: less than a test may take
Words = Sequence[str | os.PathLike[str]]


def began(command: Words, **more: Any) -> subprocess.Popen[str]:
    """Start a program in a group of its own, which `ended` ends as a whole."""
    return subprocess.Popen(command, start_new_session=True, text=True, **more)


def ran(
    command: Words, seconds: float = PATIENCE_SECONDS, *, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """A program's end and what it said; status −9 where it did not end in time, and was killed."""
    pipe = subprocess.PIPE
    process = began(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        out, err = "", f"it did not end within {seconds:.0f} seconds"
    finally:
        kill(process)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def ended(process: subprocess.Popen[Any], number: int = signal.SIGTERM) -> int:
    """Tell a program to end, and kill it where it does not; gives its status."""
    process.send_signal(number)
    with suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE_SECONDS)
    kill(process)
    return process.returncode


def kill(process: subprocess.Popen[Any]) -> None:
    """End a program, what is left of a group of its own, and the pipes to it."""
    with suppress(ProcessLookupError):  # there is no such group, or nobody is left in it
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait(PATIENCE_SECONDS)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


async def gone(process: asyncio.subprocess.Process) -> int:
    """Wait for a program that was told to end, and kill it where it does not; gives its status."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await process.wait()
    except TimeoutError:
        return await killed(process)


async def told(process: asyncio.subprocess.Process, seconds: float = STORY_SECONDS) -> tuple[bytes, bytes]:
    """What a program says and what it complains of, until its end; it and its group end with this."""
    try:
        async with asyncio.timeout(seconds):
            out, err = await process.communicate()
    finally:
        await killed(process)
    return out or b"", err or b""


async def killed(process: asyncio.subprocess.Process) -> int:
    """End a program and what is left of a group of its own, wherever it stands; gives its status.

    `wait` would wait for its pipes as well, which whatever it started may hold open.
    """
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        process.kill()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while process.returncode is None:  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.01)
    return process.returncode
