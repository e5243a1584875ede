"""Charge once for a call that is repeated under its Idempotency-Key because its response was lost.

A server may die, or lose its database, after a call was charged and before its response is stored for the
key. The model is then called again, and the second response is free.
"""

from __future__ import annotations

from sixfold.core.accounts import charges, idempotency, ledger
from sixfold.core.database import Query, Transaction, one

_PAID = frozenset({"succeeded", "left"})
_ASKED_AGAIN = "Nobody heard how this ended; it was asked again"


def paid_before(scope: str, call_id: str) -> Transaction[int | None]:
    """Return what the same request has cost already, or None if the call `call_id` has to pay for it.

    An earlier call that is still running ends here and costs nothing.
    """
    before = yield from one("gateway_call_once_get", id=scope, life=idempotency.LIFE_US)
    if before is not None and before["state"] in _PAID:
        return int(before["cost"])
    if before is not None and before["state"] == "running":
        earlier = str(before["call_id"])
        if (
            yield Query(
                "gateway_call_abandon", {"id": earlier, "error": _ASKED_AGAIN, "charge": charges.NOTHING}
            )
        ):
            yield from ledger.release(earlier)
    yield Query("gateway_call_once_put", {"id": scope, "call_id": call_id})
    return None


def sweep() -> Transaction[None]:
    """Delete expired keys."""
    yield Query("gateway_call_once_sweep", {"life": idempotency.LIFE_US})
