"""Calls in the store: begun with their hold, ended with their money, read again by whoever made them.

A call is written once, when it has ended. One that costs something is known by its hold before it is made,
which tells whose it is and of what, should nobody be there to end it. Its id is its request's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import charges, ledger, ledger_batches
from sixfold.core.accounts.limits import Payer
from sixfold.core.database import Query, Row, Transaction, Value, now
from sixfold.core.gateway.usage import NOTHING, TokenUsage

CALL_US = 60 * 1_000_000  # what a call may outlast its own limit by before its hold is given back
_MAX_WORDS, _MAX_ERROR = 20_000, 300
_ABANDONED = "The server stopped while this ran"
_LAST_ID = "~"
_encode = msgspec.json.Encoder().encode
_MADE = frozenset({"embeddings", "images", "edits", "speech", "transcriptions"})  # faces that do not talk


class CallRecord(msgspec.Struct):
    """One call; `held` in micro-dollars, since `held_at` (epoch µs), `counted` in a key's budgets."""

    id: str
    account_id: str
    key_id: str | None
    face: str
    model: str
    target: str
    streamed: bool
    held: int = 0
    held_at: int = 0
    counted: bool = False
    attempts: int = 0
    first_us: int = 0
    total_us: int = 0
    request: str | None = None
    response: str | None = None


class CallOutcome(msgspec.Struct, frozen=True):
    """How a call ended: succeeded, left (by its caller, in the middle) or failed; `cost` in micro-dollars.

    `charge` has the lines that add up to it, as JSON.
    """

    state: str
    usage: TokenUsage = NOTHING
    cost: int = 0
    error: str = ""
    counted_by: str = ""
    charge: str = charges.NOTHING


def begin(call: CallRecord, holder: str, payer: Payer | None) -> Transaction[None]:
    """Hold a call's money; raises `InsufficientCredits` or `BudgetExceeded`, and then nothing was written."""
    yield from ledger.hold(call.account_id, call.id, call.held, payer, _about(call, holder))
    call.held_at = yield from now()


def finish(call: CallRecord, ending: CallOutcome, holder: str) -> Transaction[None]:
    """End a call that was begun, and charge what it cost; nothing when a sweep ended it before."""
    if (yield Query("gateway_call_finish", _row(call, ending, holder))):
        yield from ledger.capture(call.id, ending.cost, _entry(call, ending))


def insert(call: CallRecord, ending: CallOutcome, holder: str) -> Transaction[None]:
    """Write a call that was free."""
    yield Query("gateway_call_insert", _row(call, ending, holder))


def write_batch(
    begun: Sequence[tuple[CallRecord, Payer | None]],
    ended: Sequence[tuple[CallRecord, CallOutcome]],
    holder: str,
    whole: Sequence[tuple[CallRecord, Payer | None, CallOutcome]] = (),
) -> Transaction[None]:
    """What `begin`, `finish` and `insert` do, for many calls at once: all of it or nothing.

    `whole` are those that ended before they were held. Raises what `begin` and `finish` raise; where the
    calls do not fit together, each may still fit by itself.
    """
    if begun:
        moment = yield from ledger_batches.hold_all(
            [
                ledger_batches.HoldRequest(call.account_id, call.id, call.held, payer, _about(call, holder))
                for call, payer in begun
            ]
        )
        for call, _ in begun:
            call.held_at = moment
    rows = [_row(call, ending, holder) for call, ending in ended]
    rows += [_row(call, ending, holder) for call, _, ending in whole]
    if rows:
        yield Query("gateway_call_insert", {}, rows)
    charges = [_charge(call, ending) for call, ending in ended if call.held]
    if charges:
        yield from ledger_batches.capture_all(charges)
    purchases = [_purchase(call, payer, ending) for call, payer, ending in whole if ending.cost]
    if purchases:
        yield from ledger_batches.charge_all(purchases)


