"""API keys: 256 random bits, displayed once and stored as a hash, with rights and limits."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import audit_log, rights
from sixfold.core.accounts.rights import Access, Rights, Role
from sixfold.core.accounts.tenants import MemoryAccess, Tenant
from sixfold.core.database import Query, Row, Transaction, Value, encode_json, one

Authentication = Literal["key", "oauth", "session", "local", "anonymous"]
Origin = Literal["key", "oauth"]
# A credential id that matches no work, so its holder sees none.
_NO_CREDENTIAL = "-"
_MANAGE = int(Rights.ACCOUNT_MANAGE)
# Keys with these rights share stored responses: no response contains data that one of them may not access.
_SHARED_REPLAYS = Rights.RUN | rights.MEMORY | Rights.ACCOUNT_READ
# The rights that a suspension removes: all except the rights to read, export and close the account.
SUSPENDED = "This account is suspended: ask the operator of this server"
_CLOSED = "This account is closed and will be erased: until then, you can export its data on /account/data"
_SUSPENDED_REFUSED = int(rights.ALL & ~(Rights.ACCOUNT_READ | Rights.ACCOUNT_MANAGE))
_CHANGED = "The rights of this credential have changed since the request began: send the request again"
MAX_NAME = 60
# Maximum number of keys in a list.
MAX_LISTED = 2_000
# How many minutes after a login its session may use `account.manage`.
FRESH_MINUTES = 10
_NEEDED_ROLES = {
    "admin": "Only the owner and the admins of this organization may do this",
    "owner": "Only the owner of this organization may do this",
    "person": "An organization cannot change the sign-in of a person: switch to your own account first",
}
# Rights by OAuth scope.
PROGRAM_RIGHTS = {
    "memory": rights.MEMORY,
    "memory.read": Rights.MEMORY_READ,
    "models": Rights.RUN | rights.MEMORY,
}


class KeyLimits(msgspec.Struct, frozen=True, omit_defaults=True):
    """The limits of a key; None or empty means unlimited. Amounts are in micro-dollars.

    `read_only` and `memory` duplicate the rights in the form that the previous version reads: its servers may
    still run during an upgrade, and do not support rights.
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
    def max_rights(self) -> Rights:
        """The maximum rights of a key with these limits."""
        if self.read_only:
            return Rights.MEMORY_READ
        if self.is_memory_only:
            return rights.MEMORY
        has_budget = self.budget_day is not None or self.budget_month is not None
        return rights.LIMITED if self.services or has_budget else rights.ALL

    @property
    def default_rights(self) -> Rights:
        """The rights of a key with these limits, if its creator does not specify rights."""
        return rights.STANDARD & self.max_rights

    @property
    def is_memory_only(self) -> bool:
        """Whether these limits restrict the key to the memory."""
        return self.memory or self.read_only or bool(self.collections)


UNLIMITED = KeyLimits()


class Budget(NamedTuple):
    """The spending limits, in micro-dollars or None, of the key, member, team or organization `id`."""

    id: str
    day: int | None = None
    month: int | None = None


