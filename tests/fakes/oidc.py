"""Fake OpenID provider on loopback: it signs in every user with configured claims, or sends bad tokens."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.fakes.fault_server import serve

CLIENT, SECRET = "sixfold", "a client's secret"
PROOF = "Basic " + base64.b64encode(b"sixfold:a%20client%27s%20secret").decode()


@dataclass
class OpenId:
    """Fake provider: `claims` describe the user; `lies` falsify a token, `key` and `headers` a signature."""

    claims: dict[str, Any] = field(
        default_factory=lambda: {"sub": "ada-1", "email": "ada@example.com", "email_verified": True}
    )
    lies: dict[str, Any] = field(default_factory=dict[str, Any])
    headers: dict[str, Any] = field(default_factory=dict[str, Any])
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    info: dict[str, Any] = field(default_factory=dict[str, Any])
    key: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    algorithm: str = "ES256"
    signing_key: Any = None
    issuer: str = ""
    access_token: str = "at"
    discoveries: int = 0
    codes: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])

    def routes(self) -> list[Route]:
        return [
            Route("/.well-known/openid-configuration", self.described),
            Route("/authorize", self.authorize),
            Route("/token", self.token, methods=["POST"]),
            Route("/keys", self.keys),
            Route("/userinfo", self.userinfo),
        ]

    async def described(self, request: Request) -> Response:
        self.discoveries += 1
        document = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "userinfo_endpoint": f"{self.issuer}/userinfo",
        }
        return JSONResponse(document | self.metadata)

    async def keys(self, request: Request) -> Response:
        key = ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return JSONResponse({"keys": [{**key, "kid": "one", "use": "sig", "alg": "ES256"}]})

    async def authorize(self, request: Request) -> Response:
        return RedirectResponse(self.grant(str(request.url)), 303)

    def grant(self, url: str) -> str:
        """Return the redirect URL with a code, as if the user had consented."""
        request = dict(parse_qsl(urlsplit(url).query))
        code = f"code-{len(self.codes)}"
        self.codes[code] = request
        return f"{request['redirect_uri']}?{urlencode({'code': code, 'state': request['state']})}"

    async def token(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        requests = self.codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            requests is None
            or request.headers.get("authorization") != PROOF
            or challenge != requests["code_challenge"]
            or form["redirect_uri"] != requests["redirect_uri"]
        ):
            return JSONResponse({"error": "invalid_grant"}, 400)
        tokens = {"access_token": self.access_token, "id_token": self.signed(requests)}
        return JSONResponse({"token_type": "Bearer", **tokens})

    def signed(self, params: Mapping[str, str]) -> str:
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": params["nonce"],
            **self.claims,
            **self.lies,
        }
        return jwt.encode(
            {name: value for name, value in claims.items() if value is not None},
            self.key if self.signing_key is None else self.signing_key,
            self.algorithm,
            {"kid": "one", **self.headers},
        )

    async def userinfo(self, request: Request) -> Response:
        return JSONResponse(self.info)


@asynccontextmanager
async def provider() -> AsyncIterator[OpenId]:
    result = OpenId()
    async with serve(result.routes()) as port:
        result.issuer = f"http://127.0.0.1:{port}"
        yield result
