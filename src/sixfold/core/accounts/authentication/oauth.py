"""OAuth 2.1 authorization server for public clients with PKCE and dynamic registration.

A grant issues an access token, which is an API key that expires after an hour, and a refresh token, which can
be used once. If a used refresh token is presented again, it was probably stolen, and the grant ends. Revoking
the key ends the grant, too.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence

import msgspec

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import audit_log, keys
from sixfold.core.accounts.authentication import redirects
from sixfold.core.clock import DAY_US, HOUR_US, MINUTE_US, SECOND_US
from sixfold.core.database import Query, Row, Transaction, encode_json, now, one

SCOPES: Mapping[str, str] = {
    "memory": "Read and write the memory, and share its folders with other accounts",
    "memory.read": "Read the memory",
    "models": (
        "Run models, which spends credit, see and share what it ran itself, publish posts and characters, "
        "and read, write and share the memory"
    ),
}
DEFAULT_SCOPE = "memory"
KEY_LIFE_US, REFRESH_LIFE_US = HOUR_US, 30 * DAY_US
_CODE_LIFE_US = 5 * MINUTE_US
# How long a client without a grant is kept.
_CLIENT_LIFE_US = DAY_US
_MAX_URIS, _MAX_NAME_CHARS = 10, 80
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")


class OAuthError(Exception):
    """An error with an OAuth error code; the description is for the client's developer."""

    def __init__(self, code: str, description: str) -> None:
        super().__init__(description)
        self.code = code


class OAuthClient(msgspec.Struct, frozen=True):
    """A registered client."""

    id: str
    name: str
    redirect_uris: tuple[str, ...]
    created_at: int


class AuthorizationRequest(msgspec.Struct, frozen=True):
    """A validated authorization request."""

    client: OAuthClient
    redirect_uri: str
    scopes: tuple[str, ...]
    challenge: str
    state: str | None


