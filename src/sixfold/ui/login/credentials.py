"""Whether an account can be signed in to again, with a password, a passkey or an identity of the provider."""

from __future__ import annotations

from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.authentication import oidc_identities, passkeys
from sixfold.core.database import Transaction
from sixfold.web.services import WebServices
from sixfold.web.sessions import SessionCookie


async def are_missing(services: WebServices, session: SessionCookie | None) -> bool:
    """Return whether a person signed in by a link and has no other way; the operator can print a link."""
    if session is None or session.account.is_operator or session.principal.role != "person":
        return False
    if session.account.password_hash is not None:
        return False
    return not await services.database.read(_exist(session.account))


def _exist(account: Account) -> Transaction[bool]:
    return bool(
        (yield from passkeys.of_account(account.id)) or (yield from oidc_identities.of_account(account.id))
    )
