"""Single charges for calls that are repeated with an Idempotency-Key because the response was lost.

A server may die, or lose its database, after a call was charged and before its response is stored for the
key. The model is then called again, and the second response is free.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

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
async def charged_if_blocked(database: Database, scope: str | None, content: bytes) -> AsyncGenerator[None]:
    """Charge a repetition of a request, too, if a guardrail blocks the response in this block.

    The response is not lost: the hook of a guardrail, which may be the caller's, has received it.
    """
    try:
        yield
    except (GuardrailBlocked, GuardrailUnavailable):
        if scope is not None:
            once = await PARSER.run_large(len(content), once_id, scope, content)
            await database.write(_forget(once), durable=False)
        raise


def _forget(once: str) -> Transaction[None]:
    yield Query("gateway_call_once_forget", {"id": once})


def refund(once: str) -> Transaction[None]:
    """Refund the paid call of a request whose response was lost and which will not be repeated."""
    previous = yield from one("gateway_call_once_get", id=once, life=idempotency.LIFE_US)
    if previous is None or previous["state"] not in _PAID_STATES:
        return
    yield from request_log.refund(str(previous["call_id"]), _LOST_ERROR)


def sweep() -> Transaction[None]:
    """Delete expired keys."""
    yield Query("gateway_call_once_sweep", {"life": idempotency.LIFE_US})
