"""Calls that are asked again under their Idempotency-Key, because nobody heard the first answer: paid once.

A server may die, or lose its database, between a call's money and the answer that is kept for its key. Then
the model is asked again, and the second answer is free.
"""

from __future__ import annotations

from sixfold.core.accounts import charges, idempotency, ledger
from sixfold.core.database import Query, Transaction, one

_PAID = frozenset({"succeeded", "left"})
_ASKED_AGAIN = "Nobody heard how this ended; it was asked again"


def paid_before(scope: str, call_id: str) -> Transaction[int | None]:
    """What the same request has cost already; None when it is still to be paid, as the call `call_id`.

    An earlier call that never came to its end ends here, and costs nothing.
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
    """Forget the keys of yesterday."""
    yield Query("gateway_call_once_sweep", {"life": idempotency.LIFE_US})