def sweep(holder: str, before: int, suspects: frozenset[str] | None) -> Transaction[frozenset[str]]:
    """Free the holds of calls that were begun before `before`, and of those whose server is gone.

    Gives the servers that are gone now. One that is not among `suspects`, those of the last look, gets
    another look, as it may have lost its database for a moment; without a last look it gets none.
    """
    rows = yield Query("find_orphaned_holds", {"holder": holder, "before": before})
    for row in rows:
        if row["late"] or suspects is None or row["holder"] in suspects:
            ended = yield Query(
                "gateway_call_abandon", {"id": row["id"], "error": _ABANDONED, "charge": charges.NOTHING}
            )
            if ended:
                yield from ledger.release(str(row["id"]))
    return frozenset(str(row["holder"]) for row in rows if row["holder"] != holder)


def forget(before: int) -> Transaction[int]:
    """Forget calls that were begun before `before` (epoch µs); gives how many."""
    return len((yield Query("gateway_call_forget", {"id": ids.earliest("req", before), "before": before})))


@dataclass(frozen=True, slots=True)
class CallFilter:
    """Which calls are asked for; an empty text takes all. `text` is looked for anywhere."""

    model: str = ""
    state: str = ""
    key_id: str = ""
    text: str = ""


def page(
    account_id: str, wanted: CallFilter, limit: int, cursor: str | None
) -> Transaction[tuple[tuple[Row, ...], str | None]]:
    """An account's calls, newest first, and the next page's cursor; raises `BadRequest` for a bad one."""
    if cursor is not None and not cursor.startswith("req_"):
        raise errors.BadRequest("Invalid cursor")
    escaped = wanted.text.casefold().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    rows = yield Query(
        "gateway_call_page",
        {
            "account_id": account_id,
            "before": cursor or _LAST_ID,
            "model": wanted.model,
            "state": wanted.state,
            "key_id": wanted.key_id,
            "pattern": f"%{escaped}%",
            "limit": limit + 1,
        },
    )
    found = tuple(rows[:limit])
    return found, str(found[-1]["id"]) if len(rows) > limit else None


def _charge(call: CallRecord, ending: CallOutcome) -> ledger_batches.Capture:
    key_id = call.key_id if call.counted else None
    return ledger_batches.Capture(
        call.account_id, call.id, call.held, ending.cost, _entry(call, ending), key_id, call.held_at
    )


def _purchase(call: CallRecord, payer: Payer | None, ending: CallOutcome) -> ledger_batches.DirectCharge:
    return ledger_batches.DirectCharge(
        call.account_id, call.id, call.held, ending.cost, _entry(call, ending), payer
    )


def _entry(call: CallRecord, ending: CallOutcome) -> ledger.LedgerEntry:
    kind = "charge" if call.face in _MADE else "chat"
    return ledger.LedgerEntry(kind, f"{call.model} by {call.target}", call.id, ending.charge)


def _about(call: CallRecord, holder: str) -> str:
    """What a hold tells of its call, should nobody end it."""
    told = _encode(
        {
            "holder": holder,
            "key_id": call.key_id,
            "face": call.face,
            "model": call.model,
            "target": call.target,
            "streamed": int(call.streamed),
        }
    )
    return told.decode().replace("\\u0000", "\\ufffd")  # which no database takes within JSON


def _row(call: CallRecord, ending: CallOutcome, holder: str) -> dict[str, Value]:
    """A call that has ended, as the log has it."""
    error, usage = ending.error[:_MAX_ERROR], ending.usage
    words = " ".join(filter(None, (call.id, call.model, call.target, error, call.request, call.response)))
    return {
        "id": call.id,
        "account_id": call.account_id,
        "key_id": call.key_id,
        "face": call.face,
        "model": call.model,
        "target": call.target,
        "state": ending.state,
        "holder": holder,
        "streamed": int(call.streamed),
        "attempts": call.attempts,
        "input_tokens": usage.input,
        "cached_tokens": usage.cached,
        "output_tokens": usage.output,
        "counted_by": ending.counted_by,
        "held": call.held,
        "held_at": call.held_at,
        "cost": ending.cost,
        "first_us": call.first_us,
        "total_us": call.total_us,
        "error": error,
        "request": call.request,
        "response": call.response,
        "words": words[:_MAX_WORDS].casefold(),
        "charge": ending.charge,
    }
