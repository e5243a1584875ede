"""Transactions of lines, and the decision about the reply to a line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from sixfold.core.accounts import accounts, idempotency, keys
from sixfold.core.batches import models
from sixfold.core.batches.models import Batch, BatchOutcome, ClaimedLine, LineReply
from sixfold.core.clock import SECOND_US
from sixfold.core.database import Query, Transaction, encode_json, one
from sixfold.errors import BudgetExceeded

MAX_TRIES = 3
# A wait for credit or a budget is limited to this time, so that a payment or a higher budget takes effect.
_MAX_WAIT_SECONDS, _CREDIT_SECONDS = 60, 15
# The wait while other calls of the account hold money, most of which is released.
HELD_SECONDS = 0.25
# The time after which lines run once a suspension has ended.
SUSPENDED_SECONDS = 15
_SUSPENDED_REASON = "The account is suspended"
RETRY_SECONDS = (2, 10, 30)
_MAX_OPEN = 200
_encode = msgspec.json.Encoder().encode
_Answer = Literal["keep", "retry", "wait", "release"]


class Verdict(msgspec.Struct, frozen=True):
    """The decision about a line: store its reply, retry it, delay the whole batch, or release the line.

    If `new_attempt` is set, the retry uses a new `Idempotency-Key`, because the reply is stored for the last
    one. If `for_money` is set, the wait is short while other calls hold money.
    """

    answer: _Answer
    seconds: float = 0
    new_attempt: bool = False
    for_money: bool = False


def judge(reply: LineReply, tries: int) -> Verdict:
    """Decide on a reply to a line that was tried `tries` times before.

    A line that exceeded a limit of the account or key is retried later. Failures are not charged, and a
    charge under an `Idempotency-Key` is not repeated, so a repeated line is charged once.
    """
    status = reply.status
    if status == 402:
        return Verdict("wait", _CREDIT_SECONDS, for_money=True)
    if status == 403 and error_of(reply).message == keys.SUSPENDED:
        # The line runs after the suspension, or expires with its batch; the suspension may have ended
        # meanwhile.
        return Verdict("wait", SUSPENDED_SECONDS)
    if status == 429:
        seconds = min(max(reply.retry_after, 1), _MAX_WAIT_SECONDS)
        return Verdict("wait", seconds, for_money=error_of(reply).code == BudgetExceeded.code)
    if status == 503 and not reply.permanent:
        return Verdict("retry", RETRY_SECONDS[min(tries, len(RETRY_SECONDS) - 1)])
    if (status in (401, 409) or status >= 500) and status != 503 and tries + 1 < MAX_TRIES:
        is_stored = status not in (409, 500) and status not in idempotency.NOT_STORED
        return Verdict("retry", RETRY_SECONDS[tries], new_attempt=is_stored)
    return Verdict("keep")


class ErrorText(msgspec.Struct):
    """The message and the code of an error, in the formats of OpenAI and Anthropic."""

    message: str = ""
    code: str | None = None


class _ErrorBody(msgspec.Struct):
    error: ErrorText = msgspec.field(default_factory=ErrorText)


def error_of(reply: LineReply) -> ErrorText:
    """Return the error in a reply, empty if the reply does not contain an error."""
    try:
        return msgspec.json.decode(reply.body, type=_ErrorBody).error
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ErrorText()


class _ResponseHead(msgspec.Struct):
    id: str = ""


def is_stored(reply: LineReply, response_id: str) -> bool:
    """Return whether a reply is a background response that its route has stored.

    Only such a response has the id that the line reserved.
    """
    try:
        head = msgspec.json.decode(reply.body, type=_ResponseHead)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return reply.status < 300 and head.id == response_id


def open_batches() -> Transaction[tuple[int, tuple[Batch, ...]]]:
    """Return the time (epoch µs) and the batches with due work, least recently claimed first."""
    rows = yield Query("batches_open", {"limit": _MAX_OPEN})
    return (int(rows[0]["now"]) if rows else 0), tuple(map(models.from_row, rows))


def claim(
    batch: Batch, holder: str, lease_us: int, limit: int
) -> Transaction[tuple[ClaimedLine, ...] | None]:
    """Lease the next lines of a batch, or return None if that has decided how the batch ends.

    If its key is no longer valid, the batch ends as failed. If no lines remain, it ends as completed. The
    batch waits while its account is suspended.
    """
    credential = yield from credential_of(batch)
    if credential is None:
        yield from decide(
            batch.id, "failed", "invalid_api_key", "The API key of this batch is no longer valid"
        )
        return None
    if (yield from is_suspended(batch)):
        delay = SUSPENDED_SECONDS * SECOND_US
        yield Query("batch_pause", {"id": batch.id, "delay": delay, "reason": _SUSPENDED_REASON})
        return ()
    if not (yield Query("batch_touch", {"id": batch.id})):
        return ()
    values = {"batch_id": batch.id, "holder": holder, "lease": lease_us, "limit": limit}
    rows = yield Query("batch_lines_claim", values)
    if not rows and (yield Query("batch_decide_done", {"id": batch.id})):
        return None
    lines = [models.claimed(row) for row in rows]
    return tuple(sorted(lines, key=lambda line: (line.tries, line.number)))


def idempotency_key(batch: Batch, line: ClaimedLine) -> str:
    """Return the `Idempotency-Key` of the current attempt at a line."""
    return f"{batch.id}/{line.number}/{line.attempt}"


def scope_id(owner: str, endpoint: str, key: str) -> str:
    """Return the id under which the response to a line with this `Idempotency-Key` is stored."""
    return idempotency.scope_id(owner, idempotency.BATCH_LINE, endpoint, key)


def credential_of(batch: Batch) -> Transaction[str | None]:
    """Return the key with which the lines of a batch run.

    The key is an empty string for the account's owner, and None if the key has ended.
    """
    if batch.key_id is None:
        return ""
    row = yield from one("batch_credential", key_id=batch.key_id, grant_id=batch.grant_id or "")
    return None if row is None else str(row["id"])


def is_suspended(batch: Batch) -> Transaction[bool]:
    """Return whether the account of a batch, or the user of its key, is suspended."""
    params = {"account_id": batch.account_id, "key_id": batch.key_id or ""}
    return (yield from one("batch_suspended", **params)) is not None


def holds_money(batch: Batch) -> Transaction[bool]:
    """Return whether calls of the account of a batch hold money, most of which will be released."""
    return (yield from accounts.by_id(batch.account_id)).held > 0


def decide(batch_id: str, outcome: BatchOutcome, code: str = "", message: str = "") -> Transaction[None]:
    """Set the outcome of a batch, with an error if there is a reason."""
    errors = [{"code": code, "line": None, "message": message, "param": None}] if code else []
    yield Query("batch_decide", {"id": batch_id, "outcome": outcome, "errors": _encode(errors).decode()})


def finish(batch_id: str, number: int, reply: LineReply) -> Transaction[None]:
    """Store the answer to a line, and delete the copy stored for its `Idempotency-Key`."""
    yield Query(
        "batch_line_finish",
        {
            "batch_id": batch_id,
            "number": number,
            "status": reply.status,
            "request_id": reply.request_id,
            "response": reply.body.decode("utf-8", "replace"),
        },
    )
    if reply.scope:
        yield from idempotency.forget(reply.scope)


def requeue(batch: Batch, number: int, holder: str, verdict: Verdict, reason: str = "") -> Transaction[float]:
    """Schedule a retry of a line, or of the whole batch; return the seconds until then."""
    seconds = verdict.seconds
    if verdict.for_money and (yield from holds_money(batch)):
        seconds = HELD_SECONDS
    delay = round(seconds * SECOND_US)
    if verdict.answer == "wait":
        yield Query("batch_pause", {"id": batch.id, "delay": delay, "reason": reason})
    yield Query(
        "batch_line_requeue",
        {
            "batch_id": batch.id,
            "number": number,
            "holder": holder,
            "tries": int(verdict.answer == "retry"),
            "attempt": int(verdict.new_attempt),
            "delay": delay if verdict.answer == "retry" else 0,
        },
    )
    return seconds


def renew(holder: str, lease_us: int, held: Iterable[tuple[Batch, ClaimedLine]]) -> Transaction[None]:
    """Renew the leases of the lines that a server has, and release others whose lease or server has ended.

    The server does not have a line whose claim has an unknown result.
    """
    names = encode_json([f"{batch.id}/{line.number}" for batch, line in held])
    yield Query("batch_lines_renew", {"holder": holder, "lease": lease_us, "ids": names})
    yield Query("batch_lines_reclaim", {"holder": holder})


def start_end(batch: Batch, holder: str, lease_us: int) -> Transaction[bool]:
    """Lease a batch whose outcome is decided, if its lines are not running; return whether it was leased."""
    values = {"id": batch.id, "holder": holder, "lease": lease_us, "state": ""}
    if not (yield Query("batch_lease", values)):
        return False
    return bool((yield Query("batch_finalize", {"id": batch.id, "holder": holder})))
