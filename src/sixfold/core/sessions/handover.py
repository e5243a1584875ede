"""Transfer of sessions between servers that share a database and store the sessions' checkpoints.

The payer of a session is read from the database for each slice, so that any server can charge the payer
within the current budgets.

The server that accepts the session's socket takes over the session. The previous server notices when it next
writes a checkpoint or a state transition (`repository.LeaseLost`).
"""

from __future__ import annotations

import msgspec

from sixfold import errors
from sixfold.core.accounts import accounts, keys
from sixfold.core.accounts.limits import budgets
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.database import Database, Query, Transaction, now, one
from sixfold.core.sessions import repository as sessions
from sixfold.core.sessions.repository import SessionLease, SessionRecord
from sixfold.core.sessions.states import SessionEvent


class Checkpoint(msgspec.Struct, frozen=True):
    """The state of a session after tick `seq`, encoded by its worker."""

    seq: int
    state: bytes


class Handover(msgspec.Struct, frozen=True):
    """A session that this server has taken over, with its last checkpoint."""

    session: SessionRecord
    checkpoint: Checkpoint | None


def save_checkpoint(session_id: str, lease: SessionLease, checkpoint: Checkpoint) -> Transaction[bool]:
    """Store a checkpoint; return False if another server holds the session or the session has ended."""
    values = {"id": session_id, "holder": lease.holder, "seq": checkpoint.seq, "standing": checkpoint.state}
    return bool((yield Query("session_note", values)))


def take_over(session_id: str, lease: SessionLease) -> Transaction[Handover]:
    """Take over a session, unless it has ended. Raises `NotFound`."""
    yield Query("session_take", {"id": session_id, "holder": lease.holder, "lease": lease.life_us})
    session = yield from sessions.get(session_id)
    row = yield from one("session_standing", id=session_id)
    checkpoint = None if row is None else Checkpoint(row["seq"], bytes(row["standing"]))
    return Handover(session, checkpoint)


def close(session_id: str, lease: SessionLease) -> Transaction[SessionRecord]:
    """Close a session, regardless of its server. Raises `NotFound`."""
    yield from take_over(session_id, lease)
    yield from sessions.transition(session_id, SessionEvent.CLOSE, lease, "closed")
    return (yield from sessions.transition(session_id, SessionEvent.END, lease))


def renew_slice(session_id: str, elapsed_us: int = 0) -> Transaction[SessionRecord]:
    """Renew a slice as `repository.renew_slice` does, with the current budgets of the payer."""
    session = yield from sessions.get(session_id)
    return (yield from sessions.renew_slice(session_id, (yield from _payer(session)), elapsed_us))


async def renew_slices(
    database: Database, session_id: str, lease: SessionLease, elapsed_us: int
) -> tuple[SessionRecord, int]:
    """Charge all finished slices; return the session and the database's time in epoch µs.

    Several slices are finished if the database has failed for minutes. Each is charged separately, so that as
    many are charged as the credit and the budgets allow; the session then closes.
    """
    while True:
        try:
            session = await database.write(renew_slice(session_id, elapsed_us))
        except (errors.InsufficientCredits, errors.BudgetExceeded):
            session = await database.write(sessions.end_last_slice(session_id, lease))
        now_us = await database.read(now())
        if session.is_terminal or session.slice_left_us(now_us):
            return session, now_us


def _payer(session: SessionRecord) -> Transaction[Payer | None]:
    """Return the payer of a session's next slice: the last slice's key, or else the account's budgets."""
    row = yield from one("session_key", hold=sessions.hold_of(session.id, session.slice))
    if row is None:
        return None
    principal = yield from keys.by_id(str(row["key_id"] or "").partition(" ")[0])
    if principal is None:
        principal = (yield from accounts.by_id(session.account_id)).owner
    return budgets.payer_of(principal)
