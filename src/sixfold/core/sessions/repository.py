"""Sessions in the database: their records, state transitions and charges.

A session is charged in slices of one minute, from `ready` to its end. Each slice has a separate hold,
`<session>:<number>`. The first hold is created with the session, and each following hold in the transaction
that captures the previous one; the last hold is captured for the time used. If a session fails, its open
slice is released, but slices captured earlier remain charged because they were delivered. While a session is
paused, its slice does not advance: the pause is added to the start of the slice when the session continues.
Time in which the server or the worker was stopped, and which the session skipped, is added as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import charges, keys, ledger
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.metering import run_time
from sixfold.core.clock import SECOND_US
from sixfold.core.database import Query, Row, Transaction, encode_json, now, one, to_struct
from sixfold.core.input_limits import json_decoding
from sixfold.core.sessions.states import TERMINAL, TRANSITIONS, SessionEvent, SessionState

SLICE_US = 60 * SECOND_US
# Time after the end of a slice beyond which the database's clock must have been changed: a server renews each
# slice when it ends, or when the database responds again, and skips the time in which it was stopped.
_MAX_LATE_US = 5 * SLICE_US
_MAX_SWEEP = 100
_DRAFT_COLUMNS = (
    "account_id",
    "request_id",
    "model",
    "engine",
    "quality",
    "hardware",
    "fps",
    "rate",
    "list_rate",
    "idle_us",
    "credential",
    "credential_id",
)


class SessionRecord(msgspec.Struct, frozen=True):
    """A stored session; times are in epoch µs, and amounts in micro-dollars."""

    id: str
    account_id: str
    model: str
    engine: str
    quality: str
    hardware: str
    inputs: dict[str, Any]
    fps: int
    rate: int
    idle_us: int
    state: SessionState
    reason: str | None
    holder: str
    slice: int
    slice_amount: int
    slice_at: int | None
    cost: int
    created_at: int
    ready_at: int | None
    closed_at: int | None
    token_hash: bytes
    resume_hash: bytes
    list_rate: int | None = None
    credential: str | None = None
    credential_id: str | None = None
    paused_at: int | None = None

    @classmethod
    def of(cls, row: Row) -> SessionRecord:
        inputs = json_decoding.decode_whole(row["inputs"])
        return to_struct(cls, row, inputs=inputs, state=SessionState(row["state"]))

    @property
    def is_terminal(self) -> bool:
        """Whether the session has ended."""
        return self.state in TERMINAL

    @property
    def is_paused(self) -> bool:
        """Whether the session waits for an input and is not charged."""
        return self.paused_at is not None

    def slice_used_us(self, now_us: int) -> int:
        """Return the charged µs of the current slice."""
        return min(SLICE_US, self._slice_age_us(now_us))

    def slice_left_us(self, now_us: int) -> int:
        """Return the µs until the end of the current slice, regardless of the server that began the slice."""
        return SLICE_US - self.slice_used_us(now_us) if self.slice_amount else SLICE_US

    def running_us(self, now_us: int) -> int:
        """Return the µs since the session became ready, without its pauses."""
        return self.slice * SLICE_US + self._slice_age_us(now_us)

    def cost_at(self, now_us: int) -> int:
        """Return the cost, in micro-dollars, if the session ended at `now_us`."""
        return self.cost + min(self.slice_amount, usage_micros(self.rate, self.slice_used_us(now_us)))

    def _slice_age_us(self, now_us: int) -> int:
        if self.slice_at is None:
            return 0
        return max(0, (self.paused_at or self.closed_at or now_us) - self.slice_at)

    def opens_to(self, token: str) -> bool:
        """Return whether `token` is the session's token or resume token."""
        return keys.hash_of(token) in {self.token_hash, self.resume_hash}

    def is_resumed_by(self, token: str) -> bool:
        """Return whether `token` is the session's resume token."""
        return keys.hash_of(token) == self.resume_hash


class SessionDraft(msgspec.Struct, frozen=True):
    """A session to create.

    `rate` is in micro-dollars per hour, and `list_rate` is the list price if less is charged. `limit` is the
    number of open sessions that an account may have, `payer` the key with a budget, `credential` the
    credential whose revocation ends the session, and `credential_id` that of the tenant.
    """

    account_id: str
    request_id: str
    model: str
    engine: str
    quality: str
    hardware: str
    inputs: dict[str, Any]
    fps: int
    rate: int
    idle_us: int
    limit: int
    payer: Payer | None = None
    list_rate: int | None = None
    credential: str | None = None
    credential_id: str | None = None


