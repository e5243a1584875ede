"""The log of calls, and the transactions that insert, finish, refund and list calls.

A call is written once, when it has ended. Until then, a call that is not free is recorded by its hold, which
contains the data that is needed to end the call if its server dies. The id of a call is the id of its
request.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Literal

import msgspec

from sixfold import errors
from sixfold.core import ids, pagination
from sixfold.core.accounts import charges, ledger, ledger_batches
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.database import Database, Query, Row, Transaction, Value, now, one
from sixfold.core.gateway.pricing.usage import NOTHING, TokenUsage

# A hold is released when its call exceeds its time limit by this many microseconds.
CALL_US = 60 * 1_000_000
_MAX_SEARCH_CHARS, _MAX_ERROR_CHARS = 20_000, 300
_ABANDONED = "The server stopped while this call was running"
_NOT_STORED = "The end of this call could not be stored"
_encode = msgspec.json.Encoder().encode
# Endpoints whose ledger entries are charges instead of chats.
_MEDIA_ENDPOINTS = frozenset({"embeddings", "images", "edits", "speech", "transcriptions"})


class CallRecord(msgspec.Struct):
    """The log record of a gateway call.

    `held` is in micro-dollars and `held_at` in epoch µs; `counted` contains the ids of the budgets that count
    the call.
    """

    id: str
    account_id: str
    key_id: str | None
    endpoint: str
    model: str
    target: str
    streamed: bool
    held: int = 0
    held_at: int = 0
    counted: str = ""
    attempts: int = 0
    first_us: int = 0
    total_us: int = 0
    # The caller's label of the purpose of the call.
    tag: str = ""
    # Whether a guardrail of the caller receives the response, which is then not refunded.
    shared: bool = False
    request: str | None = None
    response: str | None = None


# How a call ended; `left` means that the caller disconnected.
CallState = Literal["succeeded", "left", "failed"]


class CallOutcome(msgspec.Struct, frozen=True):
    """The outcome of a call; `cost` is in micro-dollars.

    `charge` contains the lines that add up to the cost, as JSON.
    """

    state: CallState
    usage: TokenUsage = NOTHING
    cost: int = 0
    error: str = ""
    counted_by: str = ""
    charge: str = charges.NOTHING


class CallTotals(msgspec.Struct):
    """The number of calls, their tokens, and their charges in micro-dollars."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    charged: int = 0


class TokenCounts:
    """Counters for Prometheus: `totals` of the calls of a server, by the state in which they ended."""

    def __init__(self) -> None:
        self.totals: dict[tuple[str, str], CallTotals] = {}

    def add(self, call: CallRecord, outcome: CallOutcome) -> None:
        # Callers choose the model's name, so only the server's name becomes a label.
        key = call.target.partition("/")[0], outcome.state
        total = self.totals.get(key)
        if total is None:
            total = self.totals[key] = CallTotals()
        total.calls += 1
        total.input_tokens += outcome.usage.input
        total.output_tokens += outcome.usage.output
        total.charged += outcome.cost


def begin(call: CallRecord, holder: str, payer: Payer | None) -> Transaction[None]:
    """Hold the amount of a call.

    Raises `InsufficientCredits` or `BudgetExceeded` without writing.
    """
    yield from ledger.hold(call.account_id, call.id, call.held, payer, _hold_details(call, holder))
    call.held_at = yield from now()


def finish(call: CallRecord, outcome: CallOutcome, holder: str) -> Transaction[None]:
    """End a call with a hold and charge its cost; has no effect if a sweep has already ended the call."""
    if (yield Query("gateway_call_finish", _row(call, outcome, holder))):
        yield from ledger.capture(call.id, outcome.cost, _entry(call, outcome))


def undo(call: CallRecord, outcome: CallOutcome, holder: str) -> Transaction[None]:
    """End a call without a charge, because its end may not be stored and its response is not delivered.

    A stored charge of a request with an `Idempotency-Key` remains, because its repetition is free.
    """
    if (yield from one("gateway_call_once_of", call_id=call.id)) is None:
        yield from _refund(call.id, _NOT_STORED)
    if (yield from one("hold_by_id", id=call.id)) is not None:
        yield from finish(call, CallOutcome("failed", outcome.usage, error=_NOT_STORED), holder)


