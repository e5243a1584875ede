"""The state of one GPU, which all processes of a machine share, and the rule for granting its use.

A use needs a model of a holder (a server, or the workers of a process) in the GPU's memory. Uses that fit run
together. Others wait in the order of their arrival, and idle models are unloaded before they begin. While the
first use in the queue waits, uses that fit may pass it only for the length of a turn, so that every use is
granted once the earlier uses have ended. All times are in seconds of the system's monotonic clock, sizes in
bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

import msgspec

# A holder, a model, and the only process that can unload the model (empty for any).
ModelKey = tuple[str, str, str]
# Weight of the newest switch in the moving average.
_WEIGHT = 0.5
MAX_LEARNED = 500


class Residency(msgspec.Struct):
    """A model in the GPU's memory. `unload` requests that the process `private` unload it."""

    holder: str
    model: str
    size: int
    private: str = ""
    used_at: float = 0.0
    unload: bool = False

    @property
    def key(self) -> ModelKey:
        """The identity of the model."""
        return self.holder, self.model, self.private


class Ticket(msgspec.Struct):
    """A use of a model by the process `owner`, for one or more calls.

    If `size` is None (unknown), the use has the GPU alone, as if `alone` is set. A `self_managed` holder
    unloads its own models to free memory. `loads` is True if the model was not in memory when the use was
    granted.
    """

    id: str
    owner: str
    holder: str
    model: str
    size: int | None
    since: float
    private: str = ""
    alone: bool = False
    self_managed: bool = False
    state: Literal["waiting", "switching", "running"] = "waiting"
    blocked_at: float | None = None
    loads: bool = False
    victims: list[ModelKey] = []

    @property
    def key(self) -> ModelKey:
        """The identity of the model."""
        return self.holder, self.model, self.private

    def need(self, capacity: int) -> int:
        """Return the bytes that the use needs, at most the whole GPU."""
        return capacity if self.alone or self.size is None else min(self.size, capacity)


class Measurement(msgspec.Struct):
    """Measurements of a model: its size in bytes, and the seconds until it is ready after a switch."""

    size: int
    seconds: float = 0.0


class GpuState(msgspec.Struct):
    """The uses, resident models and measurements of a GPU.

    `total` and `others`, the memory used by other programs, are in bytes.
    """

    total: int = 0
    others: int = 0
    tickets: list[Ticket] = []
    residents: list[Residency] = []
    measured: dict[str, Measurement] = {}

    @property
    def capacity(self) -> int:
        """The bytes that all uses together may need."""
        return max(0, self.total - self.others)

    def resident(self, key: ModelKey) -> Residency | None:
        return next((resident for resident in self.residents if resident.key == key), None)

    def ticket(self, ticket_id: str) -> Ticket | None:
        """Return a ticket, or None if it was withdrawn or its process has ended."""
        return next((ticket for ticket in self.tickets if ticket.id == ticket_id), None)

    def measurement(self, holder: str, model: str) -> Measurement | None:
        return self.measured.get(f"{holder} {model}")

    def learn(self, holder: str, model: str, size: int, seconds: float | None = None) -> None:
        """Record the size of a model in bytes, and the duration of a switch to it."""
        measurement = self.measurement(holder, model)
        before = measurement.seconds if measurement is not None else 0.0
        if seconds is not None:
            before = before + _WEIGHT * (seconds - before) if before else seconds
        if measurement is None and len(self.measured) >= MAX_LEARNED:
            del self.measured[next(iter(self.measured))]
        self.measured[f"{holder} {model}"] = Measurement(size, before)


def active(state: GpuState) -> dict[ModelKey, int]:
    """Return the models in use, with the bytes that they need."""
    sizes: dict[ModelKey, int] = {}
    for ticket in state.tickets:
        if ticket.state != "waiting":
            sizes[ticket.key] = max(sizes.get(ticket.key, 0), ticket.need(state.capacity))
    return sizes


def is_turn_over(state: GpuState, turn_seconds: float, now: float) -> bool:
    """Return whether the first use in the queue has waited so long that other uses must not pass it."""
    head = next((ticket for ticket in state.tickets if ticket.state == "waiting"), None)
    return head is not None and head.blocked_at is not None and now - head.blocked_at >= turn_seconds


def advance(state: GpuState, turn_seconds: float, now: float) -> None:
    """Grant the uses that may begin now. Models are unloaded for only one use at a time."""
    is_switching = any(ticket.state == "switching" for ticket in state.tickets)
    sizes, head = active(state), None
    for ticket in [ticket for ticket in state.tickets if ticket.state == "waiting"]:
        fits = _fits(state, ticket, sizes)
        if fits and (not is_switching or _joins(state, ticket, sizes)):
            _grant(state, ticket, sizes, now)
            is_switching = is_switching or ticket.state == "switching"
        elif head is None:
            head = ticket
            # The turn of the uses in progress ends some time after this use became the first in the queue.
            if not fits and ticket.blocked_at is None:
                ticket.blocked_at = now
            if is_turn_over(state, turn_seconds, now):
                return