class Tokens(msgspec.Struct, frozen=True):
    """Tokens issued to a client; the access token is an API key."""

    access_token: str
    refresh_token: str
    scopes: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Return the token response (RFC 6749, section 5.1)."""
        return {
            "access_token": self.access_token,
            "token_type": "Bearer",
            "expires_in": KEY_LIFE_US // SECOND_US,
            "refresh_token": self.refresh_token,
            "scope": " ".join(self.scopes),
        }


# -- clients ---------------------------------------------------------------------------------------


def register(name: str, redirect_uris: Sequence[object]) -> Transaction[OAuthClient]:
    """Register a client; raises `OAuthError` for invalid redirect URIs."""
    if not 0 < len(redirect_uris) <= _MAX_URIS:
        raise OAuthError(
            "invalid_redirect_uri",
            f"redirect_uris must have 1 to {_MAX_URIS} entries (got {len(redirect_uris)})",
        )
    uris = tuple(_redirect(uri) for uri in redirect_uris)
    display_name = " ".join(name.split())[:_MAX_NAME_CHARS] or "Unnamed program"
    client = OAuthClient(ids.new("client"), display_name, uris, (yield from now()))
    text = encode_json(uris)
    yield Query("oauth_client_insert", {"id": client.id, "name": display_name, "redirect_uris": text})
    return client


def _redirect(uri: object) -> str:
    try:
        redirects.parse(uri)
    except ValueError as error:
        raise OAuthError("invalid_redirect_uri", str(error)) from error
    return str(uri)


def client(client_id: str) -> Transaction[OAuthClient]:
    """Return a client by its id; raises `OAuthError`."""
    row = yield from one("oauth_client", id=client_id)
    if row is None:
        raise OAuthError("invalid_client", "The client is not registered: register it again")
    uris = msgspec.json.decode(str(row["redirect_uris"]), type=tuple[str, ...])
    return OAuthClient(row["id"], row["name"], uris, row["created_at"])


def allows_redirect(client: OAuthClient, uri: str) -> bool:
    """Return whether a redirect URI is registered; loopback URIs match with any port."""
    return any(redirects.is_same(uri, registered) for registered in client.redirect_uris)


def parse_authorization_request(
    client: OAuthClient, redirect_uri: str, params: Mapping[str, str], resources: Sequence[str]
) -> AuthorizationRequest:
    """Validate an authorization request whose redirect URI has been checked; raises `OAuthError`.

    `resources` are the resource identifiers of this server (RFC 8707).
    """
    if params.get("response_type") != "code":
        raise OAuthError("unsupported_response_type", "response_type must be code")
    challenge = params.get("code_challenge", "")
    if params.get("code_challenge_method") != "S256" or not _CHALLENGE.fullmatch(challenge):
        raise OAuthError("invalid_request", "PKCE is required: send code_challenge with the method S256")
    if params.get("resource", "").rstrip("/") not in ("", *resources):
        raise OAuthError("invalid_target", "The `resource` parameter does not identify this server")
    scopes = tuple(dict.fromkeys(params.get("scope", "").split())) or (DEFAULT_SCOPE,)
    if unknown := [scope for scope in scopes if scope not in SCOPES]:
        raise OAuthError("invalid_scope", f"Unknown scope {unknown[0][:40]}: use {', '.join(SCOPES)}")
    return AuthorizationRequest(client, redirect_uri, scopes, challenge, params.get("state"))


# -- grants ----------------------------------------------------------------------------------------


def grant(
    account_id: str, request: AuthorizationRequest, member_id: str | None = None, login_id: str | None = None
) -> Transaction[str]:
    """Record the user's consent and return the authorization code.

    `member_id` is the member who consented, if the account is an organization. If the login session
    `login_id` is revoked, the grant ends.
    """
    code = ids.secret("code")
    yield Query(
        "oauth_grant_insert",
        {
            "id": ids.new("grant"),
            "client_id": request.client.id,
            "account_id": account_id,
            "member_id": member_id,
            "login_id": login_id,
            "scopes": " ".join(request.scopes),
            "redirect_uri": request.redirect_uri,
            "challenge": request.challenge,
            "code_hash": keys.hash_of(code),
            "life": _CODE_LIFE_US,
        },
    )
    detail = f"{request.client.id} {' '.join(request.scopes)}"
    yield from audit_log.note(account_id, "oauth.grant", detail)
    return code


def exchange(code: str, client_id: str, redirect_uri: str, verifier: str) -> Transaction[Tokens | None]:
    """Return tokens for an authorization code, or None if it is invalid.

    A second use of the code ends its grant.
    """
    row = yield from one("oauth_grant_by_code", code_hash=keys.hash_of(code))
    if row is None or row["ended_at"] is not None:
        return None
    if row["code_taken_at"] is not None:
        yield from _end(row)
        return None
    valid = (
        row["living"]
        and row["client_id"] == client_id
        and row["redirect_uri"] == redirect_uri
        and _VERIFIER.fullmatch(verifier) is not None
        and hmac.compare_digest(_challenge(verifier), str(row["challenge"]))
    )
    return (yield from _rotate(row)) if valid else None


def refresh(token: str, client_id: str) -> Transaction[Tokens | None]:
    """Return new tokens for a refresh token, or None if it is invalid.

    A second use of the token ends its grant.
    """
    token_hash = keys.hash_of(token)
    row = yield from one("oauth_grant_by_refresh", refresh_hash=token_hash)
    if row is None:
        row = yield from one("oauth_grant_by_spent", refresh_hash=token_hash)
    if row is None or row["ended_at"] is not None or row["client_id"] != client_id:
        return None
    if bytes(row["refresh_hash"]) != token_hash:
        yield from _end(row)
        return None
    return (yield from _rotate(row)) if row["living"] else None


def _rotate(row: Row) -> Transaction[Tokens]:
    if row["key_id"]:
        yield Query("key_revoke", {"id": row["key_id"]})
    scopes = tuple(str(row["scopes"]).split())
    key = yield from keys.create(
        row["account_id"],
        expires_at=(yield from now()) + KEY_LIFE_US,
        granted=keys.rights_of_scopes(scopes),
        origin="oauth",
        holder=(yield from _holder(row)),
    )
    token = ids.secret("refresh")
    updated = yield Query(
        "oauth_grant_turn",
        {
            "id": row["id"],
            "refresh_hash": keys.hash_of(token),
            "key_id": key.id,
            "old_key_id": row["key_id"] or "",
            "life": REFRESH_LIFE_US,
        },
    )
    if not updated:
        raise errors.Conflict("Another request is using this grant: try again")
    # An older version stored one used token in the row of the grant.
    for used_hash in (row["refresh_hash"], row["spent_hash"]):
        if used_hash is not None:
            yield Query("oauth_spent_insert", {"hash": used_hash, "grant_id": row["id"]})
    return Tokens(key.api_key, token, scopes)


def _holder(row: Row) -> Transaction[keys.Holder]:
    if row["member_id"] is None:
        return keys.Holder(grant_id=row["id"])
    member = yield from one("member_by_id", account_id=row["account_id"], id=row["member_id"])
    return keys.Holder(row["member_id"], None if member is None else member["team_id"], row["id"])


def revoke(token: str) -> Transaction[None]:
    """End the grant of an access or refresh token; an unknown token is ignored."""
    token_hash = keys.hash_of(token)
    row = yield from one("oauth_grant_by_refresh", refresh_hash=token_hash)
    if row is None:
        row = yield from one("oauth_grant_by_spent", refresh_hash=token_hash)
    if row is None:
        key = yield from one("key_by_hash", hash=token_hash)
        row = None if key is None else (yield from one("oauth_grant_of_key", key_id=key["key_id"]))
    if row is not None:
        yield from _end(row)


def _end(row: Row) -> Transaction[None]:
    rows = yield Query("oauth_grant_end", {"id": row["id"]})
    if rows and rows[0]["key_id"]:
        yield Query("key_revoke", {"id": rows[0]["key_id"]})


def of_account(account_id: str) -> Transaction[tuple[Row, ...]]:
    """Return an account's grants: `id`, `name`, `scopes`, `created_at` and `used_at`."""
    return tuple((yield Query("oauth_grants_of", {"account_id": account_id})))


