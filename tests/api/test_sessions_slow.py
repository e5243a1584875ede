"""A viewer that stops reading is disconnected, and gets the reason when it reads again."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from sixfold.api.hosting.sessions import routes as sessions
from sixfold.core.sessions import connection as sessions_connection
from sixfold.core.sessions.connection import TOO_SLOW, Connection, PongMessage


class Stuck:
    """A socket that takes nothing until it is read from."""

    def __init__(self) -> None:
        self.read = asyncio.Event()
        self.closed: tuple[int, str] | None = None

    async def receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async def send_text(self, _text: str) -> None:
        await self.read.wait()

    async def close(self, code: int, reason: str) -> None:
        """Wait, as a full socket does."""
        await self.read.wait()
        self.closed = code, reason


class SilentSession:
    """A session that shows nothing by itself."""

    def resume(self, _viewer: Connection, _last_seq: int | None) -> None:
        """Do nothing."""


async def test_slow_reader_receives_the_reason_when_it_reads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_connection, "MAX_DELAY_SECONDS", 0.01)
    monkeypatch.setattr(sessions, "_FAREWELL_SECONDS", 0.05)
    socket, viewer = Stuck(), Connection()
    talk = sessions._SessionSocket(cast("Any", socket), cast("Any", SilentSession()), viewer, None)
    talking = asyncio.create_task(talk.serve())
    for _ in range(4):
        viewer.put(PongMessage(1))
        await asyncio.sleep(0.02)
    assert viewer.end_message is not None
    assert viewer.end_message.code == TOO_SLOW
    await asyncio.sleep(0.3)
    assert not talking.done()
    socket.read.set()
    await asyncio.wait_for(talking, 60)
    assert socket.closed == (TOO_SLOW, "too slow")
