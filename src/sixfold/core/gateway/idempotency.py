"""Single charges for calls that are repeated with an Idempotency-Key because the response was lost.

A server may die, or lose its database, after a call was charged and before its response is stored for the
key. The model is then called again, and the second response is free. If the second call fails, the charge is
refunded.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from sixfold import errors
from sixfold.core.accounts import charges, idempotency, ledger
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.database import Database, Query, Transaction, one
from sixfold.core.gateway import request_log
from sixfold.core.gateway.guardrails.hooks import GuardrailBlocked, GuardrailUnavailable

_PAID_STATES = frozenset({"succeeded", "left"})
_LOST_ERROR = "The result of this call was lost"
_REPEATED_ERROR = "The result of this call was lost, and the request was repeated"


async def once_id(scope: str, content: bytes) -> str:
    """Return the id of a request with an Idempotency-Key and a content; only its repetitions are free.

    The key may be used for other content after an error, because errors are not stored.
    """
    return await PARSER.run_large(len(content), _once_id, scope, content)


def _once_id(scope: str, content: bytes) -> str:
    return hashlib.sha256(scope.encode() + b"\0" + content).hexdigest() if content else scope


def paid_before(once: str, call_id: str) -> Transaction[int | None]:
    """Return the charge for an earlier call of the same request, or None if `call_id` must be charged.

    An earlier call that is still running is ended without a charge.
    """
    previous = yield from one("gateway_call_once_get", id=once, life=idempotency.LIFE_US)
    if previous is not None and previous["state"] in _PAID_STATES:
        return int(previous["cost"])
    if previous is not None and previous["state"] == "running":
        previous_id = str(previous["call_id"])
        if (
            yield Query(
                "gateway_call_abandon",
                {"id": previous_id, "error": _REPEATED_ERROR, "charge": charges.NOTHING},
            )
        ):
            yield from ledger.release(previous_id)
    yield Query("gateway_call_once_put", {"id": once, "call_id": call_id})
    return None


def begin_round(once: str, number: int, call_id: str) -> Transaction[None]:
    """Record a further call for the response to a request; the call of `paid_before`, if any, is number 0."""
    yield Query("gateway_call_once_put", {"id": f"{once}/{number}", "call_id": call_id})


def refund_rounds(once: str) -> Transaction[None]:
    """Refund the further calls for a response that was lost, because a repetition charges its own."""
    number = 1
    while (yield from _refund(f"{once}/{number}")):
        number += 1


@asynccontextmanager
async def settled_on_error(database: Database, once: str) -> AsyncGenerator[None]:
    """Settle the charge of a request if the block, which answers it or a repetition of it, raises an error.

    The charge is refunded if the error is stored for the key, because the result is then never delivered.
    After other errors, the request may be repeated for free. If a guardrail blocks the response, a repetition
    is charged, too: the response is not lost, as the hook of the guardrail, which may be the caller's, has
    received it.
    """
    try:
        yield
    except errors.SixfoldError as error:
        is_blocked = isinstance(error, GuardrailBlocked | GuardrailUnavailable)
        if is_blocked or error.status not in idempotency.NOT_STORED:
            await database.write(_forget(once) if is_blocked else refund(once), durable=not is_blocked)
        raise


def _forget(once: str) -> Transaction[None]:
    yield Query("gateway_call_once_forget", {"id": once})


def refund(once: str) -> Transaction[None]:
    """Refund the paid calls of a request whose response was lost, and which gets no other response."""
    yield from _refund(once)
    yield from refund_rounds(once)


def _refund(once: str) -> Transaction[bool]:
    """Refund a call if it was paid; return whether it is recorded."""
    previous = yield from one("gateway_call_once_get", id=once, life=idempotency.LIFE_US)
    if previous is not None and previous["state"] in _PAID_STATES:
        yield from request_log.refund(str(previous["call_id"]), _LOST_ERROR)
    return previous is not None


def sweep() -> Transaction[None]:
    """Delete expired keys."""
    yield Query("gateway_call_once_sweep", {"life": idempotency.LIFE_US})