def end_one(account_id: str, grant_id: str) -> Transaction[None]:
    """End a grant of an account; raises `NotFound`."""
    if not grant_id or not (yield from _end_of(account_id, grant_id)):
        raise errors.NotFound("OAuth client not found")
    yield from audit_log.note(account_id, "oauth.end", grant_id)


def end_all(account_id: str) -> Transaction[int]:
    """Revoke all grants of an account except those of its members; return their number."""
    count = yield from _end_of(account_id, "")
    if count:
        yield from audit_log.note(account_id, "oauth.end_all", str(count))
    return count


def end_of_members(account_id: str) -> Transaction[None]:
    """End the grants of all members of an account that is closed."""
    for row in (yield Query("oauth_grants_end_members", {"account_id": account_id})):
        if row["key_id"]:
            yield Query("key_revoke", {"id": row["key_id"]})


def end_of_login(login_id: str) -> Transaction[None]:
    """End the grants to which the user consented in a login session that is revoked."""
    for row in (yield Query("oauth_grants_end_login", {"login_id": login_id})):
        if row["key_id"]:
            yield Query("key_revoke", {"id": row["key_id"]})
        yield from audit_log.note(row["account_id"], "oauth.end", row["id"])


def _end_of(account_id: str, grant_id: str) -> Transaction[int]:
    rows = yield Query("oauth_grants_end", {"account_id": account_id, "id": grant_id})
    for row in rows:
        if row["key_id"]:
            yield Query("key_revoke", {"id": row["key_id"]})
    return len(rows)


def sweep() -> Transaction[None]:
    """Delete ended grants, old refresh token hashes, and clients without a grant after a day."""
    yield Query("oauth_sweep_grants", {})
    yield Query("oauth_sweep_spent", {})
    yield Query("oauth_sweep_clients", {"before": (yield from now()) - _CLIENT_LIFE_US})


def _challenge(verifier: str) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
