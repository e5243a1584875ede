"""Passkeys of accounts (WebAuthn credentials)."""

from __future__ import annotations

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import audit_log
from sixfold.core.accounts.authentication import login_sessions
from sixfold.core.accounts.authentication.login_sessions import ProvenLogin
from sixfold.core.database import Query, Row, Transaction, one

# Maximum number of passkeys per account.
MAX_PER_ACCOUNT = 20
_NAME_CHARS = 60


class RelyingParty(msgspec.Struct, frozen=True):
    """The WebAuthn relying party: the host name to which passkeys are bound, and the allowed origin."""

    name: str
    origin: str


class StoredCredential(msgspec.Struct, frozen=True):
    """A stored passkey; `uses` is the signature counter that its authenticator last reported."""

    id: str
    account_id: str
    public_key: bytes
    uses: int


def add(account_id: str, credential: bytes, public_key: bytes, uses: int, name: str) -> Transaction[str]:
    """Store a new passkey and return its id.

    Raises `Conflict` if the passkey is already stored or the account has too many passkeys.
    """
    if len((yield from of_account(account_id))) >= MAX_PER_ACCOUNT:
        raise errors.Conflict(f"An account can have at most {MAX_PER_ACCOUNT} passkeys: remove one first")
    passkey_id, label = ids.new("pk"), " ".join(name.split())[:_NAME_CHARS] or "Passkey"
    row = {
        "id": passkey_id,
        "account_id": account_id,
        "credential": credential,
        "public_key": public_key,
        "uses": uses,
        "name": label,
    }
    if not (yield Query("passkey_insert", row)):
        raise errors.Conflict("This passkey is already registered")
    yield from audit_log.note(account_id, "passkey.add", label)
    return passkey_id


def of_account(account_id: str) -> Transaction[tuple[Row, ...]]:
    """Return an account's passkeys, oldest first."""
    rows = yield Query("passkeys_of", {"account_id": account_id})
    return tuple(rows)


def get(credential: bytes) -> Transaction[StoredCredential | None]:
    """Return the passkey with a credential id, or None."""
    row = yield from one("passkey_by_credential", credential=credential)
    return (
        StoredCredential(row["id"], row["account_id"], bytes(row["public_key"]), row["uses"]) if row else None
    )


def record_use(passkey: StoredCredential, uses: int) -> Transaction[ProvenLogin]:
    """Store the signature counter and return the account of the passkey.

    Raises `Unauthenticated` if the passkey was removed, or if the counter did not increase, which indicates a
    cloned passkey.
    """
    if not (yield Query("passkey_used", {"id": passkey.id, "uses": uses})):
        raise errors.Unauthenticated(
            "The passkey was removed, or its signature counter did not increase: it may have been cloned"
        )
    return ProvenLogin(passkey.account_id)


def remove(account_id: str, passkey_id: str, token: str = "") -> Transaction[None]:
    """Delete a passkey and end the sessions opened by passkeys, except the session of `token`.

    Raises `NotFound`.
    """
    rows = yield Query("passkey_remove", {"id": passkey_id, "account_id": account_id})
    if not rows:
        raise errors.NotFound("Passkey not found")
    yield from audit_log.note(account_id, "passkey.remove", str(rows[0]["name"]))
    yield from login_sessions.end_by_way(account_id, login_sessions.PASSKEY, token)
