"""Refunds of predictions: the money of a success goes back and all that it made is withdrawn, at once.

Withdrawn is the output, its files at `/media/` (their bytes are deleted once nothing else names them), posts
and avatars made of them, answers that are stored for an Idempotency-Key, and results of the parts of a graph.
The same bytes stay with every other prediction that was paid for them.

A prediction that is ordered for one with a price, or for one that is withheld, is withheld from its
acceptance on: its account reads its state, and neither inputs nor output. The same holds for its files, for
what the nodes of a graph saved, and for their cached outcomes. The success of what ordered them releases all
of that in the transaction that captures the money; any other ending withdraws it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sixfold import errors
from sixfold.core.accounts import ledger
from sixfold.core.database import Query, Row, Transaction, many, one
from sixfold.core.media import upload_paths
from sixfold.core.predictions import webhooks
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import TERMINAL, PredictionEvent, PredictionState, follow

REFUNDED = "refunded"
_ORPHANED = "The result was withdrawn: the graph that ordered it had ended"
_MOST = 100  # of one sweep
NEVER = -1  # the expiry of a withheld file that shall not expire


def refund(prediction_id: str, reason: str) -> Transaction[Prediction]:
    """Turn a success into a failure because of `reason`, with its money and its output.

    A prediction in any other state stays as it is. Raises `NotFound`.
    """
    row = yield from one("prediction_by_id", id=prediction_id)
    if row is None:
        raise errors.NotFound("There is no such prediction")
    if row["state"] != PredictionState.SUCCEEDED:
        return Prediction.of(row)
    prediction = yield from withdraw(row, f"The result was withdrawn and its price given back: {reason}")
    if row["parent_id"] is None:
        entry = ledger.LedgerEntry("refund", f"{row['model']}: {reason}", str(row["request_id"]))
        yield from ledger.refund(prediction_id, entry)
    yield from withdraw_children(row)
    yield from webhooks.note_anew(prediction)
    return prediction


def end(row: Row) -> Transaction[None]:
    """Take back what hangs on a prediction that ends without a result: its path, and a graph's parts."""
    yield from withdraw_children(row)
    yield from upload_paths.release(str(row["id"]))


def withdraw_children(parent: Row) -> Transaction[None]:
    """Withdraw what was ordered for a prediction that had a price and is not paid."""
    if not parent["price"] and not parent["withheld"]:
        return
    rows = yield from many("prediction_results_below", parent_id=parent["id"])
    for row in rows:
        yield from withdraw(row, "The result was withdrawn: what ordered it did not succeed")
    if rows or parent["meter"] == "children":  # with the files that the nodes of a graph saved
        yield Query("media_withdraw", {"prediction_id": parent["id"], "account_id": parent["account_id"]})


def withdraw(row: Row, error: str) -> Transaction[Prediction]:
    """Take the output of a success away, without its money; one that has none any more stays as it is."""
    about = {"prediction_id": row["id"], "account_id": row["account_id"]}
    state = follow(PredictionState(row["state"]), PredictionEvent.REFUND)
    ended = yield Query(
        "prediction_withdraw",
        {"id": row["id"], "to_state": state, "error": error, "error_kind": REFUNDED},
    )
    if not ended:
        found = yield from one("prediction_by_id", id=row["id"])
        return Prediction.of(found or row)
    yield Query("media_withdraw", about)
    yield Query("media_withdraw_copies", about)
    yield Query("gallery_withdraw_tags", about)
    yield Query("gallery_withdraw_posts", about)
    yield Query("gallery_withdraw_avatars", about)
    if row["idempotency_id"] is not None:
        yield Query("idempotency_withdraw", {"id": row["idempotency_id"]})
    yield from upload_paths.release(str(row["id"]))
    return Prediction.of(ended[0])


def sweep() -> Transaction[int]:
    """Withdraw what an older version refunded and left in place, and successes after the end of their parent.

    Gives how many.
    """
    refunded = yield from many("predictions_refunded_in_place", limit=_MOST)
    for row in refunded:
        yield from withdraw(row, "The result was withdrawn: its price was given back")
    late = yield from many("predictions_withheld_for_good", limit=_MOST)
    for row in late:
        yield from withdraw(row, "The result was withdrawn: what ordered it did not succeed")
    return len(refunded) + len(late)


# -- parts of graphs -------------------------------------------------------------------------------


def _settle_child(row: Row) -> Transaction[Prediction]:
    """A child that has just succeeded, withdrawn where its parent has ended and no charge covers it any more.

    The child is marked before its parent is read, and the end of a parent marks it before its children are
    read: so one of the two sees the other.
    """
    if not row["cost"]:
        return Prediction.of(row)
    parent = yield from one("prediction_by_id", id=row["parent_id"])
    if parent is not None and PredictionState(parent["state"]) not in TERMINAL:
        return Prediction.of(row)
    return (yield from withdraw(row, _ORPHANED))


def sweep_children() -> Transaction[int]:
    """Withdraw what an older version left of graphs that did not succeed; gives how many."""
    rows = yield from many("predictions_orphaned", limit=_MOST)
    for row in rows:
        yield from withdraw(row, _ORPHANED)
    return len(rows)


# -- what is withheld --------------------------------------------------------------------------------


def hidden(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row of a file that is withheld."""
    return {**record, "expires_at": -(record["expires_at"] or -NEVER)}


def withhold_files(prediction_id: str) -> Transaction[None]:
    """Withhold the files of a prediction where it is withheld itself."""
    yield Query("media_withhold", {"prediction_id": prediction_id})


def settle(succeeded: Row) -> Transaction[Prediction]:
    """Withhold the files of a success, or release what it ordered; takes the row of `prediction_succeed`."""
    if succeeded["withheld"]:
        yield from withhold_files(str(succeeded["id"]))
    elif succeeded["price"] and (succeeded["has_children"] or succeeded["meter"] == "children"):
        yield Query("predictions_release", {"id": succeeded["id"]})
        yield Query("media_release", {"id": succeeded["id"]})
    if succeeded["parent_id"] is not None:
        return (yield from _settle_child(succeeded))
    return Prediction.of(succeeded)
