"""Queued messages of a viewer are limited, and a viewer that stops reading is disconnected with a reason."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from sixfold.api.hosting.sessions import routes as sessions
from sixfold.api.hosting.sessions import schemas
from sixfold.core.sessions import connection as sessions_connection
from sixfold.core.sessions.connection import (
    MAX_CREDIT,
    MAX_QUEUED_BYTES,
    TOO_SLOW,
    Connection,
    FrameMessage,
    PongMessage,
)
from sixfold.core.sessions.engine import Frame


class Stuck:
    """A socket whose buffer is full until a test reads from it."""

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
    """A session without output."""

    def resume(self, _viewer: Connection, _last_seq: int | None) -> None:
        """Do nothing."""


async def test_slow_reader_receives_the_reason_when_it_reads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_connection, "MAX_DELAY_SECONDS", 0.01)
    monkeypatch.setattr(sessions, "FAREWELL_SECONDS", 0.05)
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


async def test_no_frame_is_drawn_while_earlier_ones_wait() -> None:
    viewer = Connection()
    viewer.credit = MAX_CREDIT
    frame = Frame(bytes(MAX_QUEUED_BYTES // 2), "jpeg", 1, 1)
    accepted: list[bool] = []
    for seq in range(3):
        accepted.append(viewer.accepts_frames)
        viewer.put(FrameMessage(seq, None, 0, frame))
    assert accepted == [True, True, False]
    for _ in range(2):
        await viewer.next_message()
    assert viewer.accepts_frames
    viewer.credit = 0
    assert not viewer.accepts_frames


@pytest.mark.parametrize("value", [1, 1.5, "x" * 100, None])
def test_a_ping_may_have_a_number_or_a_short_text(value: Any) -> None:
    assert schemas.ping_time({"type": "ping", "t": value}) == value


@pytest.mark.parametrize("value", ["x" * 101, [[]], {"a": 1}])
def test_a_ping_with_other_content_is_refused(value: Any) -> None:
    with pytest.raises(schemas.InvalidSessionMessage, match="at most 100 characters"):
        schemas.ping_time({"type": "ping", "t": value})


@pytest.mark.parametrize(
    "point", [[1, 2], [1, 9, 2], {"x": 1, "z": 2}, {"x": 1, "y": 9, "z": 2}, {"x": 1, "y": 2}]
)
def test_a_waypoint_is_a_list_or_an_object(point: Any) -> None:
    parsed = schemas.parse_input({"type": "input", "seq": 1, "waypoints": [point]})
    assert parsed.waypoints == ((1.0, 2.0),)


@pytest.mark.parametrize("number", [10**400, -(10**400), 1e308, True, "1"])
def test_a_waypoint_without_two_distances_is_refused(number: Any) -> None:
    with pytest.raises(schemas.InvalidSessionMessage, match="in meters"):
        schemas.parse_input({"type": "input", "seq": 1, "waypoints": [[1, number]]})
