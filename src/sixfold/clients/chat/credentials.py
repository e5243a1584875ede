"""Authenticates requests to providers whose headers depend on the request or on a token that expires."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Protocol

from sixfold.clients.chat import aws_signing
from sixfold.clients.chat.aws_signing import SigningScope
from sixfold.providers import ProviderSpec

_REGION = re.compile(r"//bedrock(?:-[a-z]+)*\.([a-z]{2,}(?:-[a-z]+)+-\d)\.")
_DEFAULT_REGION = "us-east-1"


class Credentials(Protocol):
    """Returns the headers that authenticate a request."""

    async def headers(self, key: str, method: str, url: str, body: bytes) -> Mapping[str, str]:
        """Return the headers; raises `UpstreamFailure` if no token can be had."""
        ...


class BedrockCredentials:
    """Amazon Bedrock's: a signature by an access key (`ID:SECRET` or `ID:SECRET:TOKEN`), or an API key."""

    def __init__(self, spec: ProviderSpec) -> None:
        self._spec = spec

    async def headers(self, key: str, method: str, url: str, body: bytes) -> Mapping[str, str]:
        keys = aws_signing.parse_keys(key)
        if keys is None:
            return self._spec.key_headers(key)
        region = _REGION.search(url)
        scope = SigningScope("bedrock", region[1] if region is not None else _DEFAULT_REGION)
        return aws_signing.sign(keys, scope, datetime.now(UTC), (method, url, body))


def credentials_of(spec: ProviderSpec) -> Credentials | None:
    """Return the credentials of a provider, or None if its headers depend on the key only."""
    return BedrockCredentials(spec) if spec.dialect == "converse" else None
