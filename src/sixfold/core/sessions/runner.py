"""One running session: its worker slot, its clock, its pending inputs and its viewer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from sixfold import errors
from sixfold.core.sessions.connection import (
    FAILED,
    IDLE,
    NORMAL,
    REPLACED,
    AckMessage,
    Connection,
    FrameMessage,
    PoseMessage,
    StateMessage,
    StatsMessage,
)
from sixfold.core.sessions.engine import Controls, StepRequest, StepResult
from sixfold.core.sessions.handover import Checkpoint
from sixfold.core.sessions.repository import LeaseLost, SessionRecord
from sixfold.core.sessions.states import SessionEvent, SessionState
from sixfold.core.sessions.worker_pool import SessionSlot
from sixfold.core.workers.ports import RunFailed, WorkerLost, WorkerStartFailed

_LOG = logging.getLogger("sixfold.sessions")
RESUME_SECONDS: Final = 30
# Pressed keys are released after this long without input.
RELEASE_SECONDS: Final = 1.0
_REST_SECONDS: Final = 10.0
_BUILD_SECONDS: Final = 20.0
_CHORE_SECONDS: Final = 0.25
# Resolution of the event loop's timers: steps due sooner than this run at once.
_GRAIN_SECONDS: Final = 0.001
# For this long, each lost worker reduces how many sessions share this session's next worker.
_BLAMED_SECONDS: Final = 60.0
# Sessions start on multiples of this time, so that those of one worker step together.
_GRID_SECONDS: Final = 0.01
_STATS_SECONDS: Final = 1.0
_NOTE_SECONDS: Final = 1.0
# Ticks of one step; further due ticks follow at once.
_MAX_TICKS: Final = 100
# Consecutive restarts without a step between them.
_MAX_RESTARTS: Final = 3


@dataclass(frozen=True, slots=True)
class SessionEnding:
    """The event that ends a session, the reason, and the code that its socket is closed with.

    If `event` is None, the session ends only on this server: another one continues it.
    """

    event: SessionEvent | None
    reason: str
    code: int


@dataclass(frozen=True, slots=True)
class SessionInput:
    """An input message from the viewer; None fields stay unchanged."""

    seq: int
    keys: tuple[str, ...] | None = None
    prompt: str | None = None
    waypoints: tuple[tuple[float, float], ...] | None = None


@dataclass(frozen=True, slots=True)
class SessionHooks:
    """Callbacks of a `SessionRunner`: acquire a worker slot, write a transition, charge the next slice.

    `sit` receives the number of workers that the session has lost. `turn_slice` charges the slices that are
    over and returns the seconds left in the current one. `note` stores a checkpoint and returns whether this
    server still holds the session; it is None on a server that shares its database with no other.
    """

    sit: Callable[[int], Awaitable[SessionSlot]]
    happen: Callable[[str, SessionEvent, str | None], Awaitable[SessionRecord]]
    turn_slice: Callable[[str], Awaitable[tuple[SessionRecord, float]]]
    note: Callable[[str, Checkpoint], Awaitable[bool]] | None = None


class SessionRunner:
    """Runs a session from `requested` to its end; see `run`."""

    def __init__(
        self, session: SessionRecord, backstage: SessionHooks, place: Checkpoint | None = None
    ) -> None:
        self.session = session
        self._backstage = backstage
        self._period = 1 / session.fps
        self._ending: asyncio.Future[SessionEnding] = asyncio.get_running_loop().create_future()
        self.seat: SessionSlot | None = None
        self._viewer: Connection | None = None
        self._state = place.state if place else None
        self._seq = place.seq if place else 0
        # The checkpoint of one second ago: everything shown until then has reached the viewer.
        self._place = place
        self._moved_in = (
            session.state is not SessionState.REQUESTED
        )  # from another server, and nobody has come yet
        self._began = 0.0
        self._kept: deque[PoseMessage] = deque(maxlen=session.fps * (RESUME_SECONDS + 5))
        self._inputs: list[SessionInput] = []
        self._input_seq: int | None = None
        self._keys: tuple[str, ...] = ()
        self._heard_at = 0.0
        self._sent = self._dropped = self._late = self._restarts = 0

    # -- calls from the connection ---------------------------------------------------------------

    def end(self, ending: SessionEnding) -> None:
        """End the session; only the first call counts."""
        if not self._ending.done():
            self._ending.set_result(ending)

    def attach(self) -> Connection:
        """Attach a new viewer, which replaces the previous one; it receives poses after `resume`."""
        viewer, before = Connection(), self._viewer
        if before is not None:
            viewer.last_seq = before.last_seq
            before.end(REPLACED, "replaced")
        self._viewer = viewer
        viewer.put(StateMessage(self.session.state, self.session.reason))
        return viewer

    def resume(self, viewer: Connection, last_seq: int | None) -> None:
        """Start to send poses to a viewer: those after `last_seq` that are still buffered, then new ones."""
        if viewer.greeted:
            return
        viewer.greeted = True
        if last_seq is not None:
            self._catch_up(last_seq)
            viewer.last_seq = max(viewer.last_seq, last_seq if self._moved_in else 0)
            self._moved_in = False
            for posed in self._kept:
                if posed.seq > last_seq:
                    viewer.put(posed)

    def _catch_up(self, last_seq: int) -> None:
        """Advance the clock to what the viewer has seen: that may be newer than the stored checkpoint."""
        if self._moved_in and 0 < last_seq - self._seq <= RESUME_SECONDS * self.session.fps:
            self._began -= (last_seq - self._seq) * self._period

    def detach(self, viewer: Connection) -> None:
        """End the connection of a viewer whose socket has closed."""
        viewer.end(NORMAL, "gone")

    def apply_input(self, given: SessionInput) -> None:
        """Queue an input; it takes effect with the next step."""
        self._heard_at = time.monotonic()
        self._keys = self._keys if given.keys is None else given.keys
        if len(self._inputs) < _MAX_TICKS:
            self._inputs.append(given)
        # One step cannot acknowledge more inputs: the newest replaces the last.
        else:
            self._inputs[-1] = given

    # -- lifecycle -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Acquire a worker slot, run until something ends the session, and settle its charges."""
        await self._happen(SessionEvent.START)
        sitting = asyncio.ensure_future(self._backstage.sit(0))
        await asyncio.wait({sitting, self._ending}, return_when=asyncio.FIRST_COMPLETED)
        if self._ending.done():
            sitting.cancel()
            await _leave(sitting)
            await self._finish(self._ending.result())
            return
        try:
            seat = sitting.result()
        except WorkerStartFailed as failure:
            _LOG.warning("a session's worker did not start", extra={"reason": str(failure)})
            await self._finish(SessionEnding(SessionEvent.FAIL, "the model did not start", FAILED))
            return
        if not await self._built(seat):
            await seat.leave()
            await self._finish(self._ending.result())
            return
        await self._happen(SessionEvent.READY)
        self._heard_at = time.monotonic()
        tasks = asyncio.create_task(self._play(seat)), asyncio.create_task(self._keep_house())
        try:
            await asyncio.wait({self._ending, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                _LOG.error("a session stopped in a way that it should not", exc_info=result)
        await self._finish(self._ending.result() if self._ending.done() else _BROKEN)

    async def _built(self, seat: SessionSlot) -> bool:
        """Run a step of zero ticks before the session is ready, in which the engine loads its assets.

        Returns False if the session ended meanwhile. If the worker is lost, `_play` replaces it.
        """
        building = asyncio.ensure_future(seat.step(self._of(Controls(), 0, draw=False)))
        try:
            await asyncio.wait(
                {building, self._ending}, timeout=_BUILD_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            answer = building.result() if building.done() else None
        finally:
            building.cancel()
        if isinstance(answer, RunFailed):
            self._fail(answer)
        elif isinstance(answer, StepResult):
            self._state = answer.state
        return not self._ending.done()

    async def _finish(self, ending: SessionEnding) -> None:
        if ending.event is None:
            await self._note()
        else:
            await self._happen(ending.event, ending.reason)
        if ending.event is SessionEvent.CLOSE:
            await self._happen(SessionEvent.END)
        if self._viewer is not None:
            self._viewer.end(ending.code, ending.reason)

    async def _happen(self, event: SessionEvent, reason: str | None = None) -> None:
        before = self.session
        try:
            self.session = await self._backstage.happen(self.session.id, event, reason)
        except LeaseLost:
            self.end(_TAKEN)
        if self.session.state is not before.state and self._viewer is not None:
            self._viewer.put(StateMessage(self.session.state, self.session.reason))

    # -- the clock -------------------------------------------------------------------------------

    async def _play(self, seat: SessionSlot) -> None:
        loop = asyncio.get_running_loop()
        failures, lost = 0, list[float]()
        here = math.ceil(loop.time() / _GRID_SECONDS) * _GRID_SECONDS
        self._began += here - self._seq * self._period
        try:
            while True:
                self.seat = seat
                behind = loop.time() - self._began - (self._seq + 1) * self._period
                if behind < -_GRAIN_SECONDS:
                    await asyncio.sleep(-behind)
                    continue
                # The machine was suspended: nobody waits for the missed time.
                if behind > RESUME_SECONDS:
                    self._began += behind
                ticks = min(_MAX_TICKS, 1 + int(max(behind, 0) / self._period))
                if await self._step(seat, ticks):
                    failures = 0
                    continue
                failures += 1
                self._restarts += 1
                if failures > _MAX_RESTARTS:
                    return self.end(SessionEnding(SessionEvent.FAIL, "the model was lost", FAILED))
                lost = [moment for moment in lost if loop.time() - moment < _BLAMED_SECONDS] + [loop.time()]
                await seat.leave()
                seat = await self._backstage.sit(len(lost))
        except WorkerStartFailed:
            self.end(SessionEnding(SessionEvent.FAIL, "the model did not start again", FAILED))
        finally:
            await asyncio.shield(seat.leave())

    async def _step(self, seat: SessionSlot, ticks: int) -> bool:
        """Run one step; return False, with nothing changed, if the worker was lost."""
        heard, viewer = len(self._inputs), self._viewer
        shown = viewer is not None and viewer.greeted and not viewer.gone
        draw = viewer is not None and shown and viewer.credit > 0
        answer = await seat.step(self._of(self._controls(heard), ticks, draw=draw))
        if isinstance(answer, WorkerLost):
            _LOG.warning("a session's worker was lost", extra={"reason": answer.reason})
            return False
        if isinstance(answer, RunFailed):
            self._fail(answer)
            return True
        self._state = answer.state
        self._answer(heard)
        self._late += ticks - 1
        self._show(answer, ticks, draw=draw, shown=shown)
        return True

    def _of(self, controls: Controls, ticks: int, *, draw: bool) -> StepRequest:
        session = self.session
        return StepRequest(session.model, session.inputs, self._state, controls, session.fps, ticks, draw)

    def _fail(self, failed: RunFailed) -> None:
        self.end(
            SessionEnding(SessionEvent.FAIL, failed.message if failed.public else "the model failed", FAILED)
        )

    def _controls(self, heard: int) -> Controls:
        silent = time.monotonic() - self._heard_at > RELEASE_SECONDS
        fresh = self._inputs[:heard]
        prompts = [given.prompt for given in fresh if given.prompt is not None]
        routes = [given.waypoints for given in fresh if given.waypoints is not None]
        return Controls(
            keys=() if silent else self._keys,
            prompt=prompts[-1] if prompts else None,
            waypoints=routes[-1] if routes else None,
        )

    def _answer(self, heard: int) -> None:
        answered, self._inputs = self._inputs[:heard], self._inputs[heard:]
        for given in answered:
            self._input_seq = given.seq
            if self._viewer is not None:
                self._viewer.put(AckMessage(given.seq, self._seq + 1))

    def _show(self, answer: StepResult, ticks: int, *, draw: bool, shown: bool) -> None:
        first = self._seq + 1
        self._seq += ticks
        viewer = self._viewer
        for seq, pose in enumerate(answer.poses, first):
            posed = PoseMessage(seq, self._time(seq), pose)
            self._kept.append(posed)
            if viewer is not None and viewer.greeted and seq > viewer.last_seq:
                self._sent += not viewer.gone
                viewer.put(posed)
        if answer.frame is not None and viewer is not None and draw:
            viewer.credit -= 1
            self._sent += 1
            viewer.put(FrameMessage(self._seq, self._input_seq, self._time(self._seq), answer.frame))
        elif shown and not answer.poses:
            self._dropped += 1

    def _time(self, seq: int) -> int:
        return round(seq * 1000 * self._period)

    # -- periodic tasks --------------------------------------------------------------------------

    async def _keep_house(self) -> None:
        slice_due = stats_due = note_due = 0.0
        while True:
            await asyncio.sleep(_CHORE_SECONDS)
            moment = time.monotonic()
            # Retried in the next iteration.
            with contextlib.suppress(errors.StoreFailed):
                await self._look_at_inputs(moment - self._heard_at)
                if moment >= slice_due:
                    slice_due = moment + await self._turn()
                if moment >= note_due:
                    note_due = moment + _NOTE_SECONDS
                    await self._note()
            if moment >= stats_due and self._viewer is not None and self._viewer.greeted:
                stats_due = moment + _STATS_SECONDS
                self._viewer.put(self._stats(self._viewer))

    async def _note(self) -> None:
        """Store a checkpoint, and end here if another server has the session."""
        if self._backstage.note is None or self._state is None:
            return
        here = Checkpoint(self._seq, self._state)
        before, self._place = self._place or here, here
        if not await self._backstage.note(self.session.id, before):
            self.end(_TAKEN)

    async def _look_at_inputs(self, silence: float) -> None:
        limit = self.session.idle_us / 1_000_000
        if silence >= limit:
            self.end(SessionEnding(SessionEvent.CLOSE, "idle", IDLE))
        elif silence >= min(_REST_SECONDS, limit / 2):
            if self.session.state in {SessionState.READY, SessionState.ACTIVE}:
                await self._happen(SessionEvent.REST)
        elif self._input_seq is not None and self.session.state in {SessionState.READY, SessionState.IDLE}:
            await self._happen(SessionEvent.INPUT)

    async def _turn(self) -> float:
        """Charge the slices that are over; return the seconds until the next one is due."""
        self.session, left = await self._backstage.turn_slice(self.session.id)
        if self.session.state is SessionState.CLOSING:
            if self._viewer is not None:
                self._viewer.put(StateMessage(self.session.state, self.session.reason))
            self.end(SessionEnding(SessionEvent.CLOSE, "no credit", NORMAL))
        return left

    def _stats(self, viewer: Connection) -> StatsMessage:
        return StatsMessage(self._sent, self._dropped, self._late, viewer.credit, self._restarts)


_TAKEN = SessionEnding(None, "replaced", REPLACED)
_BROKEN = SessionEnding(SessionEvent.FAIL, "the server erred", FAILED)


async def _leave(sitting: asyncio.Future[SessionSlot]) -> None:
    """Release a slot that was acquired after the session had ended."""
    await asyncio.wait({sitting})
    if not sitting.cancelled() and sitting.exception() is None:
        await sitting.result().leave()
