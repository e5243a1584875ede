"""MCP client that calls POST /mcp with one key, as plainly as curl does."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.api.app_fixture import AppFixture, bearer

MEMORY = {
    "context", "search", "read", "write", "edit", "list", "tag", "link", "timeline", "traverse", "history",
    "delete", "restore", "inspect", "import_document", "fetch",
}  # fmt: skip
MAKING = {"models", "quote", "run", "prediction", "run_space"}
JSON = {"Content-Type": "application/json"}


class Agent:
    """MCP client with one key."""

    def __init__(self, app: AppFixture, key: str | None = None) -> None:
        self._app = app
        self._headers = bearer(key or app.key) | JSON

    async def post(self, body: Any, **headers: str) -> httpx.Response:
        """Send a body unchanged, or as JSON."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = self._headers | {name.replace("_", "-"): value for name, value in headers.items()}
        return await self._app.client.post("/mcp", content=content, headers=sent)

    async def rpc(self, method: str, params: Any = None, **headers: str) -> Any:
        """Send one request and return the whole response."""
        body = {"jsonrpc": "2.0", "id": 7, "method": method}
        response = await self.post(body if params is None else {**body, "params": params}, **headers)
        return response.json()

    async def result(self, method: str, params: Any = None) -> Any:
        """Send one request that must succeed, and return its result."""
        answer = await self.rpc(method, params)
        assert "result" in answer, answer
        return answer["result"]

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool that must succeed, and return its values."""
        result = await self.result("tools/call", {"name": tool, "arguments": arguments})
        assert result["isError"] is False, result
        return result["structuredContent"]

    async def error_of(self, tool: str, **arguments: Any) -> str:
        """Call a tool that must fail, and return its error message."""
        result = await self.result("tools/call", {"name": tool, "arguments": arguments})
        assert result["isError"] is True, result
        (text,) = result["content"]
        return text["text"]
