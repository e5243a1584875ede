"""The stored guardrails of accounts and keys."""

from __future__ import annotations

from collections.abc import Sequence

from sixfold import errors
from sixfold.core.database import Query, Row, Rows, Transaction, encode_json, many, now, one
from sixfold.core.gateway.guardrails import models
from sixfold.core.gateway.guardrails.models import Guardrail


def set_guardrail(
    account_id: str, key_id: str, guardrail: Guardrail, member_id: str | None = None
) -> Transaction[int]:
    """Store the guardrail of a key, or of the account if `key_id` is empty; return the time in epoch µs.

    The hook ends with the role of the member who set it. Raises `NotFound` for a key of another account.
    """
    yield from _check_key(account_id, key_id)
    document = encode_json(guardrail)
    row = {"account_id": account_id, "key_id": key_id, "document": document, "member_id": member_id}
    yield Query("guardrail_set", row)
    return (yield from now())


def remove_guardrail(account_id: str, key_id: str) -> Transaction[None]:
    """Delete the guardrail of a key or of the account; raises `NotFound` if it does not exist."""
    if not (yield Query("guardrail_delete", {"account_id": account_id, "key_id": key_id})):
        of = f"The key {key_id[:100]}" if key_id else "The account"
        raise errors.NotFound(f"{of} does not have its own guardrail")


def guardrails_of(account_id: str) -> Transaction[Sequence[Row]]:
    """Return the guardrails of an account, followed by those of its keys."""
    rows: Rows = yield from many("guardrails_of", account_id=account_id)
    return rows


def stored_guardrail(account_id: str, key_id: str) -> Transaction[tuple[Guardrail | None, str | None]]:
    """Return the guardrail of a key or of the account, and the member who set its hook."""
    row = yield from one("guardrail_stored", account_id=account_id, key_id=key_id)
    return (None, None) if row is None else (models.decode(str(row["document"])), row["member_id"])


def keys_with_guardrail(account_id: str, limit: int) -> Transaction[tuple[str, ...]]:
    """Return the ids of up to `limit` keys that have their own guardrail."""
    rows = yield from many("guardrail_keys", account_id=account_id, limit=limit)
    return tuple(str(row["key_id"]) for row in rows)


def account_guardrail(account_id: str) -> Transaction[str]:
    """Return the account's guardrail as JSON, or an empty string."""
    row = yield from one("guardrail_get", account_id=account_id, key_id="")
    return "" if row is None else str(row["document"])


def _check_key(account_id: str, key_id: str) -> Transaction[None]:
    if not key_id:
        return
    row = yield from one("key_by_id", id=key_id)
    if row is None or row["account_id"] != account_id:
        raise errors.NotFound(f"Key {key_id[:100]} not found")