class Principal(msgspec.Struct, frozen=True):
    """The caller of a request: the account, and the rights and limits of the credential.

    `keyless` is set for the operator on the server's machine without a key. `signed_in_at` is the time of a
    session's last login in epoch µs, and `is_fresh` states whether it was within the last `FRESH_MINUTES`.
    `below_zero` is set for a customer with a negative balance, who cannot run models. `grant_id` is the OAuth
    grant of a client's key. A member of an organization has a `member_id`, and in a browser the `key_id` of
    the key that represents the member; `budgets` are the budgets of the member, team and organization.
    """

    account_id: str
    kind: str
    email: str
    key_id: str | None = None
    scope: KeyLimits = UNLIMITED
    keyless: bool = False
    rights: Rights = rights.NONE
    authentication: Authentication = "key"
    signed_in_at: int | None = None
    is_fresh: bool = False
    role: Role = "person"
    below_zero: bool = False
    grant_id: str | None = None
    member_id: str | None = None
    team_id: str | None = None
    budgets: tuple[Budget, ...] = ()
    # Set by the operator: the user can only view and manage the account, and cannot grant access to others.
    suspended: bool = False
    # Of sessions: the account or its user is closed, and the same applies until it is erased.
    closed: bool = False
    # The guardrail of the key or its account as JSON, or an empty string.
    guardrail: str = ""
    # The number of days for which requests and responses are logged; 0 disables the log.
    content_days: int = 0
    # The shared folder whose memory the request addresses, or None for the memory of the account.
    memory: MemoryAccess | None = None
    # The key that this key replaced, if its budgets and rates count for both.
    first_key_id: str | None = None
    # The key whose rates also limit this key, because this key was created with it.
    rates_id: str | None = None

    @property
    def organization_id(self) -> str:
        """The organization of the account: an account is an organization, usually with one member."""
        return self.account_id

    @property
    def is_operator(self) -> bool:
        """Whether this is the account of the operator, who runs this server."""
        return self.kind == "operator"

    @property
    def limit_id(self) -> str | None:
        """The key whose budgets count the requests: the first of a chain of replaced keys."""
        return self.first_key_id or self.key_id

    @property
    def rate_id(self) -> str | None:
        """The key whose rates count the requests: that of `limit_id`, or the one that created it."""
        return self.rates_id or self.limit_id

    @property
    def credential_id(self) -> str:
        """The OAuth grant or key whose work is visible; empty with `account.read` or without a key."""
        if self.keyless or self.has(Rights.ACCOUNT_READ):
            return ""
        return self.grant_id or self.key_id or _NO_CREDENTIAL

    @property
    def sharing_key_id(self) -> str | None:
        """The key that ends what this principal shares; None in a browser and for OAuth clients."""
        return self.key_id if self.authentication == "key" else None

    @property
    def tenant(self) -> Tenant:
        """The tenant whose work this principal sees."""
        return Tenant.of(self)

    @property
    def replays(self) -> str:
        """The owner of stored responses for `Idempotency-Key`.

        A key that lacks a right or is limited to models or collections has separate responses, because a
        response of another key may contain data that this key may not access.
        """
        own = self.credential_id
        if self.scope.services or self.scope.collections or not (self.keyless or self.has(_SHARED_REPLAYS)):
            own = self.grant_id or self.key_id or _NO_CREDENTIAL
        tenant = Tenant(self.account_id, self.keyless, own).id
        return tenant if self.memory is None else f"{tenant}/{self.memory.id}"

    def without_key(self) -> Principal:
        """Return the principal of a request without a key, charged to the same account."""
        return replace(self, keyless=True, rights=Rights.RUN, authentication="local")

    def has(self, right: Rights) -> bool:
        return not int(right) & ~int(self.rights)

    def require(self, access: Access) -> None:
        """Raise `Forbidden` if this credential lacks the right that `access` requires.

        Raises `SignInAgain` if the right requires a recent login and the session's login is too old.
        """
        required_rights = access.bits
        if (self.suspended or self.closed) and (required_rights & _SUSPENDED_REFUSED or access.grants):
            raise errors.Forbidden(SUSPENDED if self.suspended else _CLOSED)
        if required_rights & ~int(self.rights):
            raise errors.Forbidden(rights.missing_text(access.right & ~self.rights, self.authentication))
        if rights.ROLES.index(self.role) < rights.ROLES.index(access.role):
            raise errors.Forbidden(_NEEDED_ROLES[access.role])
        if required_rights & _MANAGE and self.authentication == "session" and not self.is_fresh:
            raise errors.SignInAgain

    def require_unchanged(self, current: Principal) -> None:
        """Raise `Forbidden` if the rights, limits, role or membership of this credential have changed."""
        names = ("rights", "scope", "role", "member_id", "suspended", "closed")
        if any(getattr(self, name) != getattr(current, name) for name in names):
            raise errors.Forbidden(_CHANGED)

    def require_grantable(self, key_rights: Rights) -> None:
        """Raise `Forbidden` if this credential lacks one of the rights that it would grant to others."""
        if lacking := rights.names(key_rights & ~self.rights):
            raise errors.Forbidden(f"This key may not grant the rights {', '.join(lacking)}, which it lacks")

    def require_all_models(self) -> None:
        """Raise `Forbidden` for a key limited to certain models, which replacing a model would bypass."""
        if self.scope.services:
            limit = format_limit(self.scope.services)
            raise errors.Forbidden(
                f"This key may not import or remove models, because it may use only {limit}"
            )

    def permit(self, model: str, *others: str) -> None:
        """Raise `Forbidden` if the key's limit on models includes neither `model` nor any of `others`."""
        if not self.allows(model, *others):
            limit = format_limit(self.scope.services)
            raise errors.Forbidden(f"This key may not use {model[:100]}: it may use only {limit}")

    def allows(self, *names: str) -> bool:
        """Return whether the key's limit on models includes any of the names; True without a limit."""
        return not self.scope.services or covers(self.scope.services, names)


def covers(allowed: Collection[str], names: Collection[str]) -> bool:
    """Return whether a key's limit includes any of the names."""
    return any(name in allowed for name in names)


def format_limit(allowed: Collection[str]) -> str:
    """Format a key's limit for an error message, cut to 200 characters."""
    text = ", ".join(allowed)
    return text if len(text) <= 200 else f"{text[:200]}…"


