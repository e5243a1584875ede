"""Idempotency-Key: the same request twice is one effect and one answer.

A key is claimed before its request runs and keeps the answer afterwards. A claim remembers the
server's boot, so that a request whose server died can be asked again: whatever it had put on the road
is found there by the same id (`predictions.idempotency_id`), never made twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from sixfold import errors
from sixfold.core.clock import DAY_US
from sixfold.core.database import Query, Row, Transaction, one

LIFE_US = DAY_US
MAX_KEY_CHARS = 255
NOT_KEPT = frozenset({400, 401, 402, 429, 503})


@dataclass(frozen=True, slots=True)
class ClaimedRequest:
    """This request is the first with its key, or its first one's server died: run it."""


@dataclass(frozen=True, slots=True)
class RequestInProgress:
    """The first request with this key still runs on `boot`."""

    boot: str


@dataclass(frozen=True, slots=True)
class StoredReply:
    """The answer that the first request got."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Verdict = ClaimedRequest | RequestInProgress | StoredReply


def scope_id(account_id: str, method: str, path: str, key: str) -> str:
    """The id under which an account's key for a method and path is kept."""
    joined = "\0".join((account_id, method, path, key))
    return hashlib.sha256(joined.encode("utf-8", "surrogatepass")).hexdigest()


def begin(scope: str, body_hash: bytes, boot: str) -> Transaction[Verdict]:
    """Claim a key, or tell what became of it; raises `IdempotencyMismatch` for another body."""
    made = yield Query("idempotency_insert", {"id": scope, "body_hash": body_hash, "boot": boot})
    if made:
        return ClaimedRequest()
    row = yield from one("idempotency_get", id=scope)
    if row is None:  # swept between the two: the next try claims it
        return RequestInProgress(boot)
    if bytes(row["body_hash"]) != body_hash:
        raise errors.IdempotencyMismatch
    if row["status"] is not None:
        return _kept(row)
    if row["boot"] == boot:
        return RequestInProgress(boot)
    adopted = yield Query("idempotency_adopt", {"id": scope, "boot": boot, "old_boot": row["boot"]})
    return ClaimedRequest() if adopted else RequestInProgress(str(row["boot"]))


def look(scope: str) -> Transaction[StoredReply | None]:
    """The answer, once there is one."""
    row = yield from one("idempotency_get", id=scope)
    return _kept(row) if row is not None and row["status"] is not None else None


def finish(scope: str, answer: StoredReply) -> Transaction[None]:
    """Keep the answer for 24 hours, or free the key when answers of its status are not kept."""
    if answer.status in NOT_KEPT:
        yield Query("idempotency_forget", {"id": scope})
        return
    yield Query(
        "idempotency_finish",
        {
            "id": scope,
            "status": answer.status,
            "headers": msgspec.json.encode(answer.headers).decode(),
            "body": answer.body,
        },
    )


def forget(scope: str) -> Transaction[None]:
    """Free the key: its request ended without an answer."""
    yield Query("idempotency_forget", {"id": scope})


def sweep(now: int) -> Transaction[int]:
    """Forget answers older than a day, and which predictions they led to; gives how many."""
    gone = yield Query("idempotency_sweep", {"before": now - LIFE_US})
    for row in gone:
        yield Query("prediction_forget_key", {"idempotency_id": row["id"]})
    return len(gone)


def _kept(row: Row) -> StoredReply:
    return StoredReply(
        int(row["status"]), msgspec.json.decode(row["headers"], type=dict[str, str]), bytes(row["body"])
    )
