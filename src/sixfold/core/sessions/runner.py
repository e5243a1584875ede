"""One session at work: a seat at a worker, an absolute clock, what the user holds, and whoever watches."""

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
RELEASE_SECONDS: Final = 1.0  # keys are let go after so much silence
_REST_SECONDS: Final = 10.0
_BUILD_SECONDS: Final = 20.0
_CHORE_SECONDS: Final = 0.25
_GRAIN_SECONDS: Final = 0.001  # of the loop's timers: what is due sooner than that is due
_BLAMED_SECONDS: Final = 60.0  # so long a lost worker makes its sessions' next rooms smaller
_GRID_SECONDS: Final = 0.01  # every session's clock begins on it, so that those of one room step together
_STATS_SECONDS: Final = 1.0
_NOTE_SECONDS: Final = 1.0
_MAX_TICKS: Final = 100  # of one step; what is due beyond them follows at once
_MAX_RESTARTS: Final = 3  # in a row, without a step between


@dataclass(frozen=True, slots=True)
class SessionEnding:
    """What ends a session, why, and the code that its socket is closed with.

    Without an event it only ends here: another server goes on with it.
    """

    event: SessionEvent | None
    reason: str
    code: int


@dataclass(frozen=True, slots=True)
class SessionInput:
    """What a viewer said; fields that are None stay as they are."""

    seq: int
    keys: tuple[str, ...] | None = None
    prompt: str | None = None
    waypoints: tuple[tuple[float, float], ...] | None = None


@dataclass(frozen=True, slots=True)
class SessionHooks:
    """What a running session needs of the house: a seat, the database's word, and the next slice.

    `sit` is told how many workers the session has lost. `turn_slice` pays what is over, and gives the seconds
    that are left of the slice that runs. `note` writes down where it stands and says whether
    it is still this server's; None where there is no other.
    """

    sit: Callable[[int], Awaitable[SessionSlot]]
    happen: Callable[[str, SessionEvent, str | None], Awaitable[SessionRecord]]
    turn_slice: Callable[[str], Awaitable[tuple[SessionRecord, float]]]
    note: Callable[[str, Checkpoint], Awaitable[bool]] | None = None  # where it stands, for other servers


class SessionRunner:
    """From `requested` to its end; `run` is its whole life."""

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
        self._place = place  # of a second ago: what was shown until then has reached its viewer
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

    # -- what happens from outside ---------------------------------------------------------------

    def end(self, ending: SessionEnding) -> None:
        """Let the session end; the first reason counts."""
        if not self._ending.done():
            self._ending.set_result(ending)

    def attach(self) -> Connection:
        """Attach a new viewer, which replaces the one before; it receives poses after the greeting."""
        viewer, before = Connection(), self._viewer
        if before is not None:
            viewer.last_seq = before.last_seq
            before.end(REPLACED, "replaced")
        self._viewer = viewer
        viewer.put(StateMessage(self.session.state, self.session.reason))
        return viewer

    def resume(self, viewer: Connection, last_seq: int | None) -> None:
        """Begin to show; from after `last_seq` on, as far back as is kept."""
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
        """Whoever follows a session here may have seen more than was written down of it."""
        if self._moved_in and 0 < last_seq - self._seq <= RESUME_SECONDS * self.session.fps:
            self._began -= (last_seq - self._seq) * self._period

    def detach(self, viewer: Connection) -> None:
        """This viewer's socket is gone."""
        viewer.end(NORMAL, "gone")

    def apply_input(self, given: SessionInput) -> None:
        """Take an input in; it holds from the next step on."""
        self._heard_at = time.monotonic()
        self._keys = self._keys if given.keys is None else given.keys
        if len(self._inputs) < _MAX_TICKS:
            self._inputs.append(given)
        else:  # more than a step can answer: the newest stands for all
            self._inputs[-1] = given

    # -- its life --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Sit down at a worker, play until something ends it, and settle."""
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
        """Take a step of no time before ready is said, in which the engine builds what it will show.

        False when the session ended meanwhile; a worker that is lost is the clock's matter.
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
                if behind > RESUME_SECONDS:  # the machine slept: nobody waits for what was missed
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
        """One step; False when the worker was lost, with everything left as it was."""
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

    # -- beside the clock ------------------------------------------------------------------------

    async def _keep_house(self) -> None:
        slice_due = stats_due = note_due = 0.0
        while True:
            await asyncio.sleep(_CHORE_SECONDS)
            moment = time.monotonic()
            with contextlib.suppress(errors.StoreFailed):  # it is tried again with the next look
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
        """Write down where it stands, and let go when another server has it."""
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
        """Pay what is over; gives the seconds until the next time."""
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
    """Give a seat back that came too late."""
    await asyncio.wait({sitting})
    if not sitting.cancelled() and sitting.exception() is None:
        await sitting.result().leave()
