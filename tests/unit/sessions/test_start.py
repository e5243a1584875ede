"""How a session begins: its engine builds what it will show before ready is said; nobody pays for that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from sixfold.core.accounts import accounts
from sixfold.core.sessions import repository as sessions
from sixfold.core.sessions.connection import Posed
from sixfold.core.sessions.engine import Answer, Ask, Shown
from sixfold.core.sessions.handover import Standing
from sixfold.core.sessions.repository import Draft, Lease, Session
from sixfold.core.sessions.runner import Backstage, Ending, Running
from sixfold.core.sessions.states import Event
from sixfold.core.sessions.worker_pool import Kind, Room, Seat
from sixfold.core.workers.ports import Failed
from tests.harness import databases

LEASE = Lease("boot_test", 30_000_000)


class Builder:
    """A worker whose first step is answered when the test says so, or tells what it is given."""

    def __init__(self, answer: Failed | None = None) -> None:
        self.asked_for: list[Ask] = []
        self.asked, self.answered, self.killed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._answer = answer

    @property
    def alive(self) -> bool:
        """Until it is killed."""
        return not self.killed.is_set()

    async def steps(self, asked: Sequence[Ask]) -> Sequence[Answer]:
        """Wait for the test, then go on."""
        self.asked_for += asked
        self.asked.set()
        await self.answered.wait()
        return [self._answer or Shown(b"\x80")] * len(asked)

    async def kill(self) -> None:
        """It is over."""
        self.killed.set()


class Stage:
    """A session on a real database, its worker, and every event in its order."""

    def __init__(self, database: databases.Database, worker: Builder) -> None:
        self.events: list[Event] = []
        self.ready, self.turned = asyncio.Event(), asyncio.Event()
        self._database, self._worker = database, worker

    async def begin(self, place: Standing | None = None, *before: Event) -> Running:
        """A running session, not yet set going; `before` happened to it elsewhere."""
        account = await self._database.write(accounts.create("ada@example.com", credit=30_000))
        draft = Draft(
            account.id, "req_x", "m", "e", "preview", "h", {"prompt": "walk"}, 20, 540_000, 10**8, 9
        )
        session = (await self._database.write(sessions.create(draft, LEASE))).session
        for event in before:
            session = await self._database.write(sessions.happen(session.id, event, LEASE))

        async def hire() -> Builder:
            return self._worker

        async def sit(_: int) -> Seat:
            return await Room(Kind("e", "h", 1), hire()).sit()

        async def turn(_: str) -> tuple[Session, float]:
            self.turned.set()
            return session, 60.0

        return Running(session, Backstage(sit, self._happen, turn), place)

    async def _happen(self, session_id: str, event: Event, reason: str | None) -> Session:
        self.events.append(event)
        session = await self._database.write(sessions.happen(session_id, event, LEASE, reason))
        if event is Event.READY:
            self.ready.set()
        return session


async def test_a_session_is_ready_once_its_engine_has_built_what_it_will_show(tmp_path: Path) -> None:
    async with databases.OPENERS["sqlite"](tmp_path, lambda: 1_700_000_000_000_000) as database:
        stage = Stage(database, worker := Builder())
        running = await stage.begin()
        life = asyncio.create_task(running.run())
        await worker.asked.wait()
        first = worker.asked_for[0]
        assert (first.ticks, first.draw, first.state) == (0, False, None)
        assert stage.events == [Event.START]
        worker.answered.set()
        await stage.ready.wait()
        assert len(worker.asked_for) == 1
        running.end(Ending(Event.CLOSE, "closed", 1000))
        await life
        assert stage.events == [Event.START, Event.READY, Event.CLOSE, Event.END]
        assert worker.killed.is_set()


@pytest.mark.parametrize("how", ["closed", "failed"])
async def test_one_that_ends_while_it_builds_was_never_ready_and_costs_nothing(
    tmp_path: Path, how: str
) -> None:
    async with databases.OPENERS["sqlite"](tmp_path, lambda: 1_700_000_000_000_000) as database:
        worker = Builder(Failed("There is no such land.", public=True) if how == "failed" else None)
        stage = Stage(database, worker)
        running = await stage.begin()
        life = asyncio.create_task(running.run())
        await worker.asked.wait()
        if how == "closed":
            running.end(Ending(Event.CLOSE, "closed", 1000))
        else:
            worker.answered.set()
        await life
        assert worker.killed.is_set()
        assert Event.READY not in stage.events
        assert (running.session.state, running.session.cost) == (how, 0)


async def test_whoever_takes_one_over_asks_at_once_when_its_minute_ends(tmp_path: Path) -> None:
    async with databases.OPENERS["sqlite"](tmp_path, lambda: 1_700_000_000_000_000) as database:
        stage = Stage(database, worker := Builder())
        running = await stage.begin(Standing(400, b"\x80"))
        life = asyncio.create_task(running.run())
        worker.answered.set()
        async with asyncio.timeout(60):  # a minute of its own would be too late for the slice that runs
            await stage.turned.wait()
        running.end(Ending(Event.CLOSE, "closed", 1000))
        await life


class Poser(Builder):
    """A worker that tells a pose for each tick."""

    async def steps(self, asked: Sequence[Ask]) -> Sequence[Answer]:
        """At once."""
        return [Shown(b"\x80", poses=(b"{}",) * ask.ticks) for ask in asked]


async def test_who_follows_a_session_that_was_never_written_down_hears_no_pose_twice(tmp_path: Path) -> None:
    async with databases.OPENERS["sqlite"](tmp_path, lambda: 1_700_000_000_000_000) as database:
        stage = Stage(database, Poser())
        running = await stage.begin(None, Event.START, Event.READY)  # its server died in its first second
        life = asyncio.create_task(running.run())
        viewer = running.attach()
        running.greet(viewer, 1)
        heard: list[int] = []
        async with asyncio.timeout(60):
            while len(heard) < 3:
                word = await viewer.take()
                heard += [word.seq] if isinstance(word, Posed) else []
        running.end(Ending(Event.CLOSE, "closed", 1000))
        await life
        assert heard == [2, 3, 4]
