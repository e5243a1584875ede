"""Login sessions of the web pages, whose token is in a cookie, and sign-in links."""

from __future__ import annotations

import contextlib

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import accounts, audit_log, connections, keys, rights
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.authentication import oauth
from sixfold.core.accounts.keys import Principal
from sixfold.core.accounts.rights import Access
from sixfold.core.clock import DAY_US, HOUR_US, MINUTE_US
from sixfold.core.database import Query, Row, Rows, T, Transaction, after, one

LINK_LIFE_US = HOUR_US
SESSION_LIFE_US = 30 * DAY_US
FRESH_US = keys.FRESH_MINUTES * MINUTE_US


class LoginDetails(msgspec.Struct, frozen=True):
    """The method of a login (link, password, passkey or identity), and the user agent.

    `authenticated_at` is the time (epoch µs) at which the user was authenticated, if before the login.
    """

    way: str
    agent: str = ""
    authenticated_at: int | None = None


class ProvenLogin(msgspec.Struct, frozen=True):
    """The account of a user who has proved to own it, and the organization to act for, or an empty string."""

    account_id: str
    organization_id: str = ""


class SignedIn(msgspec.Struct, frozen=True):
    """The account of a login session, its principal with the login time, and the user's personal account.

    `login_id` stays the same when the session switches to another account.
    """

    account: Account
    principal: Principal
    person_id: str
    login_id: str


ENDED = "Your session has ended: sign in again"
_BY_LINK = LoginDetails("link")
PASSKEY, SINGLE_SIGN_ON = "passkey", "single sign-on"


def new_link(account_id: str, now: int, life_us: int = LINK_LIFE_US) -> Transaction[str]:
    """Create a token that signs in to an account once, within `life_us` µs of `now` (epoch µs)."""
    token = ids.secret("link")
    yield _insert(token, account_id, "link", now + life_us, _BY_LINK)
    return token


def take_link(token: str, now: int, login: LoginDetails = _BY_LINK) -> Transaction[str]:
    """Consume a sign-in link and return the token of a new session; raises `Unauthenticated`."""
    rows = yield Query("login_session_take", {"token_hash": keys.hash_of(token)})
    if not rows:
        raise errors.Unauthenticated("This link has already been used or has expired: request a new one")
    return (yield from new_session(str(rows[0]["account_id"]), now, login))


def new_session(account_id: str, now: int, login: LoginDetails) -> Transaction[str]:
    """Create a session and return its token; the first one books the credit of an invitation.

    Raises `Forbidden` for an organization, which has no sign-in.
    """
    if not (yield from accounts.by_id(account_id)).has_sign_in:
        raise errors.Forbidden("An organization cannot sign in: sign in with your own account")
    token = ids.secret("sess")
    yield _insert(token, account_id, "session", now + SESSION_LIFE_US, login)
    yield Query("link_request_end", {"id": account_id})
    yield from accounts.accept_invitation(account_id)
    yield from audit_log.note(account_id, "signin", f"{login.way}, {login.agent}".strip(", "))
    return token


def new_session_with(proof: Transaction[ProvenLogin], now: int, login: LoginDetails) -> Transaction[str]:
    """Create a session for a proof that is checked in this transaction, and return its token.

    A credential that ended since the request presented it therefore opens no session. Like
    `act_for`, the organization of the proof is ignored if the user is not a member.
    """
    proven = yield from proof
    token = yield from new_session(proven.account_id, now, login)
    if proven.organization_id and proven.organization_id != proven.account_id:
        with contextlib.suppress(errors.NotFound):
            token = yield from act_for(token, proven.organization_id)
    return token


def while_active(token: str, transaction: Transaction[T], access: Access | None = None) -> Transaction[T]:
    """Return a transaction of a session that first checks `access`, or that of the current route, again.

    Raises `Unauthenticated` if the session has ended since the request began, and like `Principal.require`
    and `require_unchanged`. Otherwise, a request in progress could create access after the user has ended all
    sessions or has lost a role.
    """
    checked = _checked(token, access or rights.declared.get(), connections.signed_in.get())
    return after(checked, transaction)


def _checked(token: str, access: Access, before: Principal | None) -> Transaction[None]:
    signed_in = yield from session(token)
    if signed_in is None:
        raise errors.Unauthenticated(ENDED)
    if before is not None:
        before.require_unchanged(signed_in.principal)
    signed_in.principal.require(access)


