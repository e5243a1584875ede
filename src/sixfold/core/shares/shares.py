"""Shares of an account: creation, listing, opening by token, view counts and revocation."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core import ids, pagination
from sixfold.core.accounts import audit_log, rights
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.operation import actions
from sixfold.core.accounts.organizations import grantees
from sixfold.core.accounts.organizations.grantees import Grantee
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import DAY_US, SECOND_US, rfc3339
from sixfold.core.database import Query, Row, Transaction, Value, now, one, to_struct
from sixfold.core.shares import objects

MAX_SHARES = 1000
MIN_SECONDS, MAX_SECONDS = 60, 10 * 365 * DAY_US // SECOND_US
# A token has 32 characters, which are 192 bits.
_TOKEN_BYTES = 24
_MAX_TOKEN, _MAX_ID, _MAX_TITLE = 64, 300, 200
_ID_PREFIX = "share_"
_UNKNOWN = "This link does not exist, or its owner has revoked it"
_FIELDS = grantees.FIELDS | {"kind", "id", "include_inputs", "public", "expires_in"}


class ShareDraft(msgspec.Struct, frozen=True):
    """A share to create; `seconds` is its lifetime, or None if it does not expire."""

    kind: objects.ShareKind
    object_id: str
    has_inputs: bool = False
    is_indexed: bool = False
    seconds: int | None = None
    grantee: Grantee = grantees.NOBODY

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> ShareDraft:
        """Parse the fields of a request; raises `InvalidInput`."""
        unknown = sorted(set(fields) - _FIELDS)
        if unknown:
            raise errors.InvalidInput.of(
                unknown[0], f"Unknown field {unknown[0][:40]!r}: use {', '.join(sorted(_FIELDS))}"
            )
        kind = fields.get("kind")
        if kind not in objects.KINDS:
            raise errors.InvalidInput.of("kind", f"kind must be one of {', '.join(objects.KINDS)}")
        object_id = fields.get("id")
        if not isinstance(object_id, str) or not 0 < len(object_id) <= _MAX_ID:
            raise errors.InvalidInput.of(
                "id", f"id must be the id of a {kind}, with at most {_MAX_ID} characters"
            )
        flags = {name: fields.get(name, False) for name in ("include_inputs", "public")}
        for name, value in flags.items():
            if not isinstance(value, bool):
                raise errors.InvalidInput.of(name, f"{name} must be true or false")
        seconds = fields.get("expires_in")
        is_number = isinstance(seconds, int) and not isinstance(seconds, bool)
        if seconds is not None and not (is_number and MIN_SECONDS <= seconds <= MAX_SECONDS):
            raise errors.InvalidInput.of(
                "expires_in",
                f"expires_in must be {MIN_SECONDS} to {MAX_SECONDS} seconds, or null if the share "
                "does not expire",
            )
        grantee = Grantee.of(fields)
        if flags["public"] and any(grantee):
            raise errors.InvalidInput.of("public", "A share with an account or a team cannot be public")
        return cls(kind, object_id, flags["include_inputs"], flags["public"], seconds, grantee)


class Share(msgspec.Struct, frozen=True):
    """A share; times are in epoch µs, and `expires_at` is None if the share does not expire."""

    id: str
    account_id: str
    credential_id: str
    kind: objects.ShareKind
    object_id: str
    title: str
    last_place: int
    has_inputs: bool
    is_indexed: bool
    views: int
    created_at: int
    expires_at: int | None
    grantee: str
    team_id: str

    @classmethod
    def of(cls, row: Row) -> Share:
        has_inputs, is_indexed = bool(row["has_inputs"]), bool(row["is_indexed"])
        return to_struct(cls, row, has_inputs=has_inputs, is_indexed=is_indexed)

    @property
    def record(self) -> dict[str, Any]:
        """The share in the form that the API shows."""
        return {
            "id": self.id,
            "kind": self.kind,
            "object_id": self.object_id,
            "title": self.title,
            "include_inputs": self.has_inputs,
            "public": self.is_indexed,
            "with": self.grantee or None,
            "team_id": self.team_id or None,
            "views": self.views,
            "created_at": rfc3339(self.created_at),
            "expires_at": rfc3339(self.expires_at),
        }

    @property
    def is_restricted(self) -> bool:
        """Whether only one account or team may open the share, after signing in."""
        return bool(self.grantee or self.team_id)

    @property
    def tenant(self) -> Tenant:
        """The tenant whose objects the share may show."""
        return Tenant(self.account_id, credential_id=self.credential_id)


class SharePage(msgspec.Struct, frozen=True):
    """A page of shares, newest first; `next_cursor` is None on the last page."""

    shares: tuple[Share, ...]
    next_cursor: str | None


def path_of(token: str) -> str:
    """Return the path of the page that a token opens."""
    return f"/s/{token}"


def create(principal: Principal, draft: ShareDraft) -> Transaction[tuple[Share, str]]:
    """Share an object of a principal; return the share and its token, which is not stored.

    Raises `NotFound` for an object that the principal may not read, `Conflict` for an object without a
    result, and `Forbidden` if the account has too many shares.
    """
    target = yield from objects.locate(principal, draft.kind, draft.object_id)
    account_id = principal.account_id
    if any(draft.grantee):
        yield from grantees.check(account_id, draft.grantee)
    yield Query("shares_expired_delete", {"account_id": account_id})
    usage = yield from one("share_count", account_id=account_id)
    if usage is not None and usage["total"] >= MAX_SHARES:
        raise errors.Forbidden(f"An account can have at most {MAX_SHARES} shares: end one first")
    share_id, token = ids.new("share"), secrets.token_urlsafe(_TOKEN_BYTES)
    moment = yield from now()
    values: dict[str, Value] = {
        "id": share_id,
        **principal.tenant.row,
        "token_hash": _hash(token),
        "kind": draft.kind,
        "object_id": target.id,
        "title": target.title[:_MAX_TITLE],
        "last_place": target.last_place,
        "has_inputs": int(draft.has_inputs),
        "is_indexed": int(draft.is_indexed),
        "expires_at": None if draft.seconds is None else moment + draft.seconds * SECOND_US,
        "member_id": principal.member_id,
        "key_id": principal.sharing_key_id,
        "grantee": draft.grantee.name,
        "team_id": draft.grantee.team_id,
    }
    yield Query("share_insert", values)
    yield from audit_log.note(account_id, "share.create", f"{share_id} {draft.kind} {target.id}")
    return (yield from get(principal.tenant, share_id)), token


def get(tenant: Tenant, share_id: str) -> Transaction[Share]:
    """Return a share of a tenant; raises `NotFound`."""
    row = yield from one("share_get", **tenant.row, id=share_id)
    if row is None:
        raise _missing(share_id)
    return Share.of(row)


def page(
    principal: Principal, limit: int, cursor: str | None = None, kind: str = "", object_id: str = ""
) -> Transaction[SharePage]:
    """Return a page of a principal's shares, newest first, optionally only those of one object.

    Shares of pages of the memory require the right to read it.
    """
    bounds: dict[str, Value] = {"before": pagination.id_before(cursor), "limit": limit + 1}
    rows = yield Query(
        "shares_page",
        {
            **principal.tenant.row,
            **bounds,
            "pages": int(_reads_pages(principal)),
            "kind": kind,
            "object_id": object_id,
        },
    )
    shares = tuple(Share.of(row) for row in rows[:limit])
    return SharePage(shares, shares[-1].id if len(rows) > limit else None)


def opened(token: str, viewer: Principal | None = None) -> Transaction[Share]:
    """Return the share with a token, or with an id that is shared with the viewer.

    Raises `NotFound` for an unknown, ended or expired share, a share of a suspended account, and a restricted
    share of other viewers. A restricted share raises `Unauthenticated` without a viewer, and `Forbidden` for
    a suspended viewer.
    """
    row = None
    if token.startswith(_ID_PREFIX) and viewer is not None:
        return (yield from _received(viewer, token))
    if len(token) <= _MAX_TOKEN:
        row = yield from one("share_by_token", token_hash=_hash(token))
    if row is None:
        raise errors.NotFound(_UNKNOWN)
    share = Share.of(row)
    if not share.is_restricted or (viewer is not None and viewer.account_id == share.account_id):
        return share
    if viewer is None:
        raise errors.Unauthenticated
    return (yield from _received(viewer, share.id))


def received(
    principal: Principal, limit: int, cursor: str | None = None, share_id: str = ""
) -> Transaction[tuple[tuple[Share, str], ...]]:
    """Return up to `limit` + 1 shares, with their owners, that only the principal or its team may open."""
    rows = yield Query(
        "shares_received",
        {
            "account_id": principal.account_id,
            "team_id": principal.team_id or "",
            "id": share_id,
            "before": pagination.id_before(cursor),
            "limit": limit + 1,
        },
    )
    return tuple((Share.of(row), str(row["owner"])) for row in rows)


def _received(viewer: Principal, share_id: str) -> Transaction[Share]:
    viewer.require(rights.RUN)
    rows = yield from received(viewer, 1, share_id=share_id)
    if not rows:
        raise errors.NotFound(_UNKNOWN)
    return rows[0][0]


def count_view(share: Share) -> Transaction[None]:
    yield Query("share_viewed", {"id": share.id})


def end(principal: Principal, share_id: str) -> Transaction[None]:
    """End a share of a principal immediately; raises `NotFound`."""
    tenant = principal.tenant
    share = yield from get(tenant, share_id)
    if share.kind == "page" and not _reads_pages(principal):
        raise _missing(share_id)
    if not (yield Query("share_end", {**tenant.row, "id": share_id})):
        raise _missing(share_id)
    yield from audit_log.note(tenant.account_id, "share.end", share_id)


def withdraw(actor: Principal, token: str) -> Transaction[None]:
    """End a share of any account, also of a suspended one, by its token or id as an operator.

    Raises `NotFound`.
    """
    row = None
    if len(token) <= _MAX_TOKEN:
        row = yield from one("share_by_token_or_id", token_hash=_hash(token), id=token)
    if row is None:
        raise errors.NotFound(_UNKNOWN)
    share = Share.of(row)
    if not (yield Query("share_end", {**share.tenant.row, "id": share.id})):
        raise _missing(share.id)
    yield from audit_log.note(share.account_id, "share.withdraw", share.id)
    yield actions.note(actor, "share.withdraw", share.account_id, before={"share": share.id})


def _reads_pages(principal: Principal) -> bool:
    return principal.has(rights.Rights.MEMORY_READ)


def _missing(share_id: str) -> errors.NotFound:
    return errors.NotFound(f"The share {share_id[:100]!r} was not found")


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
