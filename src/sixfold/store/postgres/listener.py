"""Membership of a server in a cluster on PostgreSQL, and notifications of the other servers.

A trigger notifies all servers of each state change of a prediction, in the same transaction (see the
migrations). Changes missed while the connection is lost are found by polling.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from sixfold import errors
from sixfold.store.postgres import connection as connections
from sixfold.store.postgres.connection import GONE, PostgresConnection

_LOG = logging.getLogger("sixfold.store")
_CHANNEL = "sixfold"
_FIRST_PAUSE, _LAST_PAUSE = 0.1, 2.0

OnEvent = Callable[[str, str, str], None]


class NotificationListener:
    """A connection that receives notifications, and holds the lock that shows that this server is alive."""

    def __init__(self, url: str, is_own: Callable[[int], bool]) -> None:
        self._url = url
        self._is_own = is_own
        self._connection: PostgresConnection | None = None
        self._task: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()

    async def join(self, boot: str, on_event: OnEvent) -> int:
        """Connect, and reconnect whenever the connection is lost; return the database's id of the session."""
        connection = await self._connect(boot, on_event)
        session = int(await connection.fetchval(connections.SESSION_ID))
        self._task = asyncio.create_task(self._reconnect(boot, on_event), name="postgres-listener")
        return session

    async def close(self) -> None:
        """Stop listening and close the connection."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await connections.close(self._connection)

    async def _connect(self, boot: str, on_event: OnEvent) -> PostgresConnection:
        connection = await connections.connect(self._url)
        self._lost.clear()
        connection.add_termination_listener(lambda *_: self._lost.set())

        def notified(_connection: object, pid: int, _channel: str, payload: str) -> None:
            words = payload.split(" ", 2)
            if len(words) == 3 and not self._is_own(pid):
                on_event(*words)

        try:
            await connection.add_listener(_CHANNEL, notified)
            await connection.fetch("SELECT server_arrives($1)", boot)
        except BaseException:
            connection.terminate()
            raise
        self._connection = connection
        return connection

    async def _reconnect(self, boot: str, on_event: OnEvent) -> None:
        pause = _FIRST_PAUSE
        while True:
            await self._lost.wait()
            try:
                await self._connect(boot, on_event)
                pause = _FIRST_PAUSE
            except (errors.StoreFailed, *GONE) as error:
                _LOG.warning("the listener lost its database connection", extra={"reason": str(error)})
                await asyncio.sleep(pause)
                pause = min(_LAST_PAUSE, pause * 2)
