"""OpenID Connect client: discovery, authorization code flow with PKCE, validated ID tokens.

Implements OpenID Connect Core 1.0 and Discovery 1.0, RFC 7636 (PKCE) and RFC 9207 (`iss`).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import quote, urlencode, urlsplit

import httpx
import jwt
import msgspec

from sixfold import errors
from sixfold.core.accounts.authentication.auth_challenges import Content
from sixfold.core.accounts.authentication.oidc_identities import Identity, OidcLoginAttempt
from sixfold.core.accounts.keys import FRESH_MINUTES
from sixfold.core.accounts.organizations import group_roles
from sixfold.core.accounts.organizations.group_roles import GroupRules
from sixfold.core.concurrency.shared_reads import SharedReads
from sixfold.net import limited_responses, urls
from sixfold.settings import LOOPBACK_HOSTS, InvalidSetting, Settings

_SCOPE = "openid email"
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_LEEWAY_SECONDS = 60
_CACHE_SECONDS = 3600.0
# Minimum seconds between two fetches of the provider's keys because of an unknown key id.
_REFETCH_SECONDS = 30.0
_SECONDS = 15.0
_MAX_BYTES = 1 << 20
_MAX_CODE = 4096
# Providers publish two to ten keys; ID tokens have a few KB.
_MAX_KEYS, _MAX_TOKEN_CHARS = 100, 64 * 1024
# The members of a public key. If the private exponent `d` of an RSA key were read, its prime factors would be
# computed, which takes minutes for a key of 13 KB and holds the global interpreter lock.
_KEY_MEMBERS = frozenset({"kty", "use", "key_ops", "alg", "kid", "n", "e", "crv", "x", "y"})
# A modulus of 16,384 bits, the longest that signatures are verified with, has 2,731 characters.
_MAX_MEMBER_CHARS = 4096
# The maximum age of a sign-in at the provider; a repeated sign-in asks for the password again.
_MAX_AGE_SECONDS = FRESH_MINUTES * 60
_UNREACHABLE = "The sign-in provider could not be reached: try again"
_INVALID_RESPONSE = "The sign-in provider returned an invalid ID token"


class _ProviderMetadata(msgspec.Struct):
    """The provider's discovery document."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str = ""
    claims_supported: tuple[str, ...] = ()
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class OidcClient:
    """An implementation of `identities.Provider` for the issuer in the settings."""

    def __init__(self, client: httpx.AsyncClient, settings: Settings) -> None:
        """Set up the client; raises `InvalidSetting` for an invalid table `[sign_in]`."""
        with InvalidSetting.of(ValueError):
            self._rules = group_roles.parse(settings.tables.get("sign_in", {}))
        self._client = client
        self._issuer = settings.oidc_issuer
        self._client_id = settings.oidc_client_id
        self._secret = settings.oidc_client_secret
        self._name = settings.oidc_name
        self._metadata: _ProviderMetadata | None = None
        self._discovered_at = 0.0
        self._keys: dict[str, jwt.PyJWK] = {}
        self._keys_fetched_at = 0.0
        # Otherwise each sign-in would hold a connection while the provider does not respond.
        self._discovery = SharedReads[_ProviderMetadata]()
        self._key_reads = SharedReads[None]()

    @property
    def name(self) -> str:
        return self._name if self._issuer and self._client_id else ""

    @property
    def group_rules(self) -> GroupRules:
        return self._rules

    @property
    def issuer(self) -> str:
        return self._issuer

    async def begin(self, callback_url: str, *, reauthenticate: bool = False) -> OidcLoginAttempt:
        """Start a sign-in: `state` binds the response to this browser, `nonce` the ID token to it.

        With `reauthenticate`, the provider must ask for the user's password or passkey again.
        """
        metadata = await self._discover()
        attempt = {name: secrets.token_urlsafe(32) for name in ("state", "nonce", "verifier")}
        digest = hashlib.sha256(attempt["verifier"].encode()).digest()
        parameters = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": callback_url,
            "scope": f"{_SCOPE} {self._rules.scope}".strip(),
            "state": attempt["state"],
            "nonce": attempt["nonce"],
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            **({"prompt": "login", "max_age": "0"} if reauthenticate else {"max_age": str(_MAX_AGE_SECONDS)}),
        }
        if reauthenticate:
            attempt["again_at"] = str(int(time.time()))
        separator = "&" if urlsplit(metadata.authorization_endpoint).query else "?"
        return OidcLoginAttempt(
            f"{metadata.authorization_endpoint}{separator}{urlencode(parameters)}", attempt
        )

    async def end(self, callback_url: str, params: Mapping[str, str], content: Content) -> Identity:
        """Return the identity that signed in; raises `Unauthenticated` if the response cannot be verified."""
        metadata = await self._discover()
        if not hmac.compare_digest(params.get("state", "").encode(), content["state"].encode()):
            raise errors.Unauthenticated("This sign-in was started in another browser: start again")
        issuer = params.get("iss")
        if issuer != self._issuer and (issuer or metadata.authorization_response_iss_parameter_supported):
            raise errors.Unauthenticated(_INVALID_RESPONSE)
        code = params.get("code", "")
        if "error" in params or not 0 < len(code) <= _MAX_CODE:
            raise errors.Unauthenticated("The sign-in provider rejected the sign-in")
        tokens = await self._exchange(metadata, code, callback_url, content["verifier"])
        claims = await self._claims(metadata, str(tokens.get("id_token", "")), content["nonce"])
        lacks_groups = bool(self._rules.groups) and group_roles.groups_of(claims, self._rules.claim) is None
        email, verified = _email(claims)
        if ("email" not in claims or lacks_groups) and metadata.userinfo_endpoint:
            info = await self._userinfo(metadata, tokens, claims["sub"])
            claims = {**info, **claims}
            # Each document states only whether its own address is verified.
            other_email, other_verified = _email(info)
            verified = (verified and bool(email)) or (other_verified and email in ("", other_email))
            email = email or other_email
        return Identity(
            self._issuer,
            claims["sub"],
            email,
            verified,
            _authenticated_at(metadata, claims, int(content.get("again_at", 0))),
            group_roles.groups_of(claims, self._rules.claim) if self._rules.groups else None,
        )

    async def _discover(self) -> _ProviderMetadata:
        if not self.name:
            raise errors.NotConfigured(
                "Sign-in with an external provider is disabled: set SIXFOLD_OIDC_ISSUER"
            )
        if self._metadata is None or time.monotonic() - self._discovered_at > _CACHE_SECONDS:
            return await self._discovery.get("", self._fetch_metadata)
        return self._metadata

    async def _fetch_metadata(self) -> _ProviderMetadata:
        url = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
        document = await self._request_json("GET", url)
        try:
            metadata = msgspec.convert(document, _ProviderMetadata)
        except msgspec.ValidationError as error:
            raise errors.EngineFailed(_UNREACHABLE) from error
        if metadata.issuer != self._issuer or not all(map(self._is_safe, _endpoints(metadata))):
            raise errors.EngineFailed(
                "The sign-in provider's discovery document is not usable. "
                "Its issuer must equal oidc_issuer, and its endpoints must use https"
            )
        self._metadata, self._discovered_at = metadata, time.monotonic()
        return metadata

    def _is_safe(self, url: str) -> bool:
        """Return whether a URL uses https, or plain http on the issuer's loopback host."""
        try:
            parts = urls.parse(url)
        except errors.FetchRefused:
            return False
        plain = parts.scheme == "http" and parts.host == urlsplit(self._issuer).hostname
        return parts.scheme == "https" or (plain and parts.host in LOOPBACK_HOSTS)

    async def _exchange(
        self, metadata: _ProviderMetadata, code: str, callback_url: str, verifier: str
    ) -> dict[str, Any]:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": callback_url,
            "code_verifier": verifier,
        }
        headers: dict[str, str] = {}
        methods = metadata.token_endpoint_auth_methods_supported
        if self._secret and "client_secret_basic" in methods:
            credentials = f"{quote(self._client_id, safe='')}:{quote(self._secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(credentials.encode()).decode()}"
        else:
            form["client_id"] = self._client_id
            if self._secret:
                form["client_secret"] = self._secret
        return await self._request_json("POST", metadata.token_endpoint, form, headers)

    async def _userinfo(
        self, metadata: _ProviderMetadata, tokens: Mapping[str, Any], subject: str
    ) -> dict[str, Any]:
        token = str(tokens.get("access_token", ""))
        if not (token.isascii() and token.isprintable()):
            raise errors.EngineFailed(_UNREACHABLE)
        headers = {"Authorization": f"Bearer {token}"}
        userinfo = await self._request_json("GET", metadata.userinfo_endpoint, None, headers)
        return userinfo if userinfo.get("sub") == subject else {}

    async def _request_json(
        self,
        method: str,
        url: str,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Return a JSON object from the provider.

        Raises `EngineFailed`, or `Unauthenticated` if the provider rejects the form.
        """
        all_headers = {"Accept": "application/json", **(headers or {})}
        limits = {"max_bytes": _MAX_BYTES, "seconds": _SECONDS}
        try:
            response = await limited_responses.request(
                self._client, method, url, headers=all_headers, data=form, **limits
            )
            if form is not None and 400 <= response.status < 500:
                raise errors.Unauthenticated("The sign-in provider rejected the sign-in")
            if response.status != 200:
                raise errors.EngineFailed(_UNREACHABLE)
            return await limited_responses.json_object(response.body)
        except httpx.HTTPError as error:
            raise errors.EngineFailed(_UNREACHABLE) from error

    async def _claims(self, metadata: _ProviderMetadata, token: str, nonce: str) -> dict[str, Any]:
        """Return the claims of a current token from this issuer for this client and nonce."""
        if len(token) > _MAX_TOKEN_CHARS:
            raise errors.Unauthenticated(_INVALID_RESPONSE)
        try:
            header = jwt.get_unverified_header(token)
            key = await self._signing_key(metadata, str(header.get("kid", "")), str(header.get("alg", "")))
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm for algorithm in _ALGORITHMS if algorithm == header.get("alg")],
                audience=self._client_id,
                issuer=self._issuer,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )
            # Infinite numbers and lone surrogates cannot be stored: they raise a ValueError.
            json.dumps(claims, allow_nan=False, ensure_ascii=False).encode()
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError) as error:
            raise errors.Unauthenticated(_INVALID_RESPONSE) from error
        has_several_audiences = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", "" if has_several_audiences else self._client_id) != self._client_id:
            raise errors.Unauthenticated(_INVALID_RESPONSE)
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise errors.Unauthenticated(_INVALID_RESPONSE)
        if not 0 < len(claims["sub"]) <= 255:
            raise errors.Unauthenticated(_INVALID_RESPONSE)
        return claims

    async def _signing_key(self, metadata: _ProviderMetadata, kid: str, algorithm: str) -> jwt.PyJWK:
        """Return the key with this id, or the provider's only key for a token without a key id."""
        age = time.monotonic() - self._keys_fetched_at
        if age > _CACHE_SECONDS or not self._keys or (kid not in self._keys and age > _REFETCH_SECONDS):
            await self._key_reads.get(metadata.jwks_uri, lambda: self._fetch_keys(metadata.jwks_uri))
        key = self._keys.get(kid) if kid else next(iter(self._keys.values()), None)
        if key is None or (not kid and len(self._keys) > 1):
            raise jwt.InvalidKeyError("the token was signed with an unknown key")
        if key.key_type == "oct" or algorithm not in _ALGORITHMS:
            raise jwt.InvalidKeyError("the token must be signed with an asymmetric key")
        return key

    async def _fetch_keys(self, url: str) -> None:
        document = await self._request_json("GET", url)
        keys = (await asyncio.to_thread(key_set, document)).keys
        self._keys = {key.key_id or "": key for key in keys if key.public_key_use in (None, "sig")}
        self._keys_fetched_at = time.monotonic()


def key_set(document: Mapping[str, Any]) -> jwt.PyJWKSet:
    """Return the public parts of the first keys of a document; raises `PyJWTError`."""
    rows: Any = document.get("keys")
    keys = [_public_key(row) for row in rows[:_MAX_KEYS]] if isinstance(rows, list) else []
    return jwt.PyJWKSet.from_dict({"keys": keys})


def _public_key(row: Any) -> dict[str, Any]:
    """Return the members of a public key, or an empty object for a key that is malformed or too long."""
    if not isinstance(row, dict):
        return {}
    members = {name: value for name, value in cast("dict[str, Any]", row).items() if name in _KEY_MEMBERS}
    is_short = all(len(value) <= _MAX_MEMBER_CHARS for value in members.values() if isinstance(value, str))
    return members if is_short else {}


def _email(claims: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the e-mail address in a document, or an empty string, and whether it is verified."""
    email = claims.get("email")
    return email if isinstance(email, str) else "", claims.get("email_verified") in (True, "true")


def _authenticated_at(metadata: _ProviderMetadata, claims: Mapping[str, Any], again_at: int) -> int | None:
    """Return the time of the sign-in at the provider in epoch seconds, or None if it is not stated.

    Raises `Unauthenticated` if the sign-in is older than requested, or if its time is missing although the
    discovery document lists it.
    """
    at, now = claims.get("auth_time"), int(time.time())
    if at is None and "auth_time" not in metadata.claims_supported:
        return None
    oldest = (again_at or now - _MAX_AGE_SECONDS) - _LEEWAY_SECONDS
    if not isinstance(at, int | float) or isinstance(at, bool) or at < oldest:
        raise errors.Unauthenticated("The sign-in provider did not ask you to sign in again: try another way")
    return min(int(at), now)


def _endpoints(metadata: _ProviderMetadata) -> tuple[str, ...]:
    endpoints = (metadata.authorization_endpoint, metadata.token_endpoint, metadata.jwks_uri)
    return (*endpoints, metadata.userinfo_endpoint) if metadata.userinfo_endpoint else endpoints
