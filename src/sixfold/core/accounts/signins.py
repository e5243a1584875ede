"""Signing in to the pages: a one-time link from the shell, or a password; then a session cookie."""

from __future__ import annotations

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import keys
from sixfold.core.accounts.accounts import Account
from sixfold.core.clock import DAY_US, HOUR_US
from sixfold.core.database import Query, Transaction, one

LINK_LIFE_US = HOUR_US
SESSION_LIFE_US = 30 * DAY_US


def new_link(account_id: str, now: int) -> Transaction[str]:
    """A token that signs its bearer in once, within the hour."""
    token = ids.secret("link")
    yield _insert(token, account_id, "link", now + LINK_LIFE_US)
    return token


def take_link(token: str, now: int) -> Transaction[str]:
    """Use a link up and begin a session; gives the session's token. Raises `Unauthenticated`."""
    rows = yield Query("signin_take", {"token_hash": keys.hash_of(token)})
    if not rows:
        raise errors.Unauthenticated("This link was used before or is too old: ask for a new one")
    return (yield from new_session(str(rows[0]["account_id"]), now))


def new_session(account_id: str, now: int) -> Transaction[str]:
    """Begin a browser session; gives its token."""
    token = ids.secret("sess")
    yield _insert(token, account_id, "session", now + SESSION_LIFE_US)
    return token


def session(token: str) -> Transaction[Account | None]:
    """Whose session a token is, while it lives."""
    row = yield from one("signin_session", token_hash=keys.hash_of(token))
    return Account.of(row) if row is not None else None


def end(token: str) -> Transaction[None]:
    """End a session."""
    yield Query("signin_end", {"token_hash": keys.hash_of(token)})


def sweep() -> Transaction[int]:
    """Forget what has expired; gives how many."""
    return len((yield Query("signin_sweep", {})))


def _insert(token: str, account_id: str, kind: str, expires_at: int) -> Query:
    return Query(
        "signin_insert",
        {
            "token_hash": keys.hash_of(token),
            "account_id": account_id,
            "kind": kind,
            "expires_at": expires_at,
        },
    )
