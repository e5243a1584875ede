"""Shared workers for sessions, each of which serves as many sessions as its engine allows.

Steps requested in the same iteration of the event loop are sent to the worker in one message. A step that
fails ends only its own session. If a worker dies or does not respond, all of its sessions get new workers,
each shared with fewer sessions, so a session that repeatedly kills its workers is soon alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final

import msgspec

from sixfold.core.sessions.engine import LiveWorker, StepAnswer, StepRequest
from sixfold.core.workers.ports import Driver, WorkerLost, WorkerSpec, WorkerStartFailed

ANSWER_SECONDS: Final = 20.0
_SHARING_DIVISOR: Final = 8  # divisor of the sharing limit for each lost worker


class SessionKind(msgspec.Struct, frozen=True):
    """The sessions that may share a worker: those with the same engine, hardware and sharing limit."""

    engine: str
    hardware: str
    max_sessions: int


class SharedWorker:
    """A worker and the sessions that use it. The last session to leave stops the worker."""

    def __init__(self, kind: SessionKind, starting: Awaitable[LiveWorker]) -> None:
        self.kind = kind
        self._starting = asyncio.ensure_future(starting)
        self._slots: set[SessionSlot] = set()
        self._pending: list[tuple[StepRequest, asyncio.Future[StepAnswer]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def worker(self) -> LiveWorker | None:
        """The worker, or None if it has not started."""
        is_started = (
            self._starting.done() and not self._starting.cancelled() and self._starting.exception() is None
        )
        return self._starting.result() if is_started else None

    @property
    def has_capacity(self) -> bool:
        """Whether another session can join."""
        if len(self._slots) >= self.kind.max_sessions:
            return False
        return self.worker is not None and self.worker.alive if self._starting.done() else True

    @property
    def is_empty(self) -> bool:
        """Whether the worker has no sessions."""
        return not self._slots

    async def join(self) -> SessionSlot:
        """Return a slot once the worker has started; raises `WorkerStartFailed`."""
        slot = SessionSlot(self)
        self._slots.add(slot)
        try:
            await asyncio.shield(self._starting)
        except BaseException:
            await self.release(slot)
            raise
        return slot

    async def release(self, slot: SessionSlot) -> None:
        """Release a slot. Idempotent."""
        self._slots.discard(slot)
        if self._slots:
            return
        self._starting.cancel()
        await asyncio.wait({self._starting})
        if self.worker is not None:
            await self.worker.kill()

    def request(self, request: StepRequest) -> asyncio.Future[StepAnswer]:
        """Request a step, which is sent with the other steps of the same iteration of the event loop."""
        loop = asyncio.get_running_loop()
        if not self._pending:
            loop.call_soon(self._send)
        answer: asyncio.Future[StepAnswer] = loop.create_future()
        self._pending.append((request, answer))
        return answer

    def _send(self) -> None:
        batch, self._pending = self._pending, []
        task = asyncio.create_task(self._run_batch(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_batch(self, batch: Sequence[tuple[StepRequest, asyncio.Future[StepAnswer]]]) -> None:
        answers: Sequence[StepAnswer] = [WorkerLost("the model did not respond")] * len(batch)
        worker = self._starting.result()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                answers = await worker.steps([request for request, _ in batch])
        except TimeoutError:
            await worker.kill()
        finally:
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)


class SessionSlot:
    """One session's share of a worker."""

    def __init__(self, shared_worker: SharedWorker) -> None:
        self.shared_worker = shared_worker

    async def step(self, request: StepRequest) -> StepAnswer:
        """Run one step; never raises for errors of the engine or the worker."""
        return await self.shared_worker.request(request)

    async def release(self) -> None:
        """Release the slot. Idempotent."""
        await self.shared_worker.release(self)


class SessionWorkerPool:
    """All session workers of this server."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._shared_workers: set[SharedWorker] = set()

    async def acquire(self, spec: WorkerSpec, max_sessions: int, lost: int) -> SessionSlot:
        """Return a slot for a session that has lost `lost` workers; raises `WorkerStartFailed`."""
        kind = SessionKind(spec.engine, spec.hardware, max(1, max_sessions // _SHARING_DIVISOR**lost))
        self._shared_workers = {
            shared_worker for shared_worker in self._shared_workers if not shared_worker.is_empty
        }
        shared_worker = next(
            (
                shared_worker
                for shared_worker in self._shared_workers
                if shared_worker.kind == kind and shared_worker.has_capacity
            ),
            None,
        )
        if shared_worker is None:
            shared_worker = SharedWorker(kind, self._start(spec))
            self._shared_workers.add(shared_worker)
        return await shared_worker.join()

    async def _start(self, spec: WorkerSpec) -> LiveWorker:
        worker = await self._driver.start(spec)
        if isinstance(worker, LiveWorker):
            return worker
        await worker.kill()
        raise WorkerStartFailed(f"workers of {spec.engine} do not support sessions")
