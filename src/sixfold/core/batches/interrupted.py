"""Results of lines whose server died after the charge, for batches that end before another try."""

from __future__ import annotations

from sixfold.core.accounts import idempotency
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.batches import lines
from sixfold.core.batches.models import Batch, LineReply
from sixfold.core.database import Query, Row, Transaction, one

_PAGE_LINES = 100


def restore(batch: Batch, after: int) -> Transaction[int]:
    """Give the next unanswered lines after a number the responses that are stored for their requests.

    Returns the last line that was read, or 0 if no line was left.
    """
    rows = yield Query("batch_lines_unanswered", {"batch_id": batch.id, "after": after, "limit": _PAGE_LINES})
    for row in rows:
        reply = yield from _stored(batch, row)
        if reply is not None:
            yield from lines.finish(batch.id, int(row["number"]), reply)
    return int(rows[-1]["number"]) if rows else 0


def _stored(batch: Batch, row: Row) -> Transaction[LineReply | None]:
    key = lines.idempotency_key(batch, int(row["number"]), int(row["attempt"]))
    for owner in _owners(batch):
        scope = idempotency.scope_id(owner, "POST", batch.endpoint, key)
        reply = yield from idempotency.stored(scope)
        if reply is not None:
            call = yield from one("gateway_call_once_get", id=scope, life=idempotency.LIFE_US)
            request_id = "" if call is None else str(call["call_id"])
            return LineReply(reply.status, request_id, reply.body, scope=scope)
    return None


def _owners(batch: Batch) -> tuple[str, ...]:
    """Return whose the stored responses may be, see `Principal.replays`: the limits of a key can change."""
    if batch.key_id is None:
        return Tenant(batch.account_id).id, Tenant(batch.account_id, keyless=True).id
    own = batch.grant_id or batch.key_id
    return tuple({Tenant(batch.account_id, credential_id=each).id for each in (batch.credential_id, own)})