class NewKey(msgspec.Struct, frozen=True):
    """A created key with its secret, which is displayed only once."""

    id: str
    api_key: str


class Holder(NamedTuple):
    """The holder of a key within an organization: a member, a team, or else the account itself.

    `grant_id` is the OAuth grant if the key is an access token; `name` is the holder's name for the key.
    `creator_member_id` is the member who creates the key of a team. If the key is created with another key,
    that is its `parent_id`, and `rates_id` is the key with the rates that also count its requests.
    """

    member_id: str | None = None
    team_id: str | None = None
    grant_id: str | None = None
    name: str = ""
    creator_member_id: str | None = None
    parent_id: str | None = None
    rates_id: str | None = None


ACCOUNT = Holder()


def create(
    account_id: str,
    scope: KeyLimits | None = None,
    expires_at: int | None = None,
    *,
    granted: Rights | None = None,
    origin: Origin = "key",
    holder: Holder = ACCOUNT,
) -> Transaction[NewKey]:
    """Create a key of an account; `expires_at` is in epoch µs.

    If `granted` is None, the key has the default rights.

    `holder` is the member or team to which the key belongs. Raises `BadRequest` if the limits or the account
    do not allow the rights, or if the name is too long.
    """
    limits = scope or UNLIMITED
    key_rights = limits.default_rights if granted is None else granted
    yield from _check(account_id, key_rights, limits)
    key = NewKey(ids.new("key"), ids.secret("sf"))
    yield insert(
        account_id,
        key,
        holder,
        hint=key.api_key[-4:],
        scope=encode_json(_with_legacy_flags(limits, key_rights)),
        rights=rights.encode(key_rights),
        origin=origin,
        expires_at=expires_at,
        name=checked_name(holder.name),
    )
    yield from audit_log.note(account_id, "key.create", key.id)
    return key


def insert(account_id: str, key: NewKey, holder: Holder, **columns: Value) -> Query:
    """Return the query that inserts a key; `columns` are its hint, scope, rights and optional columns."""
    row = {"id": key.id, "account_id": account_id, "hash": hash_of(key.api_key), **holder._asdict()}
    return Query("key_insert", {"origin": "key", "expires_at": None, **row, **columns})


def checked_name(name: str) -> str:
    """Return a name with single spaces; raises `BadRequest` if it is too long or not printable."""
    text = " ".join(name.split())
    if len(text) > MAX_NAME or not text.isprintable():
        raise errors.BadRequest(f"A key name must have at most {MAX_NAME} printable characters")
    return text


def _check(account_id: str, requested_rights: Rights, limits: KeyLimits) -> Transaction[None]:
    if not requested_rights:
        raise errors.BadRequest(f"A key must have at least one of the rights {', '.join(rights.BY_NAME)}")
    refused_rights = rights.names(requested_rights & ~limits.max_rights)
    if refused_rights:
        allowed_rights = ", ".join(rights.names(limits.max_rights))
        raise errors.BadRequest(
            f"A key with these limits cannot have the rights {', '.join(refused_rights)}: "
            f"it can have {allowed_rights}"
        )
    if requested_rights & Rights.OPERATE:
        row = yield from one("account_by_id", id=account_id)
        if row is None or row["kind"] != "operator":
            raise errors.BadRequest("Only a key of the operator's account can have the right operate")


def _with_legacy_flags(limits: KeyLimits, key_rights: Rights) -> KeyLimits:
    """Return the limits with the flags from which servers of the previous version derive rights."""
    memory_only = not key_rights & Rights.RUN
    return msgspec.structs.replace(
        limits,
        memory=limits.memory or memory_only,
        read_only=limits.read_only or (memory_only and not key_rights & Rights.MEMORY_WRITE),
    )


def authenticate(api_key: str) -> Transaction[Principal]:
    """Return the principal of a key; raises `Unauthenticated` if it is unknown, revoked or expired."""
    row = yield from one("key_by_hash", hash=hash_of(api_key))
    if row is None:
        raise errors.Unauthenticated
    return _principal(row)


def by_id(key_id: str) -> Transaction[Principal | None]:
    """Return the principal of a key, even if revoked or expired, for work started earlier, or None."""
    row = yield from one("key_by_id", id=key_id)
    return None if row is None else _principal(row)


