"""Signing in to the pages: a link, a password, a passkey or an identity; then a session with a cookie."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import audit_log, keys
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.keys import Principal
from sixfold.core.clock import DAY_US, HOUR_US, MINUTE_US
from sixfold.core.database import Query, Row, Transaction, one

LINK_LIFE_US = HOUR_US
SESSION_LIFE_US = 30 * DAY_US
FRESH_US = keys.FRESH_MINUTES * MINUTE_US


@dataclass(frozen=True, slots=True)
class LoginSession:
    """How somebody came in, and with which browser."""

    way: str
    agent: str = ""


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A live session: its account, and the principal with the time of the sign-in."""

    account: Account
    principal: Principal


_BY_LINK = LoginSession("link")


def new_link(account_id: str, now: int) -> Transaction[str]:
    """A token that signs its bearer in once, within the hour."""
    token = ids.secret("link")
    yield _insert(token, account_id, "link", now + LINK_LIFE_US, _BY_LINK)
    return token


def take_link(token: str, now: int, visit: LoginSession = _BY_LINK) -> Transaction[str]:
    """Use a link up and begin a session; gives the session's token. Raises `Unauthenticated`."""
    rows = yield Query("login_session_take", {"token_hash": keys.hash_of(token)})
    if not rows:
        raise errors.Unauthenticated("This link was used before or is too old: ask for a new one")
    return (yield from new_session(str(rows[0]["account_id"]), now, visit))


def new_session(account_id: str, now: int, visit: LoginSession) -> Transaction[str]:
    """Begin a browser session; gives its token."""
    token = ids.secret("sess")
    yield _insert(token, account_id, "session", now + SESSION_LIFE_US, visit)
    yield from audit_log.note(account_id, "signin", f"{visit.way}, {visit.agent}".strip(", "))
    return token


def session(token: str) -> Transaction[SignedIn | None]:
    """The account and the principal of a session's token, while it lives."""
    row = yield from one("login_session_session", token_hash=keys.hash_of(token), fresh_us=FRESH_US)
    if row is None:
        return None
    account = Account.of(row)
    return SignedIn(
        account,
        replace(
            account.owner,
            authentication="session",
            signed_in_at=row["signed_in_at"],
            is_fresh=bool(row["is_fresh"]),
        ),
    )


def of_account(account_id: str, token: str) -> Transaction[tuple[Row, ...]]:
    """An account's sessions, newest first; `this` is 1 for the one of `token`."""
    rows = yield Query("login_sessions_of", {"account_id": account_id, "token_hash": keys.hash_of(token)})
    return tuple(rows)


def end(token: str) -> Transaction[None]:
    """End a session."""
    yield Query("login_session_end", {"token_hash": keys.hash_of(token)})


def end_one(account_id: str, session_id: str) -> Transaction[None]:
    """End one session of an account by its id; raises `NotFound`."""
    rows = yield Query("login_session_end_one", {"account_id": account_id, "id": session_id})
    if not rows:
        raise errors.NotFound("There is no such session")
    yield from audit_log.note(account_id, "session.end", session_id)


def end_others(account_id: str, token: str = "") -> Transaction[int]:
    """End every session and link of an account but that of `token`; gives how many."""
    ended = yield Query("login_sessions_end", {"account_id": account_id, "but": keys.hash_of(token)})
    yield from audit_log.note(account_id, "session.end_all", str(len(ended)))
    return len(ended)


def sweep() -> Transaction[int]:
    """Forget what has expired; gives how many."""
    yield Query("auth_challenge_sweep", {})
    return len((yield Query("login_session_sweep", {})))


def _insert(token: str, account_id: str, kind: str, expires_at: int, visit: LoginSession) -> Query:
    return Query(
        "login_session_insert",
        {
            "token_hash": keys.hash_of(token),
            "account_id": account_id,
            "kind": kind,
            "id": ids.new("login"),
            "way": visit.way,
            "agent": visit.agent,
            "expires_at": expires_at,
        },
    )
