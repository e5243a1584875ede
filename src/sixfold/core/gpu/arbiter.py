"""Granting of uses of one GPU: waiting for a turn, unloading idle models, measuring model sizes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core.gpu import run_clock
from sixfold.core.gpu import state as gpu_state
from sixfold.core.gpu.ports import GpuHolder, StateStore
from sixfold.core.gpu.state import GpuState, ModelKey, Residency, Ticket
from sixfold.core.humanize import seconds_text

_LOG = logging.getLogger("sixfold.gpu")
# How often a process checks for changes by other processes while it waits, and for unload requests.
POLL_SECONDS = 0.05
# A server that does not respond must not delay the other servers.
_MEASURE_SECONDS, _UNLOAD_SECONDS = 3.0, 30.0


async def _unknown() -> int | None:
    return None


class _Use(msgspec.Struct, eq=False):
    """One ticket of this process, shared by concurrent calls of the same model."""

    ticket: Ticket
    holder: GpuHolder
    granted: asyncio.Future[None]
    calls: int = 0
    began: float = 0.0
    switch_seconds: float | None = None
    task: asyncio.Task[None] | None = None


class GpuFigures(msgspec.Struct):
    """Counters for Prometheus."""

    waited_seconds: float = 0.0
    waits: int = 0
    unloads: int = 0
    memory_retries: int = 0


class GpuLease:
    """The right to use a model on the GPU; `release` ends it."""

    def __init__(self, arbiter: GpuArbiter, use: _Use) -> None:
        self._arbiter = arbiter
        self._use: _Use | None = use

    def ready(self) -> None:
        """Record that the model is loaded, for the estimates of later switches."""
        use = self._use
        if use is not None and use.ticket.loads and use.switch_seconds is None:
            use.switch_seconds = time.monotonic() - use.began

    async def take_all(self, seconds: float) -> None:
        """Wait until the GPU's memory contains only this model; raises `GpuBusy` after `seconds`.

        This is used for a server that ran out of memory. The lease is released meanwhile, so that two such
        leases do not wait for each other.
        """
        if self._use is None:
            return
        holder, model = self._use.holder, self._use.ticket.model
        self.release()
        self._arbiter.figures.memory_retries += 1
        lease = await self._arbiter.acquire(holder, model, seconds, alone=True)
        self._use, lease._use = lease._use, None

    def release(self) -> None:
        """End the use; the model stays in memory until another model needs the space. Idempotent."""
        use, self._use = self._use, None
        if use is not None:
            self._arbiter.leave(use)


class GpuAccess(msgspec.Struct, frozen=True):
    """A holder's access to its GPU, for clients of the holder."""

    arbiter: GpuArbiter
    holder: GpuHolder

    async def acquire(self, model: str, seconds: float) -> GpuLease:
        """Wait for the GPU; raises `GpuBusy` after `seconds`."""
        return await self.arbiter.acquire(self.holder, self.holder.canonical(model), seconds)

    def switch_seconds(self) -> float:
        """Return the estimated seconds to load a model of this holder again; 0 if a model is loaded."""
        return self.arbiter.switch_seconds(self.holder)