def _principal(row: Row) -> Principal:
    scope = scope_of(row)
    role = role_of(row)
    # The rights of an OAuth client or a key end with the rights of the member.
    key_rights = rights_of(row) & rights.OF_ROLE[role]
    return Principal(
        account_id=row["account_id"],
        kind=row["kind"],
        email=row["email"] or "",
        key_id=row["key_id"],
        scope=scope,
        rights=key_rights if row["kind"] == "operator" else key_rights & ~Rights.OPERATE,
        authentication="oauth" if row["origin"] == "oauth" or row["program"] else "key",
        role=role,
        below_zero=bool(row["below_zero"]),
        grant_id=row["grant_id"],
        member_id=row["member_id"],
        team_id=row["team_id"],
        budgets=budgets_of(row, row["account_id"]),
        suspended=row["suspended_at"] is not None,
        guardrail=row["guardrail"] or "",
        content_days=row["content_days"] or 0,
        first_key_id=row["budget_id"],
        rates_id=row["rates_id"],
    )


def role_of(row: Row) -> Role:
    """Return a key's role: its member's role, the lowest for a team, or `person` for the account's key."""
    if row["member_id"] is None:
        return "person" if row["team_id"] is None else "member"
    return row["role"] or "member"


def budgets_of(row: Row, account_id: str) -> tuple[Budget, ...]:
    """Return the budgets in a key's or session's row: of the member, the team, and the organization.

    Spending of members and teams is counted even without a limit, for their reports; that of an organization
    only if it has a budget.
    """
    budgets: list[Budget] = []
    if row["member_id"] is not None:
        budgets.append(Budget(row["member_id"], row["member_day"], row["member_month"]))
    if row["team_id"] is not None:
        budgets.append(Budget(row["team_id"], row["team_day"], row["team_month"]))
    day = lower_budget(row["budget_day"], row["operator_day"])
    month = lower_budget(row["budget_month"], row["operator_month"])
    if day is not None or month is not None:
        budgets.append(Budget(account_id, day, month))
    return tuple(budgets)


def lower_budget(first: int | None, second: int | None) -> int | None:
    """Return the lower one of two budgets, of which each may be None."""
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)


def scope_of(row: Row) -> KeyLimits:
    """Parse the limits in a key's row."""
    return msgspec.json.decode(row["scope"], type=KeyLimits)


def rights_of(row: Row) -> Rights:
    """Return the rights in a key's row.

    Servers of the previous version do not store rights; the rights are then derived from the limits, or for
    an OAuth client from its scopes.
    """
    if row["rights"] is not None:
        return rights.decode(row["rights"])
    if row["program"] is not None:
        return rights_of_scopes(row["program"].split())
    scope = scope_of(row)
    if scope == UNLIMITED and row["kind"] == "operator":
        return rights.ALL
    if scope.services and scope.is_memory_only:
        # The previous version rejects every request of such a key.
        return rights.NONE
    # This also rejects all operations except running models for a key that is limited to services.
    return Rights.RUN if scope.services else scope.default_rights


def rights_of_scopes(scopes: Collection[str]) -> Rights:
    """Return the rights that OAuth scopes grant; unknown scopes are ignored."""
    union = rights.NONE
    for scope in scopes:
        union |= PROGRAM_RIGHTS.get(scope, rights.NONE)
    return union


def of_account(account_id: str, limit: int = MAX_LISTED) -> Transaction[tuple[Row, ...]]:
    """Return an account's newest keys without their secrets, except keys that represent members."""
    return tuple((yield Query("keys_of", {"account_id": account_id, "limit": limit})))


def live(account_id: str) -> Transaction[tuple[Row, ...]]:
    """Return the keys of `of_account` that are not revoked and do not belong to an OAuth client."""
    return tuple((yield Query("keys_live", {"account_id": account_id, "limit": MAX_LISTED})))


def find(account_id: str, key_id: str) -> Transaction[Row]:
    """Return the id and the member of a key of `of_account`; raises `NotFound`."""
    row = yield from one("key_listed", account_id=account_id, id=key_id)
    if row is None:
        raise errors.NotFound(f"Key {key_id[:60]} not found")
    return row


def revoke(key_id: str) -> Transaction[None]:
    """Revoke a key with the keys that were created with it; if it is an access token, end its OAuth grant.

    Raises `NotFound` if the key is unknown or already revoked.
    """
    rows = yield Query("key_revoke", {"id": key_id})
    if not rows:
        raise errors.NotFound(f"Key {key_id} not found, or already revoked")
    yield Query("oauth_grant_end_of_key", {"key_id": key_id})
    yield from audit_log.note(rows[0]["account_id"], "key.revoke", key_id)
    yield from end_derived()


def end_derived() -> Transaction[None]:
    """Revoke the keys that were created with keys that are revoked, and let others expire with theirs."""
    while rows := (yield Query("keys_end_derived", {})):
        for row in rows:
            if row["revoked_at"] is not None:
                yield from audit_log.note(row["account_id"], "key.revoke", row["id"])


def hash_of(secret: str) -> bytes:
    """Return the SHA-256 of a secret; a secret has 256 random bits, so a slow hash is not needed."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
