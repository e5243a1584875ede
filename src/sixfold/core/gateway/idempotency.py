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


def once_id(scope: str, content: bytes) -> str:
    """Return the id of a request with an Idempotency-Key and a content; only its repetitions are free.

    The key may be used for other content after an error, because errors are not stored.
    """
    return hashlib.sha256(scope.encode() + b"\0" + content).hexdigest() if content else scope


def paid_before(scope: str, call_id: str) -> Transaction[int | None]:
    """Return the charge for an earlier call of the same request, or None if `call_id` must be charged.

    An earlier call that is still running is ended without a charge.
    """
    previous = yield from one("gateway_call_once_get", id=scope, life=idempotency.LIFE_US)
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
    yield Query("gateway_call_once_put", {"id": scope, "call_id": call_id})
    return None


@asynccontextmanager
async def settled_on_error(database: Database, scope: str | None, content: bytes) -> AsyncGenerator[None]:
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
        if scope is not None and (is_blocked or error.status not in idempotency.NOT_STORED):
            once = await PARSER.run_large(len(content), once_id, scope, content)
            await database.write(_forget(once) if is_blocked else refund(once), durable=not is_blocked)
        raise


def _forget(once: str) -> Transaction[None]:
    yield Query("gateway_call_once_forget", {"id": once})


def refund(once: str) -> Transaction[None]:
    """Refund the paid call of a request whose response was lost, and which gets no other response."""
    previous = yield from one("gateway_call_once_get", id=once, life=idempotency.LIFE_US)
    if previous is None or previous["state"] not in _PAID_STATES:
        return
    yield from request_log.refund(str(previous["call_id"]), _LOST_ERROR)


def sweep() -> Transaction[None]:
    """Delete expired keys."""
    yield Query("gateway_call_once_sweep", {"life": idempotency.LIFE_US})
