"""Ends of credentials: whatever descends from one ends with it, in one transaction.

A browser session may have let programs in, each of which has a grant, with refresh tokens and one key at a
time. Open connections are ended by `connections`, on every server.
"""

from __future__ import annotations

from sixfold.core.accounts import accounts, audit_log, login_sessions, oauth
from sixfold.core.database import Query, Transaction


def end_all(account_id: str, token: str = "", *, with_keys: bool = False) -> Transaction[None]:
    """End every session and link of an account but the session of `token`, and every program's access.

    `with_keys` revokes its API keys as well.
    """
    yield from login_sessions.end_others(account_id, token)
    yield from oauth.end_all(account_id)
    if with_keys:
        revoked = yield Query("keys_revoke", {"account_id": account_id})
        yield from audit_log.note(account_id, "key.revoke_all", str(len(revoked)))


def change_password(
    account_id: str, password_hash: str, token: str = "", *, with_keys: bool = False
) -> Transaction[None]:
    """Set a password and end what the old one let in, but the session of `token`."""
    yield from accounts.set_password_hash(account_id, password_hash)
    yield from end_all(account_id, token, with_keys=with_keys)
