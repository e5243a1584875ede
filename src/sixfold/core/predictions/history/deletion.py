"""Deletion of runs, with their inputs, outputs, files, logs and parts, and of live sessions.

Their charges stay in the ledger. A post in the gallery has a copy of the file and is not deleted. Files
expire immediately; the sweep deletes their bytes when there are no other references.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from sixfold import errors
from sixfold.core.accounts import audit_log, idempotency
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Query, Transaction, one

# The order of deletion: rows that refer to others come first.
_DELETIONS = (
    "history_delete_messages",
    "history_delete_files",
    "history_delete_prompts",
    "history_delete_shares",
    "history_delete_predictions",
)
_TRAINING = "training"


def delete(prediction_id: str, tenant: Tenant) -> Transaction[None]:
    """Delete a run of a tenant with its parts.

    Raises `NotFound`, also for a run of another tenant, and `Conflict` for a part of a workflow, a run that
    has not ended, or a training whose model exists.
    """
    row = yield from one("prediction_by_id", id=prediction_id)
    if row is None or not tenant.sees(row["account_id"], row["credential_id"] or ""):
        raise errors.NotFound("Prediction not found")
    if row["parent_id"] is not None:
        raise errors.Conflict("This run is part of a workflow: delete the run of the workflow")
    if row["model"] == _TRAINING:
        model = yield from one("training_model", account_id=row["account_id"], id=prediction_id)
        if model is not None:
            raise errors.Conflict(
                f"The files of this training belong to the model {model['name']}: remove the model with "
                f"DELETE /api/containers/templates/{model['name']}, which also deletes its trainings"
            )
    if (yield from one("history_unfinished", id=prediction_id)) is not None:
        raise errors.Conflict("This run has not ended: cancel it before you delete it")
    yield from delete_all([prediction_id])
    if row["idempotency_id"] is not None:
        yield Query("idempotency_withdraw", {"id": idempotency.scope_of(row["idempotency_id"])})
    yield from audit_log.note(str(row["account_id"]), "prediction.delete", prediction_id)


def finish_model_removal(account_id: str, name: str, *, is_trained: bool) -> Transaction[None]:
    """Record that an account has removed a model; delete its trainings, with their images and weights."""
    if is_trained:
        rows = yield Query("trainings_of_removed", {"account_id": account_id, "name": name})
        yield from delete_all([str(row["id"]) for row in rows])
    yield from audit_log.note(account_id, "model.remove", name)


def delete_session(session_id: str, tenant: Tenant) -> Transaction[None]:
    """Delete a live session of a tenant; its recordings are separate runs and are not deleted.

    Raises `NotFound`, also for a session of another tenant, and `Conflict` for a session that has not ended.
    """
    row = yield from one("session_of", **tenant.row, id=session_id)
    if row is None:
        raise errors.NotFound("Session not found")
    if row["closed_at"] is None:
        raise errors.Conflict("This session has not ended: stop it before you delete it")
    for name in ("retention_standings_delete", "retention_sessions_delete"):
        yield Query(name, {"ids": json.dumps([session_id])})
    yield from audit_log.note(str(row["account_id"]), "session.delete", session_id)


def delete_all(prediction_ids: Sequence[str]) -> Transaction[None]:
    """Delete ended runs of any accounts, with their parts."""
    for name in _DELETIONS:
        yield Query(name, {"ids": json.dumps(prediction_ids)})
