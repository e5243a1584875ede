"""Shared workers for sessions: each worker serves as many sessions as its engine allows.

Steps requested in the same turn of the event loop are sent to the worker in one message. A step that fails
ends only its own session. If a worker dies or does not answer, all its sessions get new workers, each shared
with fewer sessions, so that a session that kills worker after worker is soon alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Final

from sixfold.core.sessions.engine import LiveWorker, StepAnswer, StepRequest
from sixfold.core.workers.ports import Driver, WorkerLost, WorkerSpec, WorkerStartFailed

_ANSWER_SECONDS: Final = 20.0
_FEWER: Final = 8  # divisor of the sharing limit for each lost worker


@dataclass(frozen=True, slots=True)
class SessionKind:
    """The sessions that may share a worker: the same engine, hardware and sharing limit."""

    engine: str
    hardware: str
    seats: int


class SharedWorker:
    """One worker and the sessions that use it. The last session to leave stops it."""

    def __init__(self, kind: SessionKind, hiring: Awaitable[LiveWorker]) -> None:
        self.kind = kind
        self._hiring = asyncio.ensure_future(hiring)
        self._seats: set[SessionSlot] = set()
        self._asked: list[tuple[StepRequest, asyncio.Future[StepAnswer]]] = []
        self._taking: set[asyncio.Task[None]] = set()

    @property
    def worker(self) -> LiveWorker | None:
        """Return the worker if it has started."""
        done = self._hiring.done() and not self._hiring.cancelled() and self._hiring.exception() is None
        return self._hiring.result() if done else None

    @property
    def open(self) -> bool:
        """Return whether another session can join."""
        if len(self._seats) >= self.kind.seats:
            return False
        return self.worker is not None and self.worker.alive if self._hiring.done() else True

    @property
    def empty(self) -> bool:
        """Return whether no session uses it."""
        return not self._seats

    async def sit(self) -> SessionSlot:
        """Return a slot once the worker has started; raises `WorkerStartFailed`."""
        seat = SessionSlot(self)
        self._seats.add(seat)
        try:
            await asyncio.shield(self._hiring)
        except BaseException:
            await self.leave(seat)
            raise
        return seat

    async def leave(self, seat: SessionSlot) -> None:
        """Release a slot. Idempotent."""
        self._seats.discard(seat)
        if self._seats:
            return
        self._hiring.cancel()
        await asyncio.wait({self._hiring})
        if self.worker is not None:
            await self.worker.kill()

    def ask(self, ask: StepRequest) -> asyncio.Future[StepAnswer]:
        """Request a step; it is sent together with those requested in the same turn of the loop."""
        loop = asyncio.get_running_loop()
        if not self._asked:
            loop.call_soon(self._send)
        answer: asyncio.Future[StepAnswer] = loop.create_future()
        self._asked.append((ask, answer))
        return answer

    def _send(self) -> None:
        asked, self._asked = self._asked, []
        task = asyncio.create_task(self._take(asked))
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)

    async def _take(self, asked: Sequence[tuple[StepRequest, asyncio.Future[StepAnswer]]]) -> None:
        answers: Sequence[StepAnswer] = [WorkerLost("the model did not answer")] * len(asked)
        worker = self._hiring.result()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                answers = await worker.steps([ask for ask, _ in asked])
        except TimeoutError:
            await worker.kill()
        finally:
            for (_, waiting), answer in zip(asked, answers, strict=True):
                if not waiting.done():
                    waiting.set_result(answer)


class SessionSlot:
    """One session's share of a worker."""

    def __init__(self, room: SharedWorker) -> None:
        self.room = room

    async def step(self, ask: StepRequest) -> StepAnswer:
        """Run one step; never raises for errors of the engine or the worker."""
        return await self.room.ask(ask)

    async def leave(self) -> None:
        """Release the slot. Idempotent."""
        await self.room.leave(self)


class SessionWorkerPool:
    """All session workers of this server."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._rooms: set[SharedWorker] = set()

    async def acquire(self, spec: WorkerSpec, seats: int, lost: int) -> SessionSlot:
        """Return a slot for a session that has lost `lost` workers; raises `WorkerStartFailed`."""
        kind = SessionKind(spec.engine, spec.hardware, max(1, seats // _FEWER**lost))
        self._rooms = {room for room in self._rooms if not room.empty}
        room = next((room for room in self._rooms if room.kind == kind and room.open), None)
        if room is None:
            room = SharedWorker(kind, self._hire(spec))
            self._rooms.add(room)
        return await room.sit()

    async def _hire(self, spec: WorkerSpec) -> LiveWorker:
        worker = await self._driver.start(spec)
        if isinstance(worker, LiveWorker):
            return worker
        await worker.kill()
        raise WorkerStartFailed(f"workers of {spec.engine} cannot step")
