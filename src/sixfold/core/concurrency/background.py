"""Background tasks that continue after an error, which is logged with the name of the task."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping

from sixfold.errors import StoreFailed

Work = Callable[[], Awaitable[object]]

_LOG = logging.getLogger("sixfold.background")
_RESTART_SECONDS = 5.0


async def attempt(name: str, work: Work) -> bool:
    """Run `work`; log an error with the name of the task and return False."""
    try:
        await work()
    except StoreFailed as error:
        _LOG.warning("the background task %r failed: %s", name, error)
    except Exception:  # noqa: BLE001 - the outermost loop of background tasks: an error must not end a task
        _LOG.exception("the background task %r failed unexpectedly", name)
    else:
        return True
    return False


async def store_later(name: str, write: Work, seconds: float) -> None:
    """Run `write` every `seconds` until the database does not fail; log any other error, which ends it."""

    async def write_later() -> object:
        while True:
            await asyncio.sleep(seconds)
            with contextlib.suppress(StoreFailed):
                return await write()

    await attempt(name, write_later)


async def repeat(seconds: float, steps: Mapping[str, Work]) -> None:
    """Run named steps in order every `seconds` until canceled; after an error, the next step runs."""
    while True:
        await asyncio.sleep(seconds)
        for name, work in steps.items():
            await attempt(name, work)


async def keep_running(name: str, run: Work, restart_seconds: float = _RESTART_SECONDS) -> None:
    """Run a task until it returns; after an error, start it again."""
    while True:
        if await attempt(name, run):
            return
        await asyncio.sleep(restart_seconds)
