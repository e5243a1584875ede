"""Refunds of predictions: the money of a success goes back and all that it made is withdrawn, at once.

Withdrawn is the output, its files at `/media/` (their bytes are deleted once nothing else names them), posts
and avatars made of them, answers that are stored for an Idempotency-Key, and results of the parts of a graph.
The same bytes stay with every other prediction that was paid for them.
"""

from __future__ import annotations

from sixfold import errors
from sixfold.core.accounts import ledger, settlement
from sixfold.core.database import Query, Row, Transaction, many, one
from sixfold.core.work import outbox, upload_paths
from sixfold.core.work.records import Prediction
from sixfold.core.work.states import TERMINAL, Event, State, follow

REFUNDED = "refunded"
_ORPHANED = "The result was withdrawn: the graph that ordered it had ended"
_MOST = 100  # of one sweep


def refund(prediction_id: str, reason: str) -> Transaction[Prediction]:
    """Turn a success into a failure because of `reason`, with its money and its output.

    A prediction in any other state stays as it is. Raises `NotFound`.
    """
    row = yield from one("prediction_by_id", id=prediction_id)
    if row is None:
        raise errors.NotFound("There is no such prediction")
    if row["state"] != State.SUCCEEDED:
        return Prediction.of(row)
    prediction = yield from withdraw(row, f"The result was withdrawn and its price given back: {reason}")
    if row["parent_id"] is None:
        entry = ledger.Entry("refund", f"{row['model']}: {reason}", str(row["request_id"]))
        yield from settlement.refund(prediction_id, entry)
    if row["meter"] == "children":
        yield from withdraw_children(prediction_id)
    yield from outbox.note_anew(prediction)
    return prediction


def end(row: Row) -> Transaction[None]:
    """Take back what hangs on a prediction that ends without a result: its path, and a graph's parts."""
    if row["meter"] == "children":
        yield from withdraw_children(str(row["id"]))
    yield from upload_paths.release(str(row["id"]))


def withdraw_children(parent_id: str) -> Transaction[None]:
    """Withdraw the charged parts of a graph that nobody pays for."""
    rows = yield from many("prediction_children_charged", parent_id=parent_id)
    for row in rows:
        yield from withdraw(row, "The result was withdrawn: the graph that ordered it did not succeed")
    if rows:  # with the files that the graph saved of them
        yield Query("media_withdraw", {"prediction_id": parent_id, "account_id": rows[0]["account_id"]})


def withdraw(row: Row, error: str) -> Transaction[Prediction]:
    """Take the output of a success away, without its money."""
    about = {"prediction_id": row["id"], "account_id": row["account_id"]}
    state = follow(State(row["state"]), Event.REFUND)
    ended = yield Query(
        "prediction_withdraw",
        {"id": row["id"], "to_state": state, "error": error, "error_kind": REFUNDED},
    )
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
    """Withdraw what an older version refunded and left in place; gives how many."""
    rows = yield from many("predictions_refunded_in_place", limit=_MOST)
    for row in rows:
        yield from withdraw(row, "The result was withdrawn: its price was given back")
    return len(rows)


# -- parts of graphs -------------------------------------------------------------------------------


def settle_child(row: Row) -> Transaction[Prediction]:
    """A child that has just succeeded, withdrawn where its parent has ended and no charge covers it any more.

    The child is marked before its parent is read, and the end of a parent marks it before its children are
    read: so one of the two sees the other.
    """
    parent = yield from one("prediction_by_id", id=row["parent_id"])
    if not row["cost"] or (parent is not None and State(parent["state"]) not in TERMINAL):
        return Prediction.of(row)
    return (yield from withdraw(row, _ORPHANED))


def sweep_children() -> Transaction[int]:
    """Withdraw what an older version left of graphs that did not succeed; gives how many."""
    rows = yield from many("predictions_orphaned", limit=_MOST)
    for row in rows:
        yield from withdraw(row, _ORPHANED)
    return len(rows)
