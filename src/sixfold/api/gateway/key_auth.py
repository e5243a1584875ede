"""Authentication of `/v1`, with a short cache of looked-up keys."""

from __future__ import annotations

import time
from collections.abc import Mapping

from starlette.requests import Request

from sixfold.api.gateway import rate_headers
from sixfold.api.gateway.rate_headers import RateHeaders
from sixfold.api.gateway.unsupported import ANTHROPIC_HEADER
from sixfold.core.accounts.keys import Principal
from sixfold.core.concurrency.shared_reads import SharedReads
from sixfold.web import auth
from sixfold.web.raw_asgi import late_headers
from sixfold.web.services import WebServices

# A looked-up key is trusted for this time, so revoking one takes effect within it.
KEY_SECONDS = 0.25
_MAX_PRINCIPALS = 4096
# The cache key: the values of `Authorization` and `x-api-key`.
_Credentials = tuple[bytes | None, bytes | None]


class CachedKeyAuth:
    """Authentication of `/v1` by `Authorization` or `x-api-key`, with a short cache of looked-up keys."""

    def __init__(self, services: WebServices) -> None:
        self._services = services
        self._principals: dict[_Credentials, tuple[float, Principal]] = {}
        self._reads = SharedReads[Principal]()

    async def enter(self, request: Request) -> Principal:
        """Return the principal of a request; raises `Unauthenticated`, `Forbidden` and `TooManyRequests`."""
        return await self.admit(dict(reversed(request.headers.raw)))

    async def admit(self, headers: Mapping[bytes, bytes]) -> Principal:
        """Return the principal; raises `Unauthenticated`, `Forbidden` and `TooManyRequests`."""
        credentials = headers.get(b"authorization"), headers.get(b"x-api-key")
        cached = self._principals.get(credentials)
        if cached is None or time.monotonic() - cached[0] >= KEY_SECONDS:
            principal = await self._reads.get(credentials, lambda: self._find(credentials))
        else:
            principal = cached[1]
        authenticator = self._services.authenticator
        if rate_headers.is_limited(principal):
            tokens = self._services.gateway.token_rates
            rates = RateHeaders(principal, authenticator.request_rates, tokens, ANTHROPIC_HEADER in headers)
            # Also the error of a request above the limit has the headers.
            late_headers.set(rates.headers)
        return await authenticator.admit(principal)

    async def _find(self, credentials: _Credentials) -> Principal:
        started_at = time.monotonic()
        bearer, plain = (value.decode("latin-1") if value is not None else None for value in credentials)
        principal = await self._services.authenticator.find(auth.token_of(bearer) or plain)
        if len(self._principals) >= _MAX_PRINCIPALS:
            self._principals.clear()
        self._principals[credentials] = (started_at, principal)
        return principal