class SessionLease(msgspec.Struct, frozen=True):
    """The server that holds a session, and the µs after which its lease expires without a heartbeat."""

    holder: str
    life_us: int


class LeaseLost(Exception):
    """Another server has taken over the session."""


class OpenedSession(msgspec.Struct, frozen=True):
    """A new session and its two secrets, which are not returned anywhere else."""

    session: SessionRecord
    token: str
    resume_token: str


def usage_micros(rate: int, us: int) -> int:
    """Return the cost of `us` microseconds at `rate` micro-dollars per hour, rounded up."""
    return charges.total((run_time(us, rate),))


def create(draft: SessionDraft, lease: SessionLease) -> Transaction[OpenedSession]:
    """Insert a session and hold its first slice.

    Raises `InsufficientCredits`, and `TooManyRequests` if the account already has `draft.limit` open
    sessions.
    """
    rows = yield Query("session_count", {"account_id": draft.account_id})
    if rows[0]["total"] >= draft.limit:
        raise errors.TooManyRequests(
            f"An account may have at most {draft.limit} open sessions: close one first", retry_after=5
        )
    session_id, token, resume = ids.new("sess"), ids.secret("sess"), ids.secret("sess")
    amount = usage_micros(draft.rate, SLICE_US)
    yield from ledger.hold_price(draft.account_id, hold_of(session_id, 0), amount, draft.payer)
    rows = yield Query(
        "session_insert",
        {
            **{name: getattr(draft, name) for name in _DRAFT_COLUMNS},
            "id": session_id,
            "inputs": encode_json(draft.inputs),
            "token_hash": keys.hash_of(token),
            "resume_hash": keys.hash_of(resume),
            "state": SessionState.REQUESTED,
            "holder": lease.holder,
            "lease": lease.life_us,
            "slice_amount": amount,
        },
    )
    return OpenedSession(SessionRecord.of(rows[0]), token, resume)


def find(session_id: str, tenant: Tenant) -> Transaction[SessionRecord]:
    """Return a session of a tenant; raises `NotFound`."""
    row = yield from one("session_of", id=session_id, **tenant.row)
    if row is None:
        raise errors.NotFound(f"Session {session_id[:80]} not found")
    return SessionRecord.of(row)


def by_id(session_id: str) -> Transaction[SessionRecord | None]:
    """Return a session without a tenant check; the caller must verify its token."""
    row = yield from one("session_by_id", id=session_id)
    return SessionRecord.of(row) if row is not None else None


def transition(
    session_id: str, event: SessionEvent, lease: SessionLease, reason: str | None = None
) -> Transaction[SessionRecord]:
    """Apply `event` together with its charges, if the state allows the event.

    Raises `LeaseLost` if the lease does not hold the session, unless the event is `LOSE`.
    """
    session = yield from get(session_id)
    if session.holder != lease.holder and event is not SessionEvent.LOSE:
        raise LeaseLost(session_id)
    next_state = TRANSITIONS.get((session.state, event))
    if next_state is None:
        return session
    rows = yield Query(
        "session_move",
        {
            "id": session_id,
            "from_state": session.state,
            "state": next_state,
            "reason": reason,
            "lease": lease.life_us,
        },
    )
    session = SessionRecord.of(rows[0])
    if event is SessionEvent.READY:
        session = SessionRecord.of((yield Query("session_ready", {"id": session_id}))[0])
    if event is SessionEvent.PAUSE and not session.is_paused:
        session = SessionRecord.of(
            (yield Query("session_pause", {"id": session_id, "at": (yield from now())}))[0]
        )
    if event is SessionEvent.INPUT and session.is_paused:
        session = SessionRecord.of((yield Query("session_resume", {"id": session_id}))[0])
    if next_state in TERMINAL:
        session = yield from _end(session, paid=event is SessionEvent.END)
    return session


