"""Start of a session: the engine prepares before `ready`, free of charge."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from sixfold.core.accounts import accounts
from sixfold.core.sessions import repository as sessions
from sixfold.core.sessions.connection import PoseMessage
from sixfold.core.sessions.engine import PackedStepResult, StepAnswer, StepRequest
from sixfold.core.sessions.handover import Checkpoint
from sixfold.core.sessions.repository import SessionDraft, SessionLease, SessionRecord
from sixfold.core.sessions.runner import SessionEnding, SessionHooks, SessionRunner
from sixfold.core.sessions.states import SessionEvent
from sixfold.core.sessions.worker_pool import SessionKind, SessionSlot, SharedWorker
from sixfold.core.workers.ports import RunFailed
from tests.harness import databases

LEASE = SessionLease("boot_test", 30_000_000)


class Builder:
    """Worker whose first step completes when the test allows it; it records inputs."""

    def __init__(self, answer: RunFailed | None = None) -> None:
        self.requests: list[StepRequest] = []
        self.request_event, self.answered, self.killed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._answer = answer

    @property
    def alive(self) -> bool:
        return not self.killed.is_set()

    async def steps(self, requests: Sequence[StepRequest]) -> Sequence[StepAnswer]:
        """Wait for the test, then continue."""
        self.requests += requests
        self.request_event.set()
        await self.answered.wait()
        return [self._answer or PackedStepResult(b"\x80")] * len(requests)

    async def kill(self) -> None:
        self.killed.set()


class SessionSetup:
    """A session on a real database, its worker, and its events in order."""

    def __init__(self, database: databases.Database, worker: Builder) -> None:
        self.events: list[SessionEvent] = []
        self.ready, self.turned = asyncio.Event(), asyncio.Event()
        self._database, self._worker = database, worker

    async def begin(self, checkpoint: Checkpoint | None = None, *before: SessionEvent) -> SessionRunner:
        """Return the runner of a session before its start; `before` are earlier events on another server."""
        account = await self._database.write(accounts.create("ada@example.com", credit=30_000))
        draft = SessionDraft(
            account.id, "req_x", "m", "e", "preview", "h", {"prompt": "walk"}, 20, 540_000, 10**8, 9
        )
        session = (await self._database.write(sessions.create(draft, LEASE))).session
        for event in before:
            session = await self._database.write(sessions.transition(session.id, event, LEASE))

        async def hire() -> Builder:
            return self._worker

        async def sit(_: int) -> SessionSlot:
            return await SharedWorker(SessionKind("e", "h", 1), hire()).join()

        async def turn(_: str, __: int) -> tuple[SessionRecord, int]:
            self.turned.set()
            return session, session.created_at

        async def skip(session_id: str, us: int) -> None:
            await self._database.write(sessions.skip_time(session_id, us, LEASE))

        return SessionRunner(session, SessionHooks(sit, self._happen, turn, skip), 60, checkpoint)

    async def _happen(self, session_id: str, event: SessionEvent, reason: str | None) -> SessionRecord:
        self.events.append(event)
        session = await self._database.write(sessions.transition(session_id, event, LEASE, reason))
        if event is SessionEvent.READY:
            self.ready.set()
        return session


async def test_session_is_ready_once_its_engine_is_built(tmp_path: Path) -> None:
    async with databases.OPENERS["sqlite"](tmp_path, lambda: 1_700_000_000_000_000) as database:
        setup = SessionSetup(database, worker := Builder())
        running = await setup.begin()
        life = asyncio.create_task(running.run())
        await worker.request_event.wait()
        first = worker.requests[0]
        assert (first.ticks, first.draw, first.state) == (0, False, None)
        assert setup.events == [SessionEvent.START]
        worker.answered.set()
        await setup.ready.wait()
        assert len(worker.requests) == 1
        running.end(SessionEnding(SessionEvent.CLOSE, "closed", 1000))
        await life
        assert setup.events == [SessionEvent.START, SessionEvent.READY, SessionEvent.CLOSE, SessionEvent.END]
        assert worker.killed.is_set()


@pytest.mark.parametrize("how", ["closed", "failed"])
async def test_session_ending_during_build_is_free(tmp_path: Path, how: str) -> None:
    async with databases.OPENERS["sqlite"](tmp_path, lambda: 1_700_000_000_000_000) as database:
        worker = Builder(RunFailed("There is no such land.", public=True) if how == "failed" else None)
        setup = SessionSetup(database, worker)
        running = await setup.begin()
        life = asyncio.create_task(running.run())
        await worker.request_event.wait()
        if how == "closed":
            running.end(SessionEnding(SessionEvent.CLOSE, "closed", 1000))
        else:
            worker.answered.set()
        await life
        assert worker.killed.is_set()
        assert SessionEvent.READY not in setup.events
        assert (running.session.state, running.session.cost) == (how, 0)


async def test_takeover_checks_the_end_of_the_interval_at_once(tmp_path: Path) -> None:
    async with databases.OPENERS["sqlite"](tmp_path, lambda: 1_700_000_000_000_000) as database:
        setup = SessionSetup(database, worker := Builder())
        running = await setup.begin(Checkpoint(400, b"\x80"))
        life = asyncio.create_task(running.run())
        worker.answered.set()
        # The current slice ends before a separate timeout of a minute would.
        async with asyncio.timeout(60):
            await setup.turned.wait()
        running.end(SessionEnding(SessionEvent.CLOSE, "closed", 1000))
        await life


class Poser(Builder):
    """Worker that returns a pose for each tick."""

    async def steps(self, requests: Sequence[StepRequest]) -> Sequence[StepAnswer]:
        return [PackedStepResult(b"\x80", poses=(b"{}",) * ask.ticks) for ask in requests]


async def test_takeover_without_a_checkpoint_repeats_no_pose(tmp_path: Path) -> None:
    async with databases.OPENERS["sqlite"](tmp_path, lambda: 1_700_000_000_000_000) as database:
        setup = SessionSetup(database, Poser())
        # The server of the session died in its first second.
        running = await setup.begin(None, SessionEvent.START, SessionEvent.READY)
        life = asyncio.create_task(running.run())
        viewer = running.attach()
        running.resume(viewer, 1)
        numbers: list[int] = []
        async with asyncio.timeout(60):
            while len(numbers) < 3:
                word = await viewer.next_message()
                numbers += [word.seq] if isinstance(word, PoseMessage) else []
        running.end(SessionEnding(SessionEvent.CLOSE, "closed", 1000))
        await life
        assert numbers == [2, 3, 4]
