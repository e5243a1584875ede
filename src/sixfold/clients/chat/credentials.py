"""Credentials of providers whose headers depend on the request or on a token that expires."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import urlencode

import jwt
import msgspec

from sixfold.clients.chat import aws_signing
from sixfold.clients.chat.aws_signing import SigningScope
from sixfold.clients.chat.transport import Transport
from sixfold.core.gateway.ports import UpstreamFailure, read_all
from sixfold.providers import ProviderSpec

_REGION = re.compile(r"//bedrock(?:-[a-z]+)*\.([a-z]{2,}(?:-[a-z]+)+-\d)\.")
_DEFAULT_REGION = "us-east-1"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_TOKEN_SECONDS, _EARLIER_SECONDS = 3600, 300


class _ServiceAccount(msgspec.Struct):
    client_email: str
    private_key: str
    token_uri: str


class _AccessToken(msgspec.Struct):
    access_token: str
    expires_in: float = 0.0


class Credentials(Protocol):
    """Returns the headers that authenticate a request."""

    async def headers(self, key: str, method: str, url: str, body: bytes) -> Mapping[str, str]:
        """Return the headers; raises `UpstreamFailure` if a token cannot be obtained."""
        ...


class BedrockCredentials:
    """Credentials for Amazon Bedrock: an access key for signatures, or an API key.

    An access key is `ID:SECRET` or `ID:SECRET:TOKEN`.
    """

    def __init__(self, spec: ProviderSpec) -> None:
        self._spec = spec

    async def headers(self, key: str, method: str, url: str, body: bytes) -> Mapping[str, str]:
        keys = aws_signing.parse_keys(key)
        if keys is None:
            return self._spec.key_headers(key)
        region = _REGION.search(url)
        scope = SigningScope("bedrock", region[1] if region is not None else _DEFAULT_REGION)
        return aws_signing.sign(keys, scope, datetime.now(UTC), (method, url, body))


class VertexCredentials:
    """Credentials for Vertex AI: an access token for a service account, or an API key.

    The key of a service account is the path of its key file.

    Source: https://developers.google.com/identity/protocols/oauth2/service-account#httprest.
    """

    def __init__(self, spec: ProviderSpec, transport: Transport) -> None:
        self._spec = spec
        self._transport = transport
        # The key file, its token, and the time after which to request another.
        self._token = ("", "", 0.0)
        self._lock = asyncio.Lock()

    async def headers(self, key: str, method: str, url: str, body: bytes) -> Mapping[str, str]:
        if not key.startswith("/"):
            return self._spec.key_headers(key)
        async with self._lock:
            path, token, expires_at = self._token
            if path != key or time.time() >= expires_at:
                token, seconds = await self._request_token(key)
                self._token = (key, token, time.time() + seconds - _EARLIER_SECONDS)
        return {"Authorization": f"Bearer {token}"}

    async def _request_token(self, path: str) -> tuple[str, float]:
        try:
            content = await asyncio.to_thread(Path(path).read_bytes)
            account = msgspec.json.decode(content, type=_ServiceAccount)
            now = int(time.time())
            claims = {"iss": account.client_email, "scope": _SCOPE, "aud": account.token_uri}
            claims |= {"iat": now, "exp": now + _TOKEN_SECONDS}
            assertion = await asyncio.to_thread(jwt.encode, claims, account.private_key, "RS256")
        except (OSError, ValueError, msgspec.MsgspecError, jwt.PyJWTError) as error:
            raise UpstreamFailure(
                "cannot be called: the key file of its service account is invalid"
            ) from error
        form = urlencode({"grant_type": _GRANT, "assertion": assertion}).encode()
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        response = await self._transport.post(account.token_uri, headers, form, stream=False)
        try:
            answer = await read_all(response)
        finally:
            await response.aclose()
        try:
            token = msgspec.json.decode(answer, type=_AccessToken)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise UpstreamFailure("refused the key of its service account") from error
        return token.access_token, token.expires_in


def credentials_of(spec: ProviderSpec, transport: Transport) -> Credentials | None:
    """Return the credentials of a provider, or None if its headers depend on the key only."""
    if spec.name == "vertex":
        return VertexCredentials(spec, transport)
    return BedrockCredentials(spec) if spec.dialect == "converse" else None
