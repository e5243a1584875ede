"""API keys: 256 random bits, shown once, stored as a hash, with rights and limits."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import rights
from sixfold.core.accounts.rights import Access, Rights
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Query, Row, Transaction, one

Authentication = Literal["key", "oauth", "session", "local", "anonymous"]
Origin = Literal["key", "oauth"]
_NOBODY = "-"  # created nothing
_MANAGE = int(Rights.ACCOUNT_MANAGE)
FRESH_MINUTES = 10  # for how long a sign-in admits to `account.manage`
PROGRAM_RIGHTS = {  # by OAuth scope
    "memory": rights.MEMORY,
    "memory.read": Rights.MEMORY_READ,
    "models": Rights.RUN | rights.MEMORY,
}


class Scope(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limits of a key; an absent limit is no limit. Money in micro-dollars.

    `read_only` and `memory` say in the words of the version before what rights say now: a server of that
    version, which runs while this one is installed, reads nothing else.
    """

    read_only: bool = False
    collections: tuple[str, ...] = ()
    services: tuple[str, ...] = ()
    budget_day: int | None = None
    budget_month: int | None = None
    rpm: int | None = None
    tpm: int | None = None
    memory: bool = False

    @property
    def most_rights(self) -> Rights:
        """The rights that a key with these limits may have."""
        if self.read_only:
            return Rights.MEMORY_READ
        if self.is_memory_only:
            return rights.MEMORY
        has_budget = self.budget_day is not None or self.budget_month is not None
        return rights.LIMITED if self.services or has_budget else rights.ALL

    @property
    def usual_rights(self) -> Rights:
        """The rights of a key with these limits for which nobody names any."""
        if self.services and not self.is_memory_only:
            return Rights.RUN
        return rights.STANDARD & self.most_rights

    @property
    def is_memory_only(self) -> bool:
        """Whether the limits leave the memory alone."""
        return self.memory or self.read_only or bool(self.collections)


UNLIMITED = Scope()


@dataclass(frozen=True, slots=True)
class Principal:
    """On whose behalf a request or an order is made: the account, and what the credential may do.

    `keyless` is the operator on the server's own machine without a key. `signed_in_at` is the time of a
    session's last sign-in in epoch µs, `is_fresh` whether that was within the last `FRESH_MINUTES`.
    `below_zero` is set for a customer with a negative balance, who may run nothing. `grant_id` is the OAuth
    grant of a program's key.
    """

    account_id: str
    kind: str
    email: str
    key_id: str | None = None
    scope: Scope = UNLIMITED
    keyless: bool = False
    rights: Rights = rights.NONE
    authentication: Authentication = "key"
    signed_in_at: int | None = None
    is_fresh: bool = False
    role: str = "owner"
    below_zero: bool = False
    grant_id: str | None = None

    @property
    def organization_id(self) -> str:
        """The organization of the account; each account is its own."""
        return self.account_id

    @property
    def team_id(self) -> str:
        """The team within the organization; each account is its own."""
        return self.account_id

    @property
    def is_operator(self) -> bool:
        """Whether this is the account of whoever runs the server."""
        return self.kind == "operator"

    @property
    def credential_id(self) -> str:
        """The grant or key whose work alone it sees; empty with `account.read` and without a key."""
        if self.keyless or self.has(Rights.ACCOUNT_READ):
            return ""
        return self.grant_id or self.key_id or _NOBODY

    @property
    def tenant(self) -> Tenant:
        """Whose work it sees."""
        return Tenant.of(self)

    @property
    def replays(self) -> str:
        """Whose kept answers repeated requests get: a key with limits on what it uses gets its own alone."""
        own = self.credential_id
        if self.scope.services or self.scope.collections:
            own = self.grant_id or self.key_id or _NOBODY
        return Tenant(self.account_id, self.keyless, own).id

    def without_key(self) -> Principal:
        """Return the principal of a request without a key, which is booked on the same account."""
        return replace(self, keyless=True, rights=Rights.RUN, authentication="local")

    def has(self, right: Rights) -> bool:
        """Whether a right was granted."""
        return not int(right) & ~int(self.rights)

    def require(self, access: Access) -> None:
        """Raise `Forbidden`, naming the right, where this credential lacks what is needed.

        Raises `SignInAgain` where the session's sign-in is too old for it.
        """
        needed = access.bits
        if needed & ~int(self.rights):
            raise errors.Forbidden(_lacking(access.right & ~self.rights, self.authentication))
        if needed & _MANAGE and self.authentication == "session" and not self.is_fresh:
            raise errors.SignInAgain

    def require_all_models(self) -> None:
        """Raise `Forbidden` for a key limited to services: a model that it replaced would pass its limit."""
        if self.scope.services:
            raise errors.Forbidden(
                f"This key may not import or remove models: it is limited to {shown(self.scope.services)}"
            )

    def permit(self, model: str, *others: str) -> None:
        """Raise `Forbidden` where a limit on services covers neither `model` nor any of `others`."""
        allowed = self.scope.services
        if allowed and model not in allowed and not covers(allowed, others):
            raise errors.Forbidden(f"This key may not use {model[:100]}: it is limited to {shown(allowed)}")


def covers(allowed: Collection[str], named: Collection[str]) -> bool:
    """Whether any name is among those that a key is limited to."""
    return any(name in allowed for name in named)


