"""Runs the lines of batches as requests to this server's own routes, without a connection."""

from __future__ import annotations

import asyncio

from starlette.types import Message, Scope

from sixfold.api.gateway.openai.responses.mcp import tools
from sixfold.core.accounts import connections
from sixfold.core.batches import lines
from sixfold.core.batches.models import LineCall, LineReply
from sixfold.core.database import Database, Transaction, one
from sixfold.core.gateway import idempotency as gateway_idempotency
from sixfold.web.app import WebApp
from sixfold.web.auth import Authenticator
from sixfold.web.idempotency import BATCH_LINE

# The routes that lines may name; a server without one of them refuses it.
OPENAI_ENDPOINTS = (
    "/v1/responses",
    "/v1/chat/completions",
    "/v1/embeddings",
    "/v1/completions",
    "/v1/moderations",
    "/v1/images/generations",
)
ANTHROPIC_ENDPOINT = "/v1/messages"
_METHOD = "POST"


class RouteRunner:
    """Sends each line to the application as a request with the batch's key, its checks and its charges."""

    def __init__(self, app: WebApp, authenticator: Authenticator, database: Database) -> None:
        paths = {entry.path for entry in app.table.entries() if entry.method == _METHOD}
        self._endpoints = frozenset(paths & {*OPENAI_ENDPOINTS, ANTHROPIC_ENDPOINT})
        self._app = app
        self._authenticator = authenticator
        self._database = database

    @property
    def endpoints(self) -> frozenset[str]:
        """The routes of this server that lines may name."""
        return self._endpoints

    async def run(self, call: LineCall) -> LineReply:
        exchange = _Exchange(call.body)
        await self._app(self._scope(call), exchange.receive, exchange.send)
        principal = connections.authenticated.get()
        headers = exchange.headers
        retry_after = headers.get(b"retry-after", b"").decode("latin-1")
        return LineReply(
            exchange.status,
            headers.get(b"x-request-id", b"").decode("latin-1"),
            bytes(exchange.body),
            int(retry_after) if retry_after.isdigit() and len(retry_after) < 9 else 0,
            permanent=headers.get(b"x-should-retry") == b"false",
            scope=""
            if principal is None
            else lines.scope_id(principal.replays, call.endpoint, call.idempotency_key),
        )

    async def refund(self, scope: str, body: bytes) -> None:
        """Refund the gateway call of a line whose response, stored under the id `scope`, was lost."""
        once = await gateway_idempotency.once_id(scope, body)
        await self._database.write(gateway_idempotency.refund(once))

    async def refund_canceled(self, scope: str, body: bytes, response_id: str) -> None:
        """Refund a canceled background response, unless it is stored or may have called tools.

        Calls of tools of MCP servers may have had effects, so the requests before them remain charged.
        """
        if tools.may_name_servers(body):
            return
        once = await gateway_idempotency.once_id(scope, body)

        def refund() -> Transaction[None]:
            if (yield from one("response_known", id=response_id)) is None:
                yield from gateway_idempotency.refund(once)

        await self._database.write(refund())

    def _scope(self, call: LineCall) -> Scope:
        values = {
            **call.headers,
            "authorization": f"Bearer {self._authenticator.delegate(call.key_id)}",
            "content-type": "application/json",
            "content-length": str(len(call.body)),
            "idempotency-key": call.idempotency_key,
        }
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": _METHOD,
            "scheme": "http",
            "path": call.endpoint,
            "raw_path": call.endpoint.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode("latin-1"), text.encode("latin-1")) for name, text in values.items()],
            "client": ("127.0.0.1", 0),
            "server": None,
            BATCH_LINE: True,
        }


class _Exchange:
    """The two ends of a request without a connection."""

    def __init__(self, body: bytes) -> None:
        self._request: bytes | None = body
        self.status = 500
        self.headers: dict[bytes, bytes] = {}
        self.body = bytearray()

    async def receive(self) -> Message:
        if self._request is None:
            # The caller never disconnects.
            await asyncio.Event().wait()
        body, self._request = self._request, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = dict(message["headers"])
        else:
            self.body += message.get("body", b"")
