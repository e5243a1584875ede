"""Signing in with somebody else's word: identities at an OpenID provider, and whose accounts they are.

An identity is an account's only where the account's owner said so while signed in, or where the
provider has verified the address that the account has. The operator's account is linked by its owner alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from sixfold import errors
from sixfold.core.accounts import accounts, audit_log
from sixfold.core.accounts.auth_challenges import Content
from sixfold.core.database import Query, Row, Transaction, one


@dataclass(frozen=True, slots=True)
class Identity:
    """Who somebody is at a provider; `verified` is whether the provider vouches for the address."""

    issuer: str
    subject: str
    email: str
    verified: bool


@dataclass(frozen=True, slots=True)
class OidcLoginAttempt:
    """Where a browser is sent, and what has to be known when it comes back."""

    url: str
    kept: Content


class OidcProvider(Protocol):
    """An OpenID provider. Its methods raise `NotConfigured`, `EngineFailed`, or `Unauthenticated`."""

    @property
    def name(self) -> str:
        """What people call it; empty where none is configured."""
        ...

    @property
    def issuer(self) -> str:
        """Its identifier."""
        ...

    async def begin(self, back: str) -> OidcLoginAttempt:
        """Begin to sign somebody in, who then comes back to the address `back`."""
        ...

    async def end(self, back: str, answer: Mapping[str, str], kept: Content) -> Identity:
        """Who came back with an answer."""
        ...


def account_of(identity: Identity, *, signup: bool) -> Transaction[str]:
    """Whose account an identity signs in to; with `signup` a stranger gets one. Raises `Forbidden`."""
    row = yield from one("identity_account", issuer=identity.issuer, subject=identity.subject)
    if row is not None:
        return str(row["account_id"])
    if not identity.verified or not identity.email:
        raise errors.Forbidden("The provider has not verified this address: sign in, and link it there")
    found = yield from one("account_by_email", email=identity.email.strip().lower())
    if found is None and not signup:
        raise errors.Forbidden(f"There is no account {identity.email} here: ask the operator for one")
    if found is not None and found["kind"] != "customer":
        raise errors.Forbidden("The operator signs in otherwise first, and links this then")
    account_id = str(found["id"]) if found is not None else (yield from accounts.create(identity.email)).id
    yield from link(account_id, identity)
    return account_id


def link(account_id: str, identity: Identity) -> Transaction[None]:
    """An identity is this account's from now on; raises `Conflict` where it is another's."""
    row = {
        "issuer": identity.issuer,
        "subject": identity.subject,
        "account_id": account_id,
        "email": identity.email,
    }
    if not (yield Query("identity_insert", row)):
        known = yield from one("identity_account", issuer=identity.issuer, subject=identity.subject)
        if known is None or known["account_id"] != account_id:
            raise errors.Conflict("This sign-in belongs to another account")
        return
    yield from audit_log.note(account_id, "identity.link", identity.email or identity.subject)


def unlink(account_id: str, issuer: str) -> Transaction[None]:
    """A provider's identities are none of this account's any more; raises `NotFound`."""
    rows = yield Query("identity_remove", {"account_id": account_id, "issuer": issuer})
    if not rows:
        raise errors.NotFound("No such sign-in is linked")
    yield from audit_log.note(account_id, "identity.unlink", str(rows[0]["email"]))


def of_account(account_id: str) -> Transaction[tuple[Row, ...]]:
    """An account's identities, oldest first."""
    rows = yield Query("identities_of", {"account_id": account_id})
    return tuple(rows)