def shown(allowed: Collection[str]) -> str:
    """Return what a key is limited to, as part of a sentence."""
    text = ", ".join(allowed)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _lacking(missing: Rights, authentication: Authentication) -> str:
    named = " and ".join(rights.names(missing))
    whose = {"session": "this account", "local": "a request without a key", "anonymous": "a stranger"}
    return f"This needs the right {named}, which {whose.get(authentication, 'this key')} does not have"


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key as it is shown once."""

    id: str
    api_key: str


def create(
    account_id: str,
    scope: Scope | None = None,
    expires_at: int | None = None,
    *,
    granted: Rights | None = None,
    origin: Origin = "key",
    grant_id: str | None = None,
) -> Transaction[NewKey]:
    """A fresh key of an account; `expires_at` in epoch µs. Without `granted` it has the usual rights.

    `grant_id` names the grant of a program's access token. Raises `BadRequest` for rights that its limits, or
    its account, do not allow.
    """
    limits = scope or UNLIMITED
    wanted = limits.usual_rights if granted is None else granted
    yield from _check(account_id, wanted, limits)
    key = NewKey(ids.new("key"), ids.secret("sf"))
    yield Query(
        "key_insert",
        {
            "id": key.id,
            "account_id": account_id,
            "hash": hash_of(key.api_key),
            "hint": key.api_key[-4:],
            "scope": msgspec.json.encode(_for_version_before(limits, wanted)).decode(),
            "rights": rights.encode(wanted),
            "origin": origin,
            "expires_at": expires_at,
            "grant_id": grant_id,
        },
    )
    yield Query(
        "audit_insert",
        {"id": ids.new("aud"), "account_id": account_id, "action": "key.create", "detail": key.id},
    )
    return key


def _check(account_id: str, wanted: Rights, limits: Scope) -> Transaction[None]:
    if not wanted:
        raise errors.BadRequest(f"A key needs a right: {', '.join(rights.BY_NAME)}")
    refused = rights.names(wanted & ~limits.most_rights)
    if refused:
        most = ", ".join(rights.names(limits.most_rights))
        raise errors.BadRequest(f"A key with these limits cannot have {', '.join(refused)}: at most {most}")
    if wanted & Rights.OPERATE:
        row = yield from one("account_by_id", id=account_id)
        if row is None or row["kind"] != "operator":
            raise errors.BadRequest("Only a key of the operator's account can have operate")


def _for_version_before(limits: Scope, wanted: Rights) -> Scope:
    """The limits with the flags by which the version before narrows a key."""
    memory_only = not wanted & Rights.RUN
    return msgspec.structs.replace(
        limits,
        memory=limits.memory or memory_only,
        read_only=limits.read_only or (memory_only and not wanted & Rights.MEMORY_WRITE),
    )


def authenticate(api_key: str) -> Transaction[Principal]:
    """The principal of a key; raises `Unauthenticated` when it is unknown, revoked or expired."""
    row = yield from one("key_by_hash", hash=hash_of(api_key))
    if row is None:
        raise errors.Unauthenticated
    return _principal(row)


def by_id(key_id: str) -> Transaction[Principal | None]:
    """The principal of a key by its id, also of one that has ended: for work that it began."""
    row = yield from one("key_by_id", id=key_id)
    return None if row is None else _principal(row)


def _principal(row: Row) -> Principal:
    scope = scope_of(row)
    found = rights_of(row)
    return Principal(
        account_id=row["account_id"],
        kind=row["kind"],
        email=row["email"] or "",
        key_id=row["key_id"],
        scope=scope,
        rights=found if row["kind"] == "operator" else found & ~Rights.OPERATE,
        authentication="oauth" if row["origin"] == "oauth" or row["program"] else "key",
        below_zero=bool(row["below_zero"]),
        grant_id=row["grant_id"],
    )


def scope_of(row: Row) -> Scope:
    """The limits of a key in the database."""
    return msgspec.json.decode(row["scope"], type=Scope)


def rights_of(row: Row) -> Rights:
    """The rights of a key in the database.

    A server of the version before stores none: they follow from the limits, and for a program from what it
    was granted.
    """
    if row["rights"] is not None:
        return rights.decode(row["rights"])
    if row["program"] is not None:
        return of_program(row["program"].split())
    scope = scope_of(row)
    if scope == UNLIMITED and row["kind"] == "operator":
        return rights.ALL
    if scope.services and scope.is_memory_only:  # that version lets it do nothing
        return rights.NONE
    return scope.usual_rights


def of_program(scopes: Collection[str]) -> Rights:
    """The rights that OAuth scopes grant; an unknown scope grants nothing."""
    found = rights.NONE
    for scope in scopes:
        found |= PROGRAM_RIGHTS.get(scope, rights.NONE)
    return found


def of_account(account_id: str) -> Transaction[tuple[Row, ...]]:
    """Every key of an account, newest first, without its secret."""
    rows = yield Query("keys_of", {"account_id": account_id})
    return tuple(rows)


def revoke(key_id: str) -> Transaction[None]:
    """End a key at once, and the grant of a program whose access token it is, with its refresh tokens.

    Raises `NotFound` when it is unknown or was revoked before.
    """
    rows = yield Query("key_revoke", {"id": key_id})
    if not rows:
        raise errors.NotFound(f"There is no live key {key_id}")
    yield Query("oauth_grant_end_of_key", {"key_id": key_id})
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