class GpuArbiter(msgspec.Struct):
    """The arbiter of one GPU in this process.

    Uses may pass the first waiting use for `turn_seconds`.
    """

    name: str
    store: StateStore
    turn_seconds: float = 20.0
    wait_seconds: float = 1800.0
    # Returns the free bytes of the GPU, or None if they are unknown.
    free_bytes: Callable[[], Awaitable[int | None]] = _unknown
    figures: GpuFigures = msgspec.field(default_factory=GpuFigures)
    _active: dict[tuple[ModelKey, bool], _Use] = {}
    _waiting: dict[tuple[ModelKey, bool], _Use] = {}
    _holders: dict[tuple[str, str], GpuHolder] = {}
    _tasks: set[asyncio.Task[None]] = set()
    _numbers: itertools.count[int] = msgspec.field(default_factory=itertools.count)
    _changed: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    _looked_at: float = 0.0
    _turn_over: bool = False

    def access(self, holder: GpuHolder) -> GpuAccess:
        """Return a holder's access, and register the holder, so that its models can be unloaded."""
        self._holders[holder.name, holder.private] = holder
        return GpuAccess(self, holder)

    def forget(self, holder: GpuHolder) -> None:
        self._holders.pop((holder.name, holder.private), None)

    async def acquire(
        self, holder: GpuHolder, model: str, seconds: float, *, alone: bool = False
    ) -> GpuLease:
        """Wait until a model may be used, exclusively if `alone` is set; raises `GpuBusy` after `seconds`."""
        key = (holder.name, model, holder.private), alone
        use = self._active.get(key)
        if use is None or (alone or self._must_queue()):
            use = self._waiting.get(key)
        if use is None:
            use = self._waiting[key] = self._enqueue(holder, model, alone=alone)
        use.calls += 1
        if use.granted.done() and not use.granted.cancelled() and use.granted.exception() is None:
            return GpuLease(self, use)
        seconds = min(seconds, self.wait_seconds)
        began = time.monotonic()
        try:
            with run_clock.stopped():
                async with asyncio.timeout(seconds):
                    await asyncio.shield(use.granted)
        except TimeoutError:
            self.leave(use)
            raise self._busy(seconds) from None
        except BaseException:
            self.leave(use)
            raise
        self.figures.waited_seconds += time.monotonic() - began
        self.figures.waits += use.ticket.blocked_at is not None
        return GpuLease(self, use)

    def leave(self, use: _Use) -> None:
        """End a call's part in a use; the last one ends the use itself."""
        use.calls -= 1
        if use.calls:
            return
        key = use.ticket.key, use.ticket.alone
        for uses in (self._active, self._waiting):
            if uses.get(key) is use:
                del uses[key]
        was_granted = use.granted.done()
        if use.task is not None and not use.task.done():
            use.task.cancel()
        self._spawn(self._end(use, measure=was_granted))

    def switch_seconds(self, holder: GpuHolder) -> float:
        """Return the estimated seconds to load a model of a holder again; 0 if a model is loaded."""
        state = self._read()
        if any(resident.holder == holder.name for resident in state.residents):
            return 0.0
        measured = [m.seconds for name, m in state.measured.items() if name.startswith(f"{holder.name} ")]
        return max(measured, default=0.0)

    def view(self) -> GpuState:
        """Return the state as of now; do not change it."""
        return self._read()

    async def set_total(self, total: int, free: int | None) -> None:
        """Set the memory of the GPU; `free` bytes determine the memory of other programs while it is idle."""

        def change(state: GpuState) -> None:
            state.total = total
            if free is not None and not state.tickets:
                resident_bytes = sum(resident.size for resident in state.residents)
                state.others = min(max(0, total - free - resident_bytes), total)
            self._advance(state)

        current = self._read()
        own = sum(resident.size for resident in current.residents)
        other_bytes = current.others if free is None or current.tickets else max(0, total - free - own)
        if current.total != total or abs(other_bytes - current.others) > total // 100:
            await self.store.update(change)

    async def refresh(self) -> None:
        """Read the loaded models of the idle holders, including those that other programs have loaded."""
        for holder in list(self._holders.values()):
            report = await self._report(holder)
            state = self._read()
            if report is None or any(_is_of(ticket, holder) for ticket in state.tickets):
                continue
            before = {
                resident.model: resident.size for resident in state.residents if _is_of(resident, holder)
            }
            if _sizes(state, holder, report) != before:
                await self._update(functools.partial(_record, holder=holder, report=report, seconds={}))

    async def watch(self) -> None:
        """Serve requests of other processes to unload models of this process, until canceled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            with contextlib.suppress(OSError):
                await self._unload_requested()

    async def aclose(self) -> None:
        """Wait until all ended uses are recorded."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # -- the queue ---------------------------------------------------------------------------------

    def _enqueue(self, holder: GpuHolder, model: str, *, alone: bool) -> _Use:
        state = self._read()
        measurement = state.measurement(holder.name, model)
        ticket = Ticket(
            id=f"{self.store.owner}-{next(self._numbers)}",
            owner=self.store.owner,
            holder=holder.name,
            model=model,
            size=holder.expected_bytes(model) if measurement is None else measurement.size,
            since=time.monotonic(),
            private=holder.private,
            alone=alone,
            self_managed=holder.self_managed,
        )
        use = _Use(ticket, holder, asyncio.get_running_loop().create_future())
        use.task = asyncio.create_task(self._enter(use), name=f"gpu {holder.name}")
        use.task.add_done_callback(lambda task: _pass_on_error(task, use))
        return use

    async def _enter(self, use: _Use) -> None:
        """Wait until the ticket is granted and its victims are unloaded."""
        try:
            await self._update(lambda state: state.tickets.append(use.ticket))
            await self._wait(use)
        except OSError as error:
            # If the shared state is unavailable, calls are made as if there were no arbiter.
            _LOG.warning("the state of the GPU cannot be shared", extra={"reason": str(error)})
        key = use.ticket.key, use.ticket.alone
        if self._waiting.get(key) is use:
            del self._waiting[key]
            self._active[key] = use
        use.began = use.began or time.monotonic()
        if not use.granted.done():
            use.granted.set_result(None)

    async def _wait(self, use: _Use) -> None:
        while True:
            ticket = self._read().ticket(use.ticket.id)
            if ticket is None:
                # Another process treated this process as ended.
                await self._update(lambda state: state.tickets.append(use.ticket))
                continue
            if ticket.state != "waiting":
                use.ticket, use.began = ticket, time.monotonic()
                if ticket.state == "switching":
                    await self._switch(ticket)
                return
            use.ticket = ticket
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._changed.wait()
            await self._drop_dead()

    async def _switch(self, ticket: Ticket) -> None:
        """Unload the victims of a use, each by the process that can unload it."""
        for victim in ticket.victims:
            holder_name, model, private = victim
            _LOG.info(
                "a model is unloaded to free memory for another model",
                extra={"holder": holder_name, "model": model},
            )
            self.figures.unloads += 1
            try:
                async with asyncio.timeout(_UNLOAD_SECONDS):
                    if private and private != self.store.owner:
                        await self._ask_owner(victim)
                    elif (holder := self._holders.get((holder_name, private))) is not None:
                        await holder.unload(model)
            except TimeoutError:
                _LOG.warning(
                    "a model was not unloaded in time", extra={"holder": holder_name, "model": model}
                )
            await self._update(functools.partial(gpu_state.remove_resident, key=victim))
        await self._update(functools.partial(_set_running, ticket_id=ticket.id))

    async def _ask_owner(self, victim: ModelKey) -> None:
        """Request that the process that holds a model unload it."""

        def mark(state: GpuState) -> None:
            resident = state.resident(victim)
            if resident is not None:
                resident.unload = True

        await self._update(mark)
        while self._read().resident(victim) is not None:
            await asyncio.sleep(POLL_SECONDS)
            await self._drop_dead()

    async def _unload_requested(self) -> None:
        for resident in self._read().residents:
            holder = self._holders.get((resident.holder, resident.private))
            if resident.unload and resident.private == self.store.owner:
                if holder is not None:
                    await holder.unload(resident.model)
                await self._update(functools.partial(gpu_state.remove_resident, key=resident.key))

    async def _end(self, use: _Use, *, measure: bool) -> None:
        if use.task is not None:
            await asyncio.gather(use.task, return_exceptions=True)
        ticket = use.ticket
        report = await self._report(use.holder) if measure and _must_measure(ticket) else None

        def change(state: GpuState) -> None:
            gpu_state.withdraw(state, ticket.id, time.monotonic())
            if report is not None:
                seconds = {ticket.model: use.switch_seconds}
                _record(state, use.holder, report, seconds)

        try:
            await self._update(change)
        except OSError as error:
            _LOG.warning("the end of a GPU use could not be recorded", extra={"reason": str(error)})

    # -- the shared state --------------------------------------------------------------------------

    async def _update(self, change: Callable[[GpuState], None]) -> None:
        def apply(state: GpuState) -> None:
            change(state)
            gpu_state.drop_owners(state, self._dead(state))
            self._advance(state)

        await self.store.update(apply)
        self._changed.set()

    async def _drop_dead(self) -> None:
        if self._dead(self._read()):
            await self._update(_unchanged)

    def _advance(self, state: GpuState) -> None:
        gpu_state.advance(state, self.turn_seconds, time.monotonic())

    def _dead(self, state: GpuState) -> set[str]:
        return {owner for owner in gpu_state.owners(state) if not self.store.is_alive(owner)}

    def _read(self) -> GpuState:
        try:
            return self.store.read()
        except OSError:
            return GpuState()

    def _must_queue(self) -> bool:
        """Return whether a call of a model in use must wait, because another model's turn is due."""
        now = time.monotonic()
        if now - self._looked_at > POLL_SECONDS:
            self._looked_at = now
            self._turn_over = gpu_state.is_turn_over(self._read(), self.turn_seconds, now)
        return self._turn_over

    async def _report(self, holder: GpuHolder) -> _Report | None:
        """Return the loaded models of a holder, or None if it does not respond."""
        residents = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MEASURE_SECONDS):
                residents = await holder.residents()
        if residents is None:
            return None
        unstated = any(size is None for size in residents.values())
        return _Report(residents, await self.free_bytes() if unstated else None)

    def _busy(self, seconds: float) -> errors.GpuBusy:
        users = " and ".join(gpu_state.names_in_use(self._read())) or "another model"
        error = errors.GpuBusy(
            f"The GPU was in use by {users} for the {seconds_text(round(seconds, 3))} "
            "that this call may wait: try again later"
        )
        error.retry_after = max(1, round(self.turn_seconds))
        return error

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Report(msgspec.Struct, frozen=True):
    """The models of a holder; `free` is the GPU's free memory if the holder does not state all sizes."""

    residents: Mapping[str, int | None]
    free: int | None


