"""API keys: 256 random bits, shown once, kept as a hash, limited by a scope."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.database import Query, Row, Transaction, one


class Scope(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a key may do; an absent limit is no limit. Money in micro-dollars."""

    read_only: bool = False
    collections: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    budget_day: int | None = None
    budget_month: int | None = None
    rpm: int | None = None
    tpm: int | None = None
    memory: bool = False

    @property
    def memory_only(self) -> bool:
        """Keys limited to the memory, to collections or to reading reach the memory and nothing else."""
        return self.memory or self.read_only or bool(self.collections)

    @property
    def may_write(self) -> bool:
        """Whether a key may change pages of the memory, in its collections where it is limited to some."""
        return not self.read_only


UNLIMITED = Scope()


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever a request speaks for. `keyless` is the operator on his own loopback."""

    account_id: str
    kind: str
    email: str
    key_id: str | None = None
    scope: Scope = UNLIMITED
    keyless: bool = False

    @property
    def is_operator(self) -> bool:
        """Whether this is the account of whoever runs the server."""
        return self.kind == "operator"

    def require_models(self) -> None:
        """Raise `Forbidden` for a key of the memory alone."""
        if self.scope.memory_only:
            raise errors.Forbidden("This key reaches the memory only")

    def require_service(self, service: str) -> None:
        """Raise `Forbidden` when the key may not use `service`."""
        self.require_models()
        if self.scope.services and service not in self.scope.services:
            raise errors.Forbidden(f"This key may not use {service}")


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key as it is shown once."""

    id: str
    api_key: str


def create(account_id: str, scope: Scope | None = None, expires_at: int | None = None) -> Transaction[NewKey]:
    """A fresh key of an account; `expires_at` in epoch µs."""
    key = NewKey(ids.new("key"), ids.secret("sf"))
    yield Query(
        "key_insert",
        {
            "id": key.id,
            "account_id": account_id,
            "hash": hash_of(key.api_key),
            "hint": key.api_key[-4:],
            "scope": msgspec.json.encode(scope or UNLIMITED).decode(),
            "expires_at": expires_at,
        },
    )
    yield Query(
        "audit_insert",
        {"id": ids.new("aud"), "account_id": account_id, "action": "key.create", "detail": key.id},
    )
    return key


def authenticate(api_key: str) -> Transaction[Principal]:
    """Whom a key speaks for; raises `Unauthenticated` when it is unknown, revoked or expired."""
    row = yield from one("key_by_hash", hash=hash_of(api_key))
    if row is None:
        raise errors.Unauthenticated
    return Principal(
        account_id=row["account_id"],
        kind=row["kind"],
        email=row["email"] or "",
        key_id=row["key_id"],
        scope=msgspec.json.decode(row["scope"], type=Scope),
    )


def of_account(account_id: str) -> Transaction[tuple[Row, ...]]:
    """Every key of an account, newest first, without its secret."""
    rows = yield Query("keys_of", {"account_id": account_id})
    return tuple(rows)


def revoke(key_id: str) -> Transaction[None]:
    """End a key at once; raises `NotFound` when it is unknown or was revoked before."""
    rows = yield Query("key_revoke", {"id": key_id})
    if not rows:
        raise errors.NotFound(f"There is no live key {key_id}")
    yield Query(
        "audit_insert",
        {
            "id": ids.new("aud"),
            "account_id": rows[0]["account_id"],
            "action": "key.revoke",
            "detail": key_id,
        },
    )


def hash_of(secret: str) -> bytes:
    """SHA-256: the secret has 256 random bits, so no slow hash is needed."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
