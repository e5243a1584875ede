"""Handling of requests for responses with MCP tools."""

from __future__ import annotations

from sixfold.api.gateway.chat_handler import ChatCall, ChatHandler, OpenResponse, prepared_call
from sixfold.api.gateway.openai.responses import dialect
from sixfold.api.gateway.openai.responses.mcp.run import McpRun
from sixfold.api.gateway.openai.responses.mcp.tools import McpPlan
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.gateway.ports import GatewayReply, GatewayRequest
from sixfold.web.services import WebServices


class McpResponseHandler(ChatHandler):
    """Generates one response in which this server calls the tools of a plan."""

    def __init__(self, services: WebServices, plan: McpPlan) -> None:
        super().__init__(services, services.gateway, dialect.TOOL_DIALECT)
        self._mcp = services, plan

    async def generate(
        self, request: GatewayRequest, chat_call: ChatCall, payer: Payer | None
    ) -> tuple[GatewayReply, bytes]:
        """Return the last reply of the model with the cost of all, and the response."""
        run = await self._begin(request, chat_call, payer)
        body = await run.complete()
        return run.reply, body

    async def open(self, request: GatewayRequest, chat_call: ChatCall, payer: Payer | None) -> OpenResponse:
        """Return a stream whose first request to the model has been answered."""
        return await self._begin(request, chat_call, payer)

    async def _begin(self, request: GatewayRequest, chat_call: ChatCall, payer: Payer | None) -> McpRun:
        run = McpRun(*self._mcp, request, await prepared_call(chat_call, len(request.body)))
        await run.begin(payer)
        return run