def insert(call: CallRecord, outcome: CallOutcome, holder: str) -> Transaction[None]:
    """Insert a call without a hold."""
    yield Query("gateway_call_insert", _row(call, outcome, holder))


def refund(call_id: str, error: str) -> Transaction[None]:
    """Refund an ended call whose response cannot be delivered, and delete its response from the logs.

    A call whose response a guardrail of the caller has received remains charged.
    """
    if (yield from one("gateway_call_shared", id=call_id)) is None:
        yield from _refund(call_id, error)


def _refund(call_id: str, error: str) -> Transaction[None]:
    row = yield from one("gateway_call_withdraw", id=call_id, error=error, charge=charges.NOTHING)
    if row is not None:
        yield Query("content_withdraw", {"account_id": row["account_id"], "id": call_id})
    description = error if row is None else f"{row['model']}: {error}"
    yield from ledger.refund(call_id, ledger.LedgerEntry("refund", description, call_id))


def refund_all(call_ids: Sequence[str], error: str) -> Transaction[None]:
    """Refund ended calls whose responses cannot be delivered, as `refund` does."""
    for call_id in call_ids:
        yield from refund(call_id, error)


def has_succeeded(call_id: str, prediction_id: str = "") -> Transaction[bool]:
    """Return whether a call, and the prediction that pays for it, if any, succeeded and were not refunded."""
    row = yield from one("gateway_call_succeeded", id=call_id, prediction_id=prediction_id)
    return row is not None


@asynccontextmanager
async def refunded_on_failure(database: Database, call_id: str) -> AsyncGenerator[None]:
    """Refund a call if the block, which reads its response, raises `EngineFailed`."""
    try:
        yield
    except errors.EngineFailed as error:
        await database.write(refund(call_id, error.message))
        raise


def write_batch(
    holds: Sequence[tuple[CallRecord, Payer | None]],
    outcomes: Sequence[tuple[CallRecord, CallOutcome]],
    holder: str,
    combined: Sequence[tuple[CallRecord, Payer | None, CallOutcome]] = (),
) -> Transaction[None]:
    """Apply `begin`, `finish` and `insert` to many calls: to all or none.

    `combined` are calls that ended before they were held. Raises `InsufficientCredits`, `BudgetExceeded` or
    `LedgerError`; if the calls together exceed a limit, each may still be valid separately.
    """
    rows = [_row(call, outcome, holder) for call, outcome in outcomes]
    rows += [_row(call, outcome, holder) for call, _, outcome in combined]
    booked_at = yield from ledger_batches.book(
        holds=[
            ledger_batches.HoldRequest(
                call.account_id, call.id, call.held, payer, _hold_details(call, holder)
            )
            for call, payer in holds
        ],
        captures=[_charge(call, outcome) for call, outcome in outcomes if call.held],
        charges=[_purchase(call, payer, outcome) for call, payer, outcome in combined if outcome.cost],
        records=Query("gateway_call_insert", {}, rows),
    )
    for call, _ in holds:
        call.held_at = booked_at


def sweep(
    holder: str, cutoff: int, missing_before: frozenset[str] | None, active: Collection[str] = ()
) -> Transaction[frozenset[str]]:
    """Release the holds of calls whose server is missing, and of the own calls that are not `active`.

    Return the missing servers. The holds of a server that is not in `missing_before`, the result of the
    previous sweep, are not released yet, because it may have lost its database for a moment. If
    `missing_before` is None, the holds of all missing servers are released. Own calls are released if they
    began before `cutoff` (epoch µs). An active call may last longer, as its client may read slowly; it is
    charged when it ends.
    """
    rows = yield Query("find_orphaned_holds", {"holder": holder, "before": cutoff})
    for row in rows:
        is_own = row["holder"] == holder
        is_missing = not is_own and (missing_before is None or row["holder"] in missing_before)
        if is_missing or (is_own and row["id"] not in active):
            ended = yield Query(
                "gateway_call_abandon", {"id": row["id"], "error": _ABANDONED, "charge": charges.NOTHING}
            )
            if ended:
                yield from ledger.release(str(row["id"]))
    return frozenset(str(row["holder"]) for row in rows if row["holder"] != holder)


def delete_before(before: int) -> Transaction[int]:
    """Delete at most 200 calls that began before `before` (epoch µs); return their number."""
    bounds = {"id": ids.earliest("req", before), "before": before, "limit": 200}
    return len((yield Query("gateway_call_forget", bounds)))


