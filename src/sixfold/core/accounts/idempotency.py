"""The `Idempotency-Key` header: a repeated request takes effect once and gets the same response.

A key is claimed before its request runs, and stores the response afterwards. The claim names the server
process (`boot`), so another process can take over the claim if that process dies. A prediction that the first
attempt had already created is found by its id (`predictions.idempotency_id`) and not created again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import msgspec

from sixfold import errors
from sixfold.core.clock import DAY_US, HOUR_US, SECOND_US
from sixfold.core.database import Query, Row, Transaction, Value, encode_json, one

LIFE_US = DAY_US
# Used in place of the HTTP method for lines of batches: a client that repeats the key of a line must not get
# its call for free after the line's response was moved to the batch.
BATCH_LINE = "BATCH"
MAX_KEY_CHARS = 255
NOT_STORED = frozenset({400, 401, 402, 429, 503})


class ClaimedRequest(msgspec.Struct, frozen=True):
    """The caller has claimed the key, as the first caller or after a server process died.

    The caller must run the request. The server process `boot` and the time `claimed_at` (epoch µs) identify
    the claim; a time of 0 stands for any claim of the key.
    """

    boot: str = ""
    claimed_at: int = 0

    @property
    def row(self) -> Mapping[str, Value]:
        """The parameters of queries that change only this claim."""
        return {"boot": self.boot, "claimed_at": self.claimed_at}


class RequestInProgress(msgspec.Struct, frozen=True):
    """The first request with this key is still running under `claim`."""

    claim: ClaimedRequest

    @property
    def boot(self) -> str:
        """The server process that runs the request; empty if any may adopt the claim."""
        return self.claim.boot


class StoredReply(msgspec.Struct, frozen=True):
    """The response to the first request."""

    status: int
    headers: Mapping[str, str]
    body: bytes


ClaimResult = ClaimedRequest | RequestInProgress | StoredReply
_ANY_CLAIM = ClaimedRequest()


def scope_id(account_id: str, method: str, path: str, key: str) -> str:
    material = "\0".join((account_id, method, path, key))
    return hashlib.sha256(material.encode("utf-8", "surrogatepass")).hexdigest()


def part_id(scope: str | None, number: int) -> str | None:
    """Return the id of one of a request's predictions; the first has the id of the request."""
    return f"{scope}/{number}" if scope is not None and number else scope


def scope_of(part: str) -> str:
    """Return the id of the request to which a prediction's id belongs, as created by `part_id`."""
    return part.partition("/")[0]


def begin(scope: str, body_hash: bytes, boot: str) -> Transaction[ClaimResult]:
    """Claim a key or return its state; raises `IdempotencyMismatch` if the key was used with another body."""
    inserted = yield Query("idempotency_insert", {"id": scope, "body_hash": body_hash, "boot": boot})
    if inserted:
        return ClaimedRequest(boot, int(inserted[0]["created_at"]))
    row = yield from one("idempotency_get", id=scope)
    if row is None:
        # The key expired between the two queries; the caller's next attempt claims it.
        return RequestInProgress(ClaimedRequest(boot))
    if bytes(row["body_hash"]) != body_hash:
        raise errors.IdempotencyMismatch
    if row["status"] is not None:
        return _stored_reply(row)
    claimed_at = int(row["created_at"])
    if row["boot"] != boot and (
        yield Query("idempotency_adopt", {"id": scope, "boot": boot, "old_boot": row["boot"]})
    ):
        return ClaimedRequest(boot, claimed_at)
    return RequestInProgress(ClaimedRequest(str(row["boot"]), claimed_at))


def require_space(account_id: str, max_bytes: int) -> Transaction[None]:
    """Raise `TooManyRequests` if the stored responses of an account have reached a number of bytes.

    They stay after the objects that they contain are deleted, so no other quota counts them.
    """
    row = yield from one("idempotency_usage", account_id=account_id)
    if row is not None and row["reply_bytes"] >= max_bytes:
        raise errors.TooManyRequests(
            f"The responses to this account's requests with an Idempotency-Key take {max_bytes:,} bytes, "
            "which is the limit for 24 hours: retry later, or omit the header",
            retry_after=HOUR_US // SECOND_US,
        )


def finish(
    scope: str,
    reply: StoredReply,
    account_id: str | None = None,
    claim: ClaimedRequest = _ANY_CLAIM,
    *,
    counted: bool = False,
) -> Transaction[None]:
    """Store the response for 24 hours, or release the key if the status is in `NOT_STORED`.

    If it is `counted`, its bytes count for `require_space`. It has no effect if the claim has ended, so that
    it can be repeated after a commit whose result is unknown.
    """
    if reply.status in NOT_STORED:
        yield from forget(scope, claim)
        return
    yield Query(
        "idempotency_finish",
        {
            **claim.row,
            "id": scope,
            "status": reply.status,
            "headers": encode_json(reply.headers),
            "body": reply.body,
            "account_id": account_id,
            "size": len(reply.body) if counted else 0,
        },
    )


def find(scope: str) -> Transaction[StoredReply | None]:
    """Return the response stored for a key, or None if it does not exist or its request has not ended."""
    row = yield from one("idempotency_get", id=scope)
    return None if row is None or row["status"] is None else _stored_reply(row)


def forget(scope: str, claim: ClaimedRequest = _ANY_CLAIM) -> Transaction[None]:
    """Release the key of a request that ended without a response; has no effect if the claim has ended."""
    yield Query("idempotency_forget", {**claim.row, "id": scope})


def abandon(scope: str, claim: ClaimedRequest) -> Transaction[None]:
    """Let any server repeat a request that failed because of the database, which may have stored its effects.

    The claim remains, so that the repetition has the same content and finds these effects. A `claim` without
    a time stands for any unfinished claim of its server process.
    """
    yield Query("idempotency_abandon", {**claim.row, "id": scope})


def sweep(now: int) -> Transaction[int]:
    """Delete responses older than a day and their links to predictions; return the number of responses."""
    deleted = yield Query("idempotency_sweep", {"before": now - LIFE_US})
    for row in deleted:
        yield Query("prediction_forget_key", {"idempotency_id": row["id"]})
    return len(deleted)


def _stored_reply(row: Row) -> StoredReply:
    return StoredReply(
        int(row["status"]), msgspec.json.decode(row["headers"], type=dict[str, str]), bytes(row["body"])
    )
