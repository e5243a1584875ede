"""The official client: discovery, consent by a user in a browser, and token rotation."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import httpx2
import pytest
from mcp.client import Client
from mcp.client.auth import OAuthClientProvider, TokenStorage
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

from tests.api.app_fixture import AppFixture, running_app
from tests.api.test_pages import link
from tests.mcp.loopback import serve

pytestmark = pytest.mark.slow
BACK = "http://127.0.0.1:8765/callback"


class Kept(TokenStorage):
    """Token storage in memory."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Person:
    """Signed-in user who consents in a browser."""

    def __init__(self, app: AppFixture, origin: str) -> None:
        self._app = app
        self._origin = origin
        self._query: dict[str, list[str]] = {}
        self.visits = 0

    async def opens(self, address: str) -> None:
        """Read the page, and press its first button."""
        self.visits += 1
        async with httpx.AsyncClient(base_url=self._origin, headers={"Origin": self._origin}) as browser:
            await browser.get("/signin", params={"token": await link(self._app)})
            page = (await browser.get(address)).text
            fields = dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', page))
            fields = {name: value.replace("&amp;", "&") for name, value in fields.items()}
            sent = await browser.post("/oauth/authorize", data={**fields, "decision": "allow"})
        self._query = parse_qs(urlsplit(sent.headers["location"]).query)

    async def comes_back(self) -> AuthorizationCodeResult:
        """Return the parameters of the redirect to the client."""
        response = {name: values[0] for name, values in self._query.items()}
        return AuthorizationCodeResult(
            code=response["code"], state=response.get("state"), iss=response.get("iss")
        )


async def test_official_client_authorizes_and_reuses_its_token(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    remaining = Kept()
    async with running_app(tmp_path, port=port) as app, serve(app.asgi, port) as origin:
        person = Person(app, origin)
        about = OAuthClientMetadata(
            client_name="An assistant", redirect_uris=[AnyUrl(BACK)], token_endpoint_auth_method="none"
        )
        auth = OAuthClientProvider(f"{origin}/mcp", about, remaining, person.opens, person.comes_back)
        async with (
            httpx2.AsyncClient(auth=auth) as http,
            Client(streamable_http_client(f"{origin}/mcp", http_client=http)) as client,
        ):
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert {"search", "write"} <= names
        first = remaining.tokens
        assert first is not None
        auth.context.token_expiry_time = 1  # long ago
        async with (
            httpx2.AsyncClient(auth=auth) as http,
            Client(streamable_http_client(f"{origin}/mcp", http_client=http)) as client,
        ):
            assert (await client.list_tools()).tools
        assert remaining.tokens is not None
        assert remaining.tokens.access_token != first.access_token
        assert person.visits == 1, "the refresh token was enough"
