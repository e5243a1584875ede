"""Refunds of predictions, which return the charge and withdraw the results in one transaction.

A refund withdraws the output, its files at `/media/` (the bytes are deleted when there are no other
references), posts and avatars with these files, responses stored for an Idempotency-Key, and the results of
children. Other paid predictions with the same bytes keep them. Cached outputs of its nodes are not used any
more, nor those that later runs have derived from them (`graph_source`); the results of these runs remain.

`PredictionService.refund` calls this for a result that an API could not deliver; there is no command or route
for it. Refunds of calls of the gateway are in `core/gateway/request_log.py`.

A child of a prediction with a price, or of a withheld one, is withheld from its acceptance on: its account
can read its state, but neither inputs nor output. The same applies to its files, to files saved by the nodes
of a workflow, and to their cached results. When the parent succeeds, they are released in the transaction
that captures the charge; if it ends in any other way, they are withdrawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sixfold import errors
from sixfold.core.accounts import idempotency, ledger
from sixfold.core.database import Query, Row, Transaction, many, one
from sixfold.core.media import upload_paths
from sixfold.core.media.outputs import Output
from sixfold.core.predictions import webhooks
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import TERMINAL, PredictionEvent, PredictionState, follow

REFUNDED = "refunded"
_PARENT_ENDED = "The result was withdrawn: the workflow that requested it had ended"
_PARENT_FAILED = "The result was withdrawn: the prediction that requested it did not succeed"
# Maximum number of predictions that one sweep withdraws.
_BATCH = 100
# Expiry time of a withheld file that does not expire.
NEVER = -1


def refund(prediction_id: str, reason: str) -> Transaction[Prediction]:
    """Refund a succeeded prediction and withdraw its output; it becomes a failure with `reason`.

    A prediction in any other state is unchanged. Raises `NotFound`, and `Conflict` for a part of a workflow,
    which is charged with the run of the workflow: its price could not be refunded, and the run would keep its
    output.
    """
    row = yield from one("prediction_by_id", id=prediction_id)
    if row is None:
        raise errors.NotFound("Prediction not found")
    if row["parent_id"] is not None:
        raise errors.Conflict(f"This run is part of {row['parent_id']}, which pays for it: refund that run")
    if row["state"] != PredictionState.SUCCEEDED:
        return Prediction.from_row(row)
    prediction = yield from withdraw(row, f"The result was withdrawn and its price refunded: {reason}")
    entry = ledger.LedgerEntry("refund", f"{row['model']}: {reason}", str(row["request_id"]))
    yield from ledger.refund(prediction_id, entry)
    yield from withdraw_children(row)
    yield from webhooks.enqueue_replacement(prediction)
    return prediction


def end(row: Row) -> Transaction[None]:
    """Release the save path and withdraw the children of a prediction that ended without a result."""
    yield from withdraw_children(row)
    yield from upload_paths.release(str(row["id"]))


def withdraw_children(parent: Row) -> Transaction[None]:
    """Withdraw the results of children of a parent that had a price but was not charged."""
    if not parent["price"] and not parent["withheld"]:
        return
    rows = yield from many("prediction_results_below", parent_id=parent["id"])
    for row in rows:
        yield from withdraw(row, _PARENT_FAILED)
    if rows or parent["meter"] == "children":
        # This includes files that nodes of a workflow have saved.
        yield Query("media_withdraw", {"prediction_id": parent["id"], "account_id": parent["account_id"]})


def withdraw(row: Row, error: str) -> Transaction[Prediction]:
    """Withdraw the output of a success without a refund; has no effect if it has no output."""
    params = {"prediction_id": row["id"], "account_id": row["account_id"]}
    state = follow(PredictionState(row["state"]), PredictionEvent.REFUND)
    updated = yield Query(
        "prediction_withdraw", {"id": row["id"], "to_state": state, "error": error, "error_kind": REFUNDED}
    )
    if not updated:
        current = yield from one("prediction_by_id", id=row["id"])
        return Prediction.from_row(current or row)
    yield Query("run_drawing_delete", {"prediction_id": row["id"]})
    yield Query("media_withdraw", params)
    yield Query("media_withdraw_copies", params)
    yield Query("gallery_withdraw_copies", params)
    yield Query("gallery_withdraw_tags", params)
    yield Query("gallery_withdraw_posts", params)
    yield Query("gallery_withdraw_avatars", params)
    shared: Mapping[str, Any] = {"account_id": row["account_id"], "kind": "run", "object_id": row["id"]}
    yield Query("shares_end_object", shared)
    if row["idempotency_id"] is not None:
        yield Query("idempotency_withdraw", {"id": idempotency.scope_of(row["idempotency_id"])})
    yield from upload_paths.release(str(row["id"]))
    return Prediction.from_row(updated[0])


def sweep() -> Transaction[int]:
    """Repair inconsistent predictions of older versions, and withdraw late results of ended parents.

    Inconsistent predictions are refunded but not withdrawn, or paid but not released. Returns the number of
    changed predictions.
    """
    refunded = yield from many("predictions_refunded_in_place", limit=_BATCH)
    for row in refunded:
        yield from withdraw(row, "The result was withdrawn: its price was refunded")
    late = yield from many("predictions_withheld_for_good", limit=_BATCH)
    for row in late:
        yield from withdraw(row, _PARENT_FAILED)
    paid = yield from many("predictions_withheld_though_paid", limit=_BATCH)
    for row in paid:
        yield from _release(str(row["id"]))
    return len(refunded) + len(late) + len(paid)


# -- children --------------------------------------------------------------------------------------


def _settle_child(row: Row, output: Output) -> Transaction[Prediction]:
    """Withdraw a child that has just succeeded if its parent ended without a charge for the child.

    The child is marked before its parent is read, and an ending parent is marked before its children are
    read, so one of the two transactions sees the other.
    """
    if not row["cost"]:
        return Prediction.from_row(row, output)
    parent = yield from one("prediction_by_id", id=row["parent_id"])
    if parent is not None and PredictionState(parent["state"]) not in TERMINAL:
        return Prediction.from_row(row, output)
    return (yield from withdraw(row, _PARENT_ENDED))


def sweep_children() -> Transaction[int]:
    """Withdraw results that an older version left after a workflow failed; return their number."""
    rows = yield from many("predictions_orphaned", limit=_BATCH)
    for row in rows:
        yield from withdraw(row, _PARENT_ENDED)
    return len(rows)


# -- withheld results --------------------------------------------------------------------------------


def withheld_record(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the row of a withheld file, which is marked by a negative expiry time."""
    return {**record, "expires_at": -(record["expires_at"] or -NEVER)}


def withhold_files(prediction_id: str) -> Transaction[None]:
    """Withhold the files of a prediction if the prediction is withheld."""
    yield Query("media_withhold", {"prediction_id": prediction_id})


def settle(succeeded: Row, output: Output) -> Transaction[Prediction]:
    """Withhold the files, or release the children, of a prediction that succeeded (a row and its output)."""
    if succeeded["withheld"]:
        yield from withhold_files(str(succeeded["id"]))
    elif succeeded["price"] and (succeeded["has_children"] or succeeded["meter"] == "children"):
        yield from _release(str(succeeded["id"]))
    if succeeded["parent_id"] is not None:
        return (yield from _settle_child(succeeded, output))
    return Prediction.from_row(succeeded, output)


def _release(prediction_id: str) -> Transaction[None]:
    """Release the files of a paid prediction, and the results of its descendants."""
    yield Query("predictions_release", {"id": prediction_id})
    yield Query("media_release", {"id": prediction_id})
