"""Identities at an OpenID Connect provider, and the accounts that they sign in to.

An identity is linked to an account by its owner while signed in, or automatically if the provider has
verified the account's e-mail address. The operator's account is never linked automatically.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from sixfold import errors
from sixfold.core.accounts import accounts, audit_log
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.accounts.authentication.auth_challenges import Content
from sixfold.core.accounts.organizations.group_roles import GroupRules
from sixfold.core.database import Query, Row, Transaction, one


class Identity(msgspec.Struct, frozen=True):
    """A user at a provider; `verified` is whether the provider has verified the e-mail address.

    `authenticated_at` is the time of the user's login at the provider (epoch seconds). `groups` are the
    user's groups, or None if the provider does not send them.
    """

    issuer: str
    subject: str
    email: str
    verified: bool
    authenticated_at: int | None = None
    groups: tuple[str, ...] | None = None


class OidcLoginAttempt(msgspec.Struct, frozen=True):
    """The provider's URL for the browser, and the data to store until the browser returns."""

    url: str
    content: Content


class OidcProvider(Protocol):
    """An OpenID Connect provider. Methods raise `NotConfigured`, `EngineFailed` or `Unauthenticated`."""

    @property
    def name(self) -> str:
        """The display name; empty if a provider is not configured."""
        ...

    @property
    def issuer(self) -> str:
        """The issuer identifier."""
        ...

    @property
    def group_rules(self) -> GroupRules:
        """The memberships that the provider's groups grant."""
        ...

    async def begin(self, callback_url: str, *, reauthenticate: bool = False) -> OidcLoginAttempt:
        """Start a login that redirects to `callback_url`; `reauthenticate` requires a new sign-in."""
        ...

    async def end(self, callback_url: str, params: Mapping[str, str], content: Content) -> Identity:
        """Complete a login from the callback's parameters and the content that `begin` returned."""
        ...


def account_of(identity: Identity, *, signup: bool) -> Transaction[str]:
    """Return the id of the account that an identity signs in to; raises `Forbidden`.

    If `signup` is set, a new account is created for an identity with an unknown e-mail address.
    """
    row = yield from one("identity_account", issuer=identity.issuer, subject=identity.subject)
    if row is not None:
        return str(row["account_id"])
    if not identity.verified or not accounts.is_email(identity.email.strip().lower()):
        raise errors.Forbidden(
            "The provider has not verified this e-mail address: sign in another way, then link the "
            "identity in your account"
        )
    account = yield from one("account_by_email", email=identity.email.strip().lower())
    if account is None and not signup:
        raise errors.Forbidden(f"Account {identity.email} not found: ask the operator to create it")
    if account is not None and account["kind"] != "customer":
        raise errors.Forbidden("The operator must sign in another way and link this identity first")
    account_id = (
        str(account["id"]) if account is not None else (yield from accounts.create(identity.email)).id
    )
    yield from link(account_id, identity)
    return account_id


def link(account_id: str, identity: Identity) -> Transaction[None]:
    """Link an identity to an account; raises `Conflict` if it is linked to another account."""
    row = {
        "issuer": identity.issuer,
        "subject": identity.subject,
        "account_id": account_id,
        "email": identity.email,
    }
    if not (yield Query("identity_insert", row)):
        existing = yield from one("identity_account", issuer=identity.issuer, subject=identity.subject)
        if existing is None or existing["account_id"] != account_id:
            raise errors.Conflict("This identity is linked to another account")
        return
    yield from audit_log.note(account_id, "identity.link", identity.email or identity.subject)


def unlink(account_id: str, issuer: str, token: str = "") -> Transaction[None]:
    """Remove a provider's identities from an account and end the sessions that they opened.

    The session of `token` does not end. Raises `NotFound`.
    """
    rows = yield Query("identity_remove", {"account_id": account_id, "issuer": issuer})
    if not rows:
        raise errors.NotFound("No identity of this provider is linked")
    yield from audit_log.note(account_id, "identity.unlink", str(rows[0]["email"]))
    yield from login_sessions.end_by_way(account_id, login_sessions.SINGLE_SIGN_ON, token)


def of_account(account_id: str) -> Transaction[tuple[Row, ...]]:
    """Return an account's identities, oldest first."""
    rows = yield Query("identities_of", {"account_id": account_id})
    return tuple(rows)