def _fits(state: GpuState, ticket: Ticket, sizes: dict[ModelKey, int]) -> bool:
    other_bytes = sum(size for key, size in sizes.items() if key != ticket.key)
    own_bytes = max(ticket.need(state.capacity), sizes.get(ticket.key, 0))
    # A model larger than the GPU runs alone, because its server can keep a part in main memory.
    return other_bytes == 0 or other_bytes + own_bytes <= state.capacity


def _joins(state: GpuState, ticket: Ticket, sizes: dict[ModelKey, int]) -> bool:
    """Return whether a use needs no more memory than the running uses of the same model."""
    return ticket.need(state.capacity) <= sizes.get(ticket.key, -1) and any(
        each.key == ticket.key and each.state == "running" for each in state.tickets
    )


def _grant(state: GpuState, ticket: Ticket, sizes: dict[ModelKey, int], now: float) -> None:
    resident = state.resident(ticket.key)
    ticket.loads = resident is None and ticket.key not in sizes
    joins = _joins(state, ticket, sizes)
    sizes[ticket.key] = max(ticket.need(state.capacity), sizes.get(ticket.key, 0))
    ticket.victims = [] if joins else _victims(state, ticket, sizes)
    ticket.state = "switching" if ticket.victims else "running"
    if resident is not None:
        resident.used_at, resident.unload = now, False


def _victims(state: GpuState, ticket: Ticket, sizes: dict[ModelKey, int]) -> list[ModelKey]:
    """Return the idle models to unload, least recently used first, until the models in use fit."""
    idle = [
        resident
        for resident in state.residents
        if resident.key not in sizes and not _makes_room(ticket, resident)
    ]
    excess = sum(sizes.values()) + sum(resident.size for resident in idle) - state.capacity
    victims: list[ModelKey] = []
    for each in sorted(idle, key=lambda resident: resident.used_at):
        if excess <= 0:
            break
        if each.size > 0:
            excess -= each.size
            victims.append(each.key)
    return victims


def _makes_room(ticket: Ticket, resident: Residency) -> bool:
    return ticket.self_managed and (ticket.holder, ticket.private) == (resident.holder, resident.private)


def remove_resident(state: GpuState, key: ModelKey) -> None:
    """Record that a model is no longer in memory."""
    state.residents = [resident for resident in state.residents if resident.key != key]


def withdraw(state: GpuState, ticket_id: str, now: float) -> None:
    """Remove a ticket; the model of a use that had begun stays in memory."""
    ticket = state.ticket(ticket_id)
    if ticket is None:
        return
    state.tickets.remove(ticket)
    if ticket.state != "running":
        return
    resident = state.resident(ticket.key)
    if resident is None:
        size = state.capacity if ticket.size is None else ticket.size
        state.residents.append(
            Residency(ticket.holder, ticket.model, size, private=ticket.private, used_at=now)
        )
    else:
        resident.used_at = now
        resident.size = resident.size if ticket.size is None else ticket.size


def set_residents(state: GpuState, holder: str, private: str, sizes: dict[str, int], now: float) -> None:
    """Replace the models of a holder with those that it reports, and update the sizes of models in use."""
    residents = [
        resident for resident in state.residents if (resident.holder, resident.private) != (holder, private)
    ]
    before = {resident.key: resident for resident in state.residents}
    for model, size in sizes.items():
        old = before.get((holder, model, private))
        used_at, unload = (now, False) if old is None else (old.used_at, old.unload)
        residents.append(Residency(holder, model, size, private=private, used_at=used_at, unload=unload))
    state.residents = residents


def drop_owners(state: GpuState, dead: Collection[str]) -> bool:
    """Remove the uses and private models of ended processes; return whether any were removed."""
    if not dead:
        return False
    count = len(state.tickets) + len(state.residents)
    for ticket in [ticket for ticket in state.tickets if ticket.owner in dead]:
        # A server may still be loading its model.
        withdraw(state, ticket.id, ticket.since)
    state.residents = [resident for resident in state.residents if resident.private not in dead]
    return len(state.tickets) + len(state.residents) != count


def owners(state: GpuState) -> set[str]:
    """Return the processes with uses or models on the GPU."""
    owner_ids = {ticket.owner for ticket in state.tickets} | {
        resident.private for resident in state.residents
    }
    return owner_ids - {""}


def names_in_use(state: GpuState) -> Sequence[str]:
    """Return descriptions of the models in use."""
    return [f"{holder} ({model})" if model else holder for holder, model, _ in active(state)]