def renew_slice(session_id: str, payer: Payer | None, elapsed_us: int = 0) -> Transaction[SessionRecord]:
    """Capture the finished slice, if any, and hold the next one, which may also be finished.

    `elapsed_us` is the time since this server last renewed the session, by its own clock. Raises
    `InsufficientCredits` or `BudgetExceeded` if the next slice cannot be paid, and `InsufficientCredits` for
    a free session of an account below zero; the caller must then call `end_last_slice`.
    """
    session = yield from get(session_id)
    now_us = yield from now()
    if not (session.is_terminal or session.slice_amount):
        yield from ledger.require_not_below_zero(session.account_id)
    age_us = now_us - (session.slice_at or now_us)
    if session.slice_amount and not session.is_paused and not 0 <= age_us <= _MAX_LATE_US + elapsed_us:
        session = SessionRecord.of((yield Query("session_restart_slice", {"id": session_id}))[0])
    if not session.is_terminal and _is_over(session, now_us):
        micros = yield from _capture(session, SLICE_US)
        amount = usage_micros(session.rate, SLICE_US)
        yield from ledger.hold(session.account_id, hold_of(session.id, session.slice + 1), amount, payer)
        session = yield from _write_slice(session, micros, amount)
    return session


def skip_time(session_id: str, us: int, lease: SessionLease) -> Transaction[None]:
    """Exclude `us` µs, in which the session did not run, from its current slice.

    Has no effect if the lease does not hold the session.
    """
    yield Query("session_skip", {"id": session_id, "us": us, "holder": lease.holder})


def end_last_slice(session_id: str, lease: SessionLease) -> Transaction[SessionRecord]:
    """Capture the finished slice and close the session without a new hold."""
    session = yield from get(session_id)
    if not session.is_terminal and _is_over(session, (yield from now())):
        micros = yield from _capture(session, SLICE_US)
        yield from _write_slice(session, micros, 0)
    return (yield from transition(session_id, SessionEvent.CLOSE, lease, "no credit"))


def end_lost(
    holder: str, running: Sequence[str] = (), *, lapsed_only: bool
) -> Transaction[tuple[SessionRecord, ...]]:
    """End sessions that do not run on this server: all of them, or only those with an expired lease.

    They include own sessions that are not `running`, because the result of their creation was lost.
    """
    now_us = yield from now()
    expired_before = now_us if lapsed_only else 2**62
    query = {"holder": holder, "ids": encode_json(running), "before": expired_before, "limit": _MAX_SWEEP}
    rows = yield Query("session_lost", query)
    expired: list[SessionRecord] = []
    for row in rows:
        expired.append(
            (yield from transition(str(row["id"]), SessionEvent.LOSE, SessionLease(holder, 0), "lost"))
        )
    return tuple(expired)


def heartbeat(lease: SessionLease, running: Sequence[str]) -> Transaction[int]:
    """Extend the leases of a holder's running sessions and return their number."""
    held = {"holder": lease.holder, "lease": lease.life_us, "ids": encode_json(running)}
    return len((yield Query("session_heartbeat", held)))


def get(session_id: str) -> Transaction[SessionRecord]:
    """Return the current record of a session; raises `NotFound`."""
    session = yield from by_id(session_id)
    if session is None:
        raise errors.NotFound(f"Session {session_id[:80]} not found")
    return session


def _is_over(session: SessionRecord, now_us: int) -> bool:
    return session.slice_amount > 0 and session.slice_used_us(now_us) >= SLICE_US


def _write_slice(session: SessionRecord, captured: int, amount: int) -> Transaction[SessionRecord]:
    values = {"id": session.id, "slice": session.slice, "life": SLICE_US, "captured": captured}
    return SessionRecord.of((yield Query("session_slice", {**values, "amount": amount}))[0])


def _end(session: SessionRecord, *, paid: bool) -> Transaction[SessionRecord]:
    session = SessionRecord.of((yield Query("session_end", {"id": session.id}))[0])
    micros = 0
    if session.slice_amount and paid and session.slice_at is not None and session.closed_at is not None:
        micros = yield from _capture(session, session.slice_used_us(session.closed_at))
    elif session.slice_amount:
        yield from ledger.release(hold_of(session.id, session.slice))
    yield Query("session_forget", {"id": session.id})
    return SessionRecord.of((yield Query("session_settle", {"id": session.id, "captured": micros}))[0])


def _capture(session: SessionRecord, used_us: int) -> Transaction[int]:
    """Charge the used time of a slice, at most its hold; return the charge in micro-dollars."""
    charge = charges.calculate((run_time(used_us, session.rate),), session.slice_amount)
    description = f"{session.model}: minute {session.slice + 1}"
    entry = ledger.LedgerEntry("session", description, session.id, charges.encode(charge))
    yield from ledger.capture(hold_of(session.id, session.slice), charge.amount, entry)
    return charge.amount


def hold_of(session_id: str, number: int) -> str:
    return f"{session_id}:{number}"