async def delete_all_before(database: Database, before: int) -> None:
    """Delete all calls that began before `before` (epoch µs), in batches that do not block other writes."""
    deleted = 1
    while deleted:
        deleted = await database.write(delete_before(before), durable=False)


class CallFilter(msgspec.Struct, frozen=True):
    """A filter for `page`; an empty value matches all calls. `text` is searched in all text columns."""

    model: str = ""
    state: str = ""
    key_id: str = ""
    text: str = ""


def list_calls(
    account_id: str, filters: CallFilter, limit: int, cursor: str | None
) -> Transaction[tuple[tuple[Row, ...], str | None]]:
    """Return an account's calls, newest first, and the cursor of the next page; raises `BadRequest`.

    Calls of this server's models are predictions, whose ids begin with `pred_`.
    """
    before = pagination.id_before(cursor, "req_").removeprefix("req_")
    params = {
        "account_id": account_id,
        "model": filters.model,
        "state": filters.state,
        "key_id": filters.key_id,
        "pattern": pagination.contains_pattern(filters.text.casefold()),
        "limit": limit + 1,
    }
    calls = yield Query("gateway_call_page", {**params, "before": f"req_{before}"})
    runs = yield Query("gateway_run_page", {**params, "before": f"pred_{before}"})
    rows = sorted((*calls, *runs), key=lambda row: _moment(str(row["id"])), reverse=True)
    page = tuple(rows[:limit])
    return page, f"req_{_moment(str(page[-1]['id']))}" if len(rows) > limit else None


def _moment(call_id: str) -> str:
    """Return the part of an id that orders calls of all kinds by time."""
    return call_id.partition("_")[2]


def _charge(call: CallRecord, outcome: CallOutcome) -> ledger_batches.Capture:
    return ledger_batches.Capture(
        call.account_id, call.id, call.held, outcome.cost, _entry(call, outcome), call.counted, call.held_at
    )


def _purchase(call: CallRecord, payer: Payer | None, outcome: CallOutcome) -> ledger_batches.DirectCharge:
    return ledger_batches.DirectCharge(
        call.account_id, call.id, call.held, outcome.cost, _entry(call, outcome), payer
    )


def _entry(call: CallRecord, outcome: CallOutcome) -> ledger.LedgerEntry:
    kind = "charge" if call.endpoint in _MEDIA_ENDPOINTS else "chat"
    name = call.model if call.model == call.target else f"{call.model} by {call.target}"
    return ledger.LedgerEntry(kind, name, call.id, outcome.charge)


def _hold_details(call: CallRecord, holder: str) -> str:
    """Return the JSON of a hold, which a sweep needs to end the call."""
    details = _encode(
        {
            "holder": holder,
            "key_id": call.key_id,
            "face": call.endpoint,
            "model": call.model,
            "target": call.target,
            "streamed": int(call.streamed),
        }
    )
    # PostgreSQL rejects NUL characters within JSON.
    return details.decode().replace("\\u0000", "\\ufffd")


def _row(call: CallRecord, outcome: CallOutcome, holder: str) -> dict[str, Value]:
    """Return the log row of a call that has ended."""
    error, usage = outcome.error[:_MAX_ERROR_CHARS], outcome.usage
    search_text = " ".join(
        filter(None, (call.id, call.model, call.target, error, call.request, call.response))
    )
    return {
        "id": call.id,
        "account_id": call.account_id,
        "key_id": call.key_id,
        "face": call.endpoint,
        "model": call.model,
        "target": call.target,
        "state": outcome.state,
        "holder": holder,
        "streamed": int(call.streamed),
        "attempts": call.attempts,
        "input_tokens": usage.input,
        "cached_tokens": usage.cached,
        "output_tokens": usage.output,
        "counted_by": outcome.counted_by,
        "held": call.held,
        "held_at": call.held_at,
        "cost": outcome.cost,
        "first_us": call.first_us,
        "total_us": call.total_us,
        "error": error,
        "request": call.request,
        "response": call.response,
        "words": search_text[:_MAX_SEARCH_CHARS].casefold(),
        "charge": outcome.charge,
        "tag": call.tag,
        "upstream_cost": usage.billed_micros or None,
        "shared": int(call.shared),
    }
