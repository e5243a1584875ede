"""A server among others on one PostgreSQL: it is known to live, and hears what the others do.

Every step of a prediction is told by a trigger, in the transaction that takes it (see the migrations). Who
misses a notification while the connection is lost finds out by polling: the database is the truth.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from sixfold import errors
from sixfold.store.postgres import connection as link
from sixfold.store.postgres.connection import GONE, PostgresConnection

_LOG = logging.getLogger("sixfold.store")
_CHANNEL = "sixfold"
_FIRST_PAUSE, _LAST_PAUSE = 0.1, 2.0

Told = Callable[[str, str, str], None]


class NotificationListener:
    """One connection that listens, and holds the lock which says that this server lives."""

    def __init__(self, url: str, is_own: Callable[[int], bool]) -> None:
        self._url = url
        self._is_own = is_own
        self._connection: PostgresConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()

    async def join(self, boot: str, told: Told) -> None:
        """Begin; from here on the connection is made anew whenever it is lost."""
        await self._connect(boot, told)
        self._task = asyncio.create_task(self._stay(boot, told), name="postgres-listener")

    async def close(self) -> None:
        """Leave."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await link.close(self._connection)

    async def _connect(self, boot: str, told: Told) -> None:
        connection = await link.connect(self._url)
        self._lost.clear()
        connection.add_termination_listener(lambda *_: self._lost.set())

        def heard(_connection: object, pid: int, _channel: str, payload: str) -> None:
            words = payload.split(" ", 2)
            if len(words) == 3 and not self._is_own(pid):
                told(*words)

        try:
            await connection.add_listener(_CHANNEL, heard)
            await connection.fetch("SELECT server_arrives($1)", boot)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection

    async def _stay(self, boot: str, told: Told) -> None:
        pause = _FIRST_PAUSE
        while True:
            await self._lost.wait()
            try:
                await self._connect(boot, told)
                pause = _FIRST_PAUSE
            except (errors.StoreFailed, *GONE) as error:
                _LOG.warning("the other servers are out of hearing", extra={"reason": str(error)})
                await asyncio.sleep(pause)
                pause = min(_LAST_PAUSE, pause * 2)
