"""A running session: its worker slot, its clock, its pending inputs and its viewer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec

from sixfold import errors
from sixfold.core.catalog.prompt_words import NO_WORDS
from sixfold.core.clock import SECOND_US
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
from sixfold.core.sessions.engine import MAX_POSES, Controls, PackedStepResult, StepRequest
from sixfold.core.sessions.handover import Checkpoint
from sixfold.core.sessions.inputs import SessionInput, combine_inputs, merge_inputs
from sixfold.core.sessions.recording import SessionRecording
from sixfold.core.sessions.repository import LeaseLost, SessionRecord
from sixfold.core.sessions.served_time import LATE_SECONDS, MAX_CATCH_UP_SECONDS, ServedTime
from sixfold.core.sessions.states import SessionEvent, SessionState
from sixfold.core.sessions.worker_pool import SessionSlot
from sixfold.core.workers.ports import RunFailed, WorkerLost, WorkerStartFailed

_LOG = logging.getLogger("sixfold.sessions")
RESUME_SECONDS: Final = MAX_CATCH_UP_SECONDS
# The reason that clients receive with the state idle.
PAUSED: Final = "paused"
# Pressed keys are released after this many seconds without input.
RELEASE_SECONDS: Final = 1.0
_IDLE_SECONDS: Final = 10.0
_BUILD_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.25
# Resolution of the event loop's timers: steps that are due sooner than this run immediately.
_TIMER_RESOLUTION: Final = 0.001
# For this long, each lost worker reduces the number of sessions that share this session's next worker.
_LOST_WORKER_SECONDS: Final = 60.0
# Sessions start at multiples of this time, so that the sessions of one worker step together.
_GRID_SECONDS: Final = 0.01
_STATS_SECONDS: Final = 1.0
_CHECKPOINT_SECONDS: Final = 1.0
# Maximum ticks of one step; further due ticks follow immediately.
_MAX_TICKS: Final = MAX_POSES
# Maximum consecutive restarts without a step between them.
_MAX_RESTARTS: Final = 3


class SessionEnding(msgspec.Struct, frozen=True):
    """The event that ends a session, the reason, and the code with which its socket is closed.

    If `event` is None, the session ends only on this server: another server continues it.
    """

    event: SessionEvent | None
    reason: str
    code: int


class SessionHooks(msgspec.Struct, frozen=True):
    """Callbacks of a `SessionRunner`: acquire a worker slot, write a transition, charge the next slice.

    `acquire_slot` receives the number of workers that the session has lost. `renew_slices` receives the µs
    since its last call, charges the finished slices, and returns the session with the database's time.
    `skip_time` excludes µs in which the session did not run from the current slice; both raise `StoreFailed`.
    `save_checkpoint` returns whether this server still holds the session; it is None on a server that does
    not share its database.
    """

    acquire_slot: Callable[[int], Awaitable[SessionSlot]]
    transition: Callable[[str, SessionEvent, str | None], Awaitable[SessionRecord]]
    renew_slices: Callable[[str, int], Awaitable[tuple[SessionRecord, int]]]
    skip_time: Callable[[str, int], Awaitable[None]]
    save_checkpoint: Callable[[str, Checkpoint], Awaitable[bool]] | None = None


class SessionRunner:
    """Runs a session from `requested` to its end; see `run`."""

    def __init__(
        self,
        session: SessionRecord,
        hooks: SessionHooks,
        pause_seconds: float,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.session = session
        self._hooks = hooks
        self._pause_seconds, self._idle_limit = pause_seconds, session.idle_us / SECOND_US
        self._period = 1 / session.fps
        self._ending: asyncio.Future[SessionEnding] = asyncio.get_running_loop().create_future()
        self.slot: SessionSlot | None = None
        self.recording: SessionRecording | None = None
        self.prompt = str(session.inputs.get("prompt") or "")
        self._connection: Connection | None = None
        self._state = checkpoint.state if checkpoint else None
        self._seq = checkpoint.seq if checkpoint else 0
        # The checkpoint of one second ago: all frames and poses up to it have reached the viewer.
        self._checkpoint = checkpoint
        # Whether the session comes from another server and its viewer has not reconnected yet.
        self._taken_over = session.state is not SessionState.REQUESTED
        self._started_at = 0.0
        self._recent_poses: deque[PoseMessage] = deque(maxlen=session.fps * (RESUME_SECONDS + 5))
        self._inputs: list[SessionInput] = []
        self._input_seq: int | None = None
        self._keys: tuple[str, ...] = ()
        self._words = NO_WORDS
        self._last_input_at = time.monotonic()
        self._sent = self._dropped = self._late = self._restarts = 0
        self._unpaused = asyncio.Event()
        self._input_received = asyncio.Event()
        self._slice_due, self._charged_at = 0.0, time.monotonic()
        self._served = ServedTime(partial(hooks.skip_time, session.id))
        # The database's time minus this server's, in µs.
        self._clock_offset = 0

    # -- calls from the connection ---------------------------------------------------------------

    def end(self, ending: SessionEnding) -> None:
        """End the session; only the first call has an effect."""
        if not self._ending.done():
            self._ending.set_result(ending)

    def attach(self) -> Connection:
        """Attach a new viewer, which replaces the previous one; it receives poses after `resume`."""
        connection, previous = Connection(), self._connection
        if previous is not None:
            connection.last_seq = previous.last_seq
            previous.end(REPLACED, "replaced")
        self._connection = connection
        connection.put(self._state_message())
        return connection

    def resume(self, connection: Connection, last_seq: int | None) -> None:
        """Start to send poses to a viewer: those after `last_seq` that are still buffered, then new ones."""
        if connection.resumed:
            return
        connection.resumed = True
        if last_seq is not None:
            self._catch_up(last_seq)
            connection.last_seq = max(connection.last_seq, last_seq if self._taken_over else 0)
            self._taken_over = False
            for message in self._recent_poses:
                if message.seq > last_seq:
                    connection.put(message)

    def _catch_up(self, last_seq: int) -> None:
        """Advance the clock to the viewer's last tick, which may be newer than the stored checkpoint."""
        if self._taken_over and 0 < last_seq - self._seq <= RESUME_SECONDS * self.session.fps:
            self._started_at -= (last_seq - self._seq) * self._period

    def detach(self, connection: Connection) -> None:
        """End the connection of a viewer whose socket has closed."""
        connection.end(NORMAL, "gone")

    def apply_input(self, message: SessionInput) -> None:
        """Queue an input; it takes effect with the next step."""
        self._exclude_overdue()
        self._last_input_at = time.monotonic()
        self._keys = self._keys if message.keys is None else message.keys
        self.prompt = message.prompt or self.prompt
        if len(self._inputs) < _MAX_TICKS:
            self._inputs.append(message)
        # One step cannot acknowledge more inputs, so the newest input is merged into the last one.
        else:
            self._inputs[-1] = merge_inputs(self._inputs[-1], message)
        self._input_received.set()

    # -- lifecycle -------------------------------------------------------------------------------

    async def run(self) -> None:
        """Acquire a worker slot, run until something ends the session, and settle its charges."""
        await self._transition(SessionEvent.START)
        acquiring = asyncio.ensure_future(self._hooks.acquire_slot(0))
        await asyncio.wait({acquiring, self._ending}, return_when=asyncio.FIRST_COMPLETED)
        if self._ending.done():
            acquiring.cancel()
            await _release_late(acquiring)
            await self._finish(self._ending.result())
            return
        try:
            slot = acquiring.result()
        except WorkerStartFailed as failure:
            _LOG.warning("a session's worker did not start", extra={"reason": str(failure)})
            await self._finish(SessionEnding(SessionEvent.FAIL, "the model did not start", FAILED))
            return
        if not await self._build(slot):
            await slot.release()
            await self._finish(self._ending.result())
            return
        await self._transition(SessionEvent.READY)
        self._last_input_at = time.monotonic()
        tasks = asyncio.create_task(self._run_clock(slot)), asyncio.create_task(self._run_periodic_tasks())
        try:
            await asyncio.wait({self._ending, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                _LOG.error("a session ended with an unexpected error", exc_info=result)
        await self._finish(self._ending.result() if self._ending.done() else _SERVER_ERROR)

    async def _build(self, slot: SessionSlot) -> bool:
        """Run a step of zero ticks, in which the engine loads its assets, before the session is ready.

        Returns False if the session ended meanwhile. If the worker is lost, `_run_clock` replaces it.
        """
        step = asyncio.ensure_future(slot.step(self._step_request(Controls(), 0, draw=False)))
        try:
            await asyncio.wait(
                {step, self._ending}, timeout=_BUILD_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            answer = step.result() if step.done() else None
        finally:
            step.cancel()
        if isinstance(answer, RunFailed):
            self._fail(answer)
        elif isinstance(answer, PackedStepResult):
            self._state, self._words = answer.state, answer.words or NO_WORDS
        return not self._ending.done()

    async def _finish(self, ending: SessionEnding) -> None:
        self._exclude_overdue()
        if ending.event is None or self.session.is_paused or not self.session.slice_amount:
            await self._served.settle()
        else:
            with contextlib.suppress(LeaseLost):
                await self._served.settle_end(self._charge)
        if ending.event is None:
            await self._save_checkpoint()
        else:
            await self._transition(ending.event, ending.reason)
        if self.session.state is SessionState.CLOSING:
            await self._transition(SessionEvent.END)
        if self._connection is not None:
            self._connection.put(self._stats(self._connection))
            self._connection.end(ending.code, ending.reason)

    async def _transition(self, event: SessionEvent, reason: str | None = None) -> None:
        previous = self.session
        try:
            self.session = await self._hooks.transition(self.session.id, event, reason)
        except LeaseLost:
            self.end(_TAKEN_OVER)
        if (self.session.state, self.session.is_paused) != (previous.state, previous.is_paused):
            self._send_state()

    def _send_state(self) -> None:
        if self._connection is not None:
            self._connection.put(self._state_message())

    def _state_message(self) -> StateMessage:
        reason = PAUSED if self.session.is_paused and not self.session.reason else self.session.reason
        return StateMessage(self.session.state, reason, self._words)

    # -- the clock -------------------------------------------------------------------------------

    async def _run_clock(self, slot: SessionSlot) -> None:
        loop = asyncio.get_running_loop()
        failures, failure_times = 0, list[float]()
        start = math.ceil(loop.time() / _GRID_SECONDS) * _GRID_SECONDS
        self._started_at += start - self._seq * self._period
        self._served.mark()
        try:
            while True:
                self.slot = slot
                await self._wait_unpaused()
                behind = loop.time() - self._started_at - (self._seq + 1) * self._period
                if behind < -_TIMER_RESOLUTION:
                    await asyncio.sleep(-behind)
                    continue
                # The machine was suspended, or the worker replaced slowly, so the missed time is skipped.
                if behind > RESUME_SECONDS:
                    self._started_at += behind
                    self._skip_stop()
                ticks = min(_MAX_TICKS, 1 + int(max(behind, 0) / self._period))
                if await self._step(slot, ticks):
                    failures = 0
                    # No step takes so long: the server was stopped during the step.
                    self._skip_stop()
                    self._served.mark()
                    continue
                failures += 1
                self._restarts += 1
                if failures > _MAX_RESTARTS:
                    return self.end(SessionEnding(SessionEvent.FAIL, "the model was lost", FAILED))
                failure_times = [now for now in failure_times if loop.time() - now < _LOST_WORKER_SECONDS] + [
                    loop.time()
                ]
                await slot.release()
                slot = await self._hooks.acquire_slot(len(failure_times))
        except WorkerStartFailed:
            self.end(SessionEnding(SessionEvent.FAIL, "the model did not start again", FAILED))
        finally:
            await asyncio.shield(slot.release())

    def _skip_stop(self) -> None:
        """Skip the time in which the session did not run, unless it is paused or can catch up."""
        if not self.session.is_paused:
            self._last_input_at = min(time.monotonic(), self._last_input_at + self._served.skip())

    async def _wait_unpaused(self) -> None:
        """Wait until the session is not paused, and set its clock back by the length of the pause."""
        if not self.session.is_paused:
            return
        paused_at = asyncio.get_running_loop().time()
        self._unpaused.clear()
        await self._unpaused.wait()
        self._started_at += asyncio.get_running_loop().time() - paused_at

    async def _step(self, slot: SessionSlot, ticks: int) -> bool:
        """Run one step; return False, without changes, if the worker was lost."""
        input_count, connection = len(self._inputs), self._connection
        visible = connection is not None and connection.resumed and not connection.closed
        draw = connection is not None and visible and connection.accepts_frames
        answer = await slot.step(self._step_request(self._controls(input_count), ticks, draw=draw))
        if isinstance(answer, WorkerLost):
            _LOG.warning("a session's worker was lost", extra={"reason": answer.reason})
            return False
        if isinstance(answer, RunFailed):
            self._fail(answer)
            return True
        self._state = answer.state
        self._acknowledge(input_count)
        if answer.words is not None and answer.words != self._words:
            self._words = answer.words
            self._send_state()
        self._late += ticks - 1
        self._publish(answer, ticks, draw=draw, visible=visible)
        return True

    def _step_request(self, controls: Controls, ticks: int, *, draw: bool) -> StepRequest:
        session = self.session
        return StepRequest(session.model, session.inputs, self._state, controls, session.fps, ticks, draw)

    def _fail(self, failed: RunFailed) -> None:
        self.end(
            SessionEnding(SessionEvent.FAIL, failed.message if failed.public else "the model failed", FAILED)
        )

    def _controls(self, input_count: int) -> Controls:
        silent = time.monotonic() - self._last_input_at > RELEASE_SECONDS
        return combine_inputs(() if silent else self._keys, self._inputs[:input_count])

    def _acknowledge(self, input_count: int) -> None:
        inputs, self._inputs = self._inputs[:input_count], self._inputs[input_count:]
        for message in inputs:
            self._input_seq = message.seq
            if self._connection is not None:
                self._connection.put(AckMessage(message.seq, self._seq + 1))

    def _publish(self, answer: PackedStepResult, ticks: int, *, draw: bool, visible: bool) -> None:
        first = self._seq + 1
        self._seq += ticks
        connection = self._connection
        for seq, pose in enumerate(answer.poses, first):
            message = PoseMessage(seq, self._time(seq), pose)
            self._recent_poses.append(message)
            self._record(message.t, "json", pose)
            if connection is not None and connection.resumed and seq > connection.last_seq:
                self._sent += not connection.closed
                connection.put(message)
        if answer.frame is not None and connection is not None and draw:
            connection.credit -= 1
            self._sent += 1
            connection.put(FrameMessage(self._seq, self._input_seq, self._time(self._seq), answer.frame))
            self._record(self._time(self._seq), answer.frame.format, answer.frame.data)
        elif visible and not answer.poses:
            self._dropped += 1

    def _record(self, t: int, format_name: str, data: bytes) -> None:
        if self.recording is not None:
            self.recording.add(t, format_name, data)

    def _time(self, seq: int) -> int:
        return round(seq * 1000 * self._period)

    # -- periodic tasks --------------------------------------------------------------------------

    async def _run_periodic_tasks(self) -> None:
        stats_due = checkpoint_due = 0.0
        while True:
            await self._wait_for_poll()
            now = time.monotonic()
            # Retried in the next iteration.
            with contextlib.suppress(errors.StoreFailed):
                if self.session.is_paused or not self._served.is_stopped:
                    await self._check_inputs(now - self._last_input_at)
                is_due = now >= self._slice_due and now - self._pause_due < LATE_SECONDS
                if is_due and not (self.session.is_paused or self._served.is_late):
                    await self._served.settle()
                    self._slice_due = now + await self._charge()
                if now >= checkpoint_due:
                    checkpoint_due = now + _CHECKPOINT_SECONDS
                    await self._save_checkpoint()
            if now >= stats_due and self._connection is not None and self._connection.resumed:
                stats_due = now + _STATS_SECONDS
                self._connection.put(self._stats(self._connection))

    async def _wait_for_poll(self) -> None:
        """Wait for the next poll, or for the input that ends a pause."""
        if not self.session.is_paused:
            self._input_received.clear()
            await asyncio.sleep(_POLL_SECONDS)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_POLL_SECONDS):
                await self._input_received.wait()

    async def _save_checkpoint(self) -> None:
        """Store a checkpoint, and end on this server if another server holds the session."""
        if self._hooks.save_checkpoint is None or self._state is None:
            return
        start = Checkpoint(self._seq, self._state)
        previous, self._checkpoint = self._checkpoint or start, start
        if not await self._hooks.save_checkpoint(self.session.id, previous):
            self.end(_TAKEN_OVER)

    async def _check_inputs(self, silence: float) -> None:
        limit = self._idle_limit
        if silence >= min(_IDLE_SECONDS, limit / 2, self._pause_seconds / 2):
            # A session becomes idle before it ends, even if the event loop was late.
            if self.session.state in {SessionState.READY, SessionState.ACTIVE}:
                await self._transition(SessionEvent.REST)
            if silence >= limit:
                self.end(SessionEnding(SessionEvent.CLOSE, "idle", IDLE))
            elif silence >= self._pause_seconds and not self.session.is_paused:
                self._exclude_overdue()
                await self._served.settle()
                await self._transition(SessionEvent.PAUSE)
        elif self._has_input and self.session.state in {SessionState.READY, SessionState.IDLE}:
            await self._transition(SessionEvent.INPUT)
            # A pause postpones the end of the slice by the length of the pause.
            self._slice_due = 0.0
            self._served.mark()
            self._unpaused.set()

    @property
    def _pause_due(self) -> float:
        return self._last_input_at + min(self._idle_limit, self._pause_seconds)

    def _exclude_overdue(self) -> None:
        """Skip stops of the server, and the time for which a pause or an end is late without a database."""
        self._skip_stop()
        if not self.session.is_paused:
            self._served.exclude(self._pause_due)

    @property
    def _has_input(self) -> bool:
        return bool(self._inputs) or self._input_seq is not None

    async def _charge(self) -> float:
        """Charge the finished slices; return the seconds until the next charge is due."""
        elapsed_us = int((time.monotonic() - self._charged_at) * SECOND_US)
        self.session, now_us = await self._hooks.renew_slices(self.session.id, elapsed_us)
        self._charged_at = time.monotonic()
        self._clock_offset = now_us - _monotonic_us()
        if self.session.state is SessionState.CLOSING:
            self._send_state()
            self.end(SessionEnding(SessionEvent.CLOSE, "no credit", NORMAL))
        return self.session.slice_left_us(now_us) / SECOND_US

    def _stats(self, connection: Connection) -> StatsMessage:
        session, now_us = self.session, _monotonic_us() + self._clock_offset
        running_us, cost = session.running_us(now_us), session.cost_at(now_us)
        counts = self._sent, self._dropped, self._late, connection.credit, self._restarts
        return StatsMessage(*counts, running_us, cost)


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1000


_TAKEN_OVER = SessionEnding(None, "replaced", REPLACED)
_SERVER_ERROR = SessionEnding(SessionEvent.FAIL, "internal server error", FAILED)


async def _release_late(acquiring: asyncio.Future[SessionSlot]) -> None:
    """Release a slot that was acquired after the session had ended."""
    await asyncio.wait({acquiring})
    if not acquiring.cancelled() and acquiring.exception() is None:
        await acquiring.result().release()
