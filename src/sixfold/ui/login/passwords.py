"""Passwords: length limits, hashing with argon2, and the check whether an account needs one.

Hashing is slow by design, so it must run in `HASHING`.
"""

from __future__ import annotations

from pwdlib import PasswordHash
from pwdlib.exceptions import UnknownHashError
from pwdlib.hashers.argon2 import Argon2Hasher

from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.authentication import oidc_identities, passkeys
from sixfold.core.concurrency.single_thread import SingleThread
from sixfold.core.database import Transaction
from sixfold.web.services import WebServices
from sixfold.web.sessions import SessionCookie

MIN_CHARS, MAX_CHARS = 8, 1024
# One hash takes 64 MiB and four threads.
HASHING = SingleThread("passwords")
HASHES = PasswordHash((Argon2Hasher(),))

# A hash for accounts without a password, for which a check must take the same time.
_DUMMY_HASH = (
    "$argon2id$v=19$m=65536,t=3,p=4$rgtzD43jSFMyHXhT0IPO0A$yWNRuI3wefqqPkF20puGoLQU9RjZUtU35k6U+IbjV4w"
)


def length_problem(password: str) -> str:
    """Return an error message if a new password is too short or too long, or an empty string."""
    if MIN_CHARS <= len(password) <= MAX_CHARS:
        return ""
    return f"The password must have {MIN_CHARS} to {MAX_CHARS} characters"


def make(password: str) -> str:
    return HASHES.hash(password)


def verify(password: str, stored: str | None) -> bool:
    """Return whether a password matches, in the same time without a hash, to hide which accounts exist."""
    try:
        matches = HASHES.verify(password, stored or _DUMMY_HASH)
    except UnknownHashError:
        return False
    return matches and stored is not None


async def is_first_needed(services: WebServices, session: SessionCookie | None) -> bool:
    """Return whether the user's only way to sign in is a link from the operator."""
    if session is None or session.account.is_operator or session.principal.role != "person":
        return False
    if session.account.password_hash is not None:
        return False
    return not await services.database.read(_has_other_way(session.account))


def _has_other_way(account: Account) -> Transaction[bool]:
    return bool(
        (yield from passkeys.of_account(account.id)) or (yield from oidc_identities.of_account(account.id))
    )