def session(token: str) -> Transaction[SignedIn | None]:
    """Return the account and principal of a session token, or None if the token is unknown or expired."""
    return (yield from session_by_hash(keys.hash_of(token)))


def session_by_hash(token_hash: bytes) -> Transaction[SignedIn | None]:
    """Return the account and principal of a session by the hash of its token, or None."""
    row = yield from one("login_session_session", token_hash=token_hash, fresh_us=FRESH_US)
    if row is None:
        return None
    account = Account.of(row)
    principal = replace(
        account.owner,
        authentication="session",
        signed_in_at=row["signed_in_at"],
        is_fresh=bool(row["is_fresh"]),
        guardrail=row["guardrail"] or "",
        content_days=row["content_days"] or 0,
        suspended=account.suspended_at is not None or row["person_suspended"] is not None,
        closed=account.closing_at is not None or row["person_closing"] is not None,
    )
    if row["member_id"] is not None:
        principal = replace(
            principal,
            email=row["person_email"] or "",
            key_id=row["member_key"],
            rights=rights.OF_ROLE[row["role"]],
            role=row["role"],
            member_id=row["member_id"],
            team_id=row["team_id"],
            budgets=keys.budgets_of(row, account.id),
        )
    return SignedIn(account, principal, row["person_id"], row["login_id"])


def act_for(token: str, account_id: str) -> Transaction[str]:
    """Switch a session to an organization or to the user's personal account; return the new token.

    Connections that were opened with the old token end. Raises `NotFound` if the user is not a member.
    """
    rows = yield Query(
        "login_session_act_for", {"token_hash": keys.hash_of(token), "organization_id": account_id}
    )
    if not rows:
        raise errors.NotFound("You are not a member of this organization")
    new_token = ids.secret("sess")
    yield Query(
        "login_session_rotate", {"token_hash": keys.hash_of(token), "new_hash": keys.hash_of(new_token)}
    )
    return new_token


def of_account(account_id: str, token: str) -> Transaction[tuple[Row, ...]]:
    """Return an account's sessions, newest first; `this` is 1 for the session of `token`."""
    rows = yield Query("login_sessions_of", {"account_id": account_id, "token_hash": keys.hash_of(token)})
    return tuple(rows)


def end(token: str) -> Transaction[None]:
    yield Query("login_session_end", {"token_hash": keys.hash_of(token)})


def end_one(account_id: str, session_id: str) -> Transaction[None]:
    """End a session of an account by its id, with the OAuth grants made in it; raises `NotFound`."""
    rows = yield Query("login_session_end_one", {"account_id": account_id, "id": session_id})
    if not rows:
        raise errors.NotFound("Session not found")
    yield from audit_log.note(account_id, "session.end", session_id)
    yield from _end_grants(rows)


def end_others(account_id: str, token: str = "") -> Transaction[int]:
    """End all sessions and links of an account except the session of `token`; return their number.

    The OAuth grants made in these sessions end, too.
    """
    rows = yield Query("login_sessions_end", {"account_id": account_id, "but": keys.hash_of(token)})
    yield from audit_log.note(account_id, "session.end_all", str(len(rows)))
    yield from _end_grants(rows)
    return len(rows)


def end_by_way(account_id: str, way: str, token: str = "") -> Transaction[int]:
    """End the sessions opened by one method, except the session of `token`; return their number.

    This is used when a passkey or identity is removed, because a session does not record which one opened it.
    The OAuth grants made in these sessions end, too.
    """
    params = {"account_id": account_id, "way": way, "but": keys.hash_of(token)}
    rows = yield Query("login_sessions_end_by_way", params)
    if rows:
        yield from audit_log.note(account_id, "session.end_all", f"{len(rows)}, {way}")
    yield from _end_grants(rows)
    return len(rows)


def _end_grants(sessions: Rows) -> Transaction[None]:
    for session_row in sessions:
        yield from oauth.end_of_login(session_row["id"])


def sweep() -> Transaction[int]:
    """Delete expired sessions, links and challenges; return the number of sessions and links."""
    yield Query("auth_challenge_sweep", {})
    return len((yield Query("login_session_sweep", {})))


def _insert(token: str, account_id: str, kind: str, expires_at: int, login: LoginDetails) -> Query:
    return Query(
        "login_session_insert",
        {
            "token_hash": keys.hash_of(token),
            "account_id": account_id,
            "kind": kind,
            "id": ids.new("login"),
            "way": login.way,
            "agent": login.agent,
            "authenticated_at": login.authenticated_at,
            "expires_at": expires_at,
        },
    )