def _is_of(each: Residency | Ticket, holder: GpuHolder) -> bool:
    return (each.holder, each.private) == (holder.name, holder.private)


def _must_measure(ticket: Ticket) -> bool:
    return ticket.loads or ticket.size is None or ticket.alone


def _sizes(state: GpuState, holder: GpuHolder, report: _Report) -> dict[str, int]:
    """Return the size of each model: as stated, measured or estimated, or else the unattributed memory."""
    sizes: dict[str, int] = {}
    remaining = state.capacity
    if report.free is not None:
        remaining -= report.free + sum(
            resident.size for resident in state.residents if not _is_of(resident, holder)
        )
    for reported, size in report.residents.items():
        model = reported or _last_used(state, holder)
        measurement = state.measurement(holder.name, model)
        size = size if size is not None or measurement is None else measurement.size
        size = holder.expected_bytes(model) if size is None else size
        sizes[model] = max(0, remaining) if size is None else size
    return sizes


def _last_used(state: GpuState, holder: GpuHolder) -> str:
    residents = [resident for resident in state.residents if _is_of(resident, holder)]
    return max(residents, key=lambda each: each.used_at).model if residents else ""


def _record(state: GpuState, holder: GpuHolder, report: _Report, seconds: Mapping[str, float | None]) -> None:
    sizes = _sizes(state, holder, report)
    gpu_state.set_residents(state, holder.name, holder.private, sizes, time.monotonic())
    for model, size in sizes.items():
        # If servers do not report the size of a model, it is a guess until the free memory is known.
        if report.free is not None or report.residents.get(model) is not None or "" in report.residents:
            state.learn(holder.name, model, size, seconds.get(model))


def _pass_on_error(task: asyncio.Task[None], use: _Use) -> None:
    if not task.cancelled() and (error := task.exception()) is not None and not use.granted.done():
        use.granted.set_exception(error)


def _unchanged(_state: GpuState) -> None:
    """Change nothing: every update removes the entries of ended processes."""


def _set_running(state: GpuState, ticket_id: str) -> None:
    ticket = state.ticket(ticket_id)
    if ticket is not None:
        ticket.state, ticket.victims = "running", []
