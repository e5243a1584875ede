"""Results of lines that were charged before their server stopped, for batches that end before a retry."""

from __future__ import annotations

from typing import NamedTuple

from sixfold.core.accounts import idempotency
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.batches import lines, models
from sixfold.core.batches.models import Batch, ClaimedLine, LineReply
from sixfold.core.database import Query, Transaction, one

_PAGE_LINES = 100


class RestoredPage(NamedTuple):
    """The number of the last line read, or 0 at the end, and the lines whose request has not ended.

    Each line is paired with the id under which its response would be stored.
    """

    last: int
    unfinished: tuple[tuple[ClaimedLine, str], ...] = ()


def restore(batch: Batch, after: int) -> Transaction[RestoredPage]:
    """Restore the stored responses of the next unanswered lines, starting after line number `after`.

    A line whose request has started but has no stored response is sent again. If the first request was
    charged, the second request is free; if there is no second request, the first one is refunded.
    """
    rows = yield Query("batch_lines_unanswered", {"batch_id": batch.id, "after": after, "limit": _PAGE_LINES})
    unfinished: list[tuple[ClaimedLine, str]] = []
    for row in rows:
        line = models.claimed(row)
        for owner in _owners(batch):
            scope = lines.scope_id(owner, batch.endpoint, lines.idempotency_key(batch, line))
            if (yield from one("idempotency_get", id=scope)) is None:
                continue
            reply = yield from _stored(scope)
            if reply is None:
                unfinished.append((line, scope))
            else:
                yield from lines.finish(batch.id, line.number, reply)
            break
    return RestoredPage(int(rows[-1]["number"]) if rows else 0, tuple(unfinished))


def _stored(scope: str) -> Transaction[LineReply | None]:
    reply = yield from idempotency.find(scope)
    if reply is None:
        return None
    call = yield from one("gateway_call_once_get", id=scope, life=idempotency.LIFE_US)
    request_id = "" if call is None else str(call["call_id"])
    return LineReply(reply.status, request_id, reply.body, scope=scope)


def _owners(batch: Batch) -> tuple[str, ...]:
    """Return the possible owners of stored responses (`Principal.replays`): a key's limits can change."""
    if batch.key_id is None:
        return Tenant(batch.account_id).id, Tenant(batch.account_id, keyless=True).id
    credential_id = batch.grant_id or batch.key_id
    return tuple(
        {Tenant(batch.account_id, credential_id=each).id for each in (batch.credential_id, credential_id)}
    )
