"""The generation of a response with MCP tools: requests to the model, and the calls of tools between them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Mapping
from http import HTTPStatus
from typing import Any, cast

from msgspec.structs import replace

from sixfold import errors
from sixfold.api.gateway.chat_handler import KEEP_ALIVE, ChatCall
from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.responses import dialect, mcp_items, references
from sixfold.api.gateway.openai.responses.mcp import rounds
from sixfold.api.gateway.openai.responses.mcp.rounds import CompleteReply, EventSource, ModelRound
from sixfold.api.gateway.openai.responses.mcp.tools import McpPlan
from sixfold.api.gateway.openai.responses.mcp.writer import McpEventWriter
from sixfold.core import ids
from sixfold.core.accounts import charges, connections
from sixfold.core.accounts.limits import budgets
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.gateway import chat as chats
from sixfold.core.gateway import idempotency as gateway_idempotency
from sixfold.core.gateway.chat import ChatRequest, MessageEnd
from sixfold.core.gateway.guardrails.hooks import GuardrailUnavailable
from sixfold.core.gateway.ports import GatewayReply, GatewayRequest
from sixfold.core.gateway.pricing.usage import NOTHING, TokenUsage, add_usage
from sixfold.core.gateway.tools.servers import INSTRUCTION, MAX_ROUNDS, ToolOutput, Toolset, model_name
from sixfold.web import bodies
from sixfold.web.services import WebServices

# Maximum calls of servers' tools in one response.
MAX_CALLS = 24
_INCOMPLETE = ("length", "filter")


class TimeLimitExceeded(errors.SixfoldError):
    """The response was not complete within the time limit of a call."""

    status = 408
    code = "time_limit_exceeded"


class McpRun:
    """A response in progress.

    After `begin`, `blocks` yields the events of a stream, and `complete` returns a complete response.

    If a request to the model is refused, or the credential is revoked, after tools have been called, the
    response is incomplete: the calls may have had effects, which the caller has to know, and the requests
    before are charged. If the server fails, the response fails, and all requests are refunded.
    """

    def __init__(self, services: WebServices, plan: McpPlan, request: GatewayRequest, call: ChatCall) -> None:
        self.target = ""
        # No model server stores the response.
        self.server = ""
        self._services = services
        self._plan = plan
        self._request = request
        self._call = call
        self._writer = McpEventWriter(request.request_id, call.model, call, plan)
        self._credential = connections.current()
        self._stack = contextlib.AsyncExitStack()
        self._toolset: Toolset | None = None
        self._head = b""
        self._chat = ChatRequest(())
        self._opening: asyncio.Future[EventSource] | None = None
        self._end = MessageEnd("end", NOTHING)
        self._usage: TokenUsage | None = None
        self._replies: list[GatewayReply] = []
        # The ids of the requests to the model.
        self._request_ids: list[str] = []
        # Whether the charges remain although the response failed.
        self._charged_failure = False
        self._calls_left = min(MAX_CALLS, MAX_CALLS if plan.max_calls is None else max(plan.max_calls, 0))

    @property
    def reply(self) -> GatewayReply:
        """The last reply of the model, with the usage and the cost of all replies."""
        if not self._replies:
            return GatewayReply(self.target, "", NOTHING, 0, charges.calculate(()))
        last, prices = self._replies[-1], [reply.list_price for reply in self._replies]
        return replace(
            last,
            usage=self._usage or NOTHING,
            cost=sum(reply.cost for reply in self._replies),
            cached=all(reply.cached for reply in self._replies),
            list_price=None if None in prices else sum(price or 0 for price in prices),
            rounds=tuple(self._request_ids[1:]),
        )

    async def begin(self, payer: Payer | None) -> None:
        """Open the tool servers, make the approved calls, and send the first request to the model.

        Raises `InvalidRequest`, the errors of `ToolServers.toolset` and of `Gateway.complete`.
        """
        try:
            if self._request.prepaid_hold is not None:
                await self._services.database.write(gateway_idempotency.refund_rounds(self._request.once))
            await self._open_tools()
            self._opening = self._request_model(0, payer)
            try:
                self.target = (await self._opening).target
            except errors.SixfoldError as error:
                # `_rounds` raises it again after the events of the approved calls.
                if not self._is_interruption(error):
                    raise
        except BaseException:
            await self.abandon()
            raise

    async def abandon(self) -> None:
        """Close the response and its tool servers. Idempotent."""
        opening, self._opening = self._opening, None
        try:
            if opening is not None:
                await rounds.abandon(opening)
        finally:
            await self._stack.aclose()

    async def blocks(self) -> AsyncGenerator[bytes]:
        """Yield the events; an error becomes `response.failed`."""
        try:
            try:
                async with contextlib.aclosing(self._rounds()) as blocks:
                    async for block in blocks:
                        yield block
            finally:
                await self.abandon()
            yield self._writer.end(self._end)
        except errors.SixfoldError as error:
            yield self._writer.fail(dialect.error_fields(error))

    async def complete(self) -> bytes:
        """Return the complete response; raises the errors of `Gateway.complete`."""
        size = 0
        try:
            async with contextlib.aclosing(self._rounds()) as blocks:
                async for block in blocks:
                    size += len(block)
        finally:
            await self.abandon()
        document = self._writer.response(self._end)
        return await PARSER.run_large(size, parsing.encode, document)

    async def _open_tools(self) -> None:
        plan, writer = self._plan, self._writer
        servers = self._services.tool_servers
        toolset = await self._stack.enter_async_context(
            servers.toolset(self._request.caller, tuple(plan.tools))
        )
        toolset.restrict(plan.tool_names)
        self._toolset = toolset
        writer.server_tools = toolset.tools
        body = await self._parse_body()
        value = body.get("input")
        items = cast("list[Any]", value) if isinstance(value, list) else []
        self._head = writer.begin() + writer.add_searches()
        listed = mcp_items.listed_servers(items)
        for label in plan.tools:
            if label not in listed:
                specs = [tool.spec for tool in toolset.tools.values() if tool.server == label]
                self._head += writer.add_list(label, specs)
        # An invalid request is refused before its approved calls have effects.
        self._chat = await self._parse_chat(body, toolset)
        if calls := await self._make_approved(toolset, items):
            body["input"] = mcp_items.with_calls(items, calls)
            self._chat = await self._parse_chat(body, toolset)

    async def _parse_chat(self, body: dict[str, Any], toolset: Toolset) -> ChatRequest:
        chat = await PARSER.run_large(len(self._request.body), dialect.parse_body, body)
        return self._with_tools(chat, toolset)

    async def _parse_body(self) -> dict[str, Any]:
        raw, expand = self._request.body, self._call.expand
        if expand is not None:
            raw = await bodies.parse(expand, raw)
        return await bodies.parse(bodies.parse_object, raw)

    async def _make_approved(self, toolset: Toolset, items: list[Any]) -> Mapping[int, Mapping[str, Any]]:
        """Make the approved calls, and return their items by the index of the approval."""
        tenant = self._request.tenant
        # The caller's ids by the ids that replace them.
        originals = {references.renamed_id(tenant, own): own for own in self._plan.approvals}
        results: dict[int, Mapping[str, Any]] = {}
        for call in mcp_items.approved_calls(items):
            name = model_name(call.server, call.name)
            output = await self._call_tool(toolset, name, call.arguments)
            request_id = originals.get(call.request_id, call.request_id)
            self._head += self._writer.add_approved(call, request_id, output)
            results[call.index] = self._writer.output[-1]
        return results

    def _with_tools(self, chat: ChatRequest, toolset: Toolset) -> ChatRequest:
        own = {tool.name for tool in chat.tools}
        for name in toolset.tools:
            if name in own:
                raise InvalidRequest(
                    f"tools contains a function with the name of a tool of an MCP server ({name}): rename "
                    "the function",
                    param="tools",
                )
        chosen = chat.choice.removeprefix("=") if chat.choice.startswith("=") else ""
        if chosen and chosen not in own and chosen not in toolset.tools:
            raise InvalidRequest(
                f"tool_choice must name one of the tools (got {chosen})", param="tool_choice"
            )
        system = f"{chat.system}\n\n{INSTRUCTION}".strip()
        return replace(chat, system=system, tools=(*chat.tools, *toolset.specs))

    def _request_model(self, number: int, payer: Payer | None) -> asyncio.Future[EventSource]:
        """Send a request to the model; the first one has the id of the response."""
        first = self._request
        chat = self._chat
        if number == MAX_ROUNDS - 1:
            # A model that always calls tools would never end.
            chat = replace(chat, choice="none")
        request = replace(
            first,
            request_id=ids.new("req") if number else first.request_id,
            wire="",
            body=b"",
            parse=lambda: chat,
            reparse=None,
            max_tokens=chat.max_tokens,
            stored_tokens=0,
            # The other requests of a lost response are refunded.
            prepaid_hold=None if number else first.prepaid_hold,
            chat_bytes=chats.content_bytes(chat),
        )
        self._request_ids.append(request.request_id)
        return asyncio.ensure_future(self._requested(number, request, payer))

    async def _requested(self, number: int, request: GatewayRequest, payer: Payer | None) -> EventSource:
        if number and request.once:
            recording = gateway_idempotency.begin_round(request.once, number, request.request_id)
            await self._services.database.write(recording, durable=False)
        return await rounds.request(self._services.gateway, request, payer)

    async def _rounds(self) -> AsyncGenerator[bytes]:
        """Yield the events up to the end of the response, which may be incomplete."""
        yield self._head
        try:
            async with contextlib.aclosing(self._alternate()) as blocks:
                async for block in blocks:
                    yield block
        except errors.SixfoldError as error:
            if not self._is_interruption(error):
                if not self._charged_failure:
                    await self._refund(error)
                raise
            self._end = MessageEnd("end", self._usage or NOTHING)
            yield self._writer.interrupt(error)

    def _is_interruption(self, error: errors.SixfoldError) -> bool:
        """Return whether a response ends incomplete: tools were called, and the server has not failed."""
        refused = error.status < HTTPStatus.INTERNAL_SERVER_ERROR or isinstance(error, GuardrailUnavailable)
        return refused and self._writer.has_made_calls

    async def _alternate(self) -> AsyncGenerator[bytes]:
        """Yield the events of the requests to the model, and of the calls of tools between them."""
        for number in range(MAX_ROUNDS):
            if number:
                self._check_time()
                await self._check_credential()
                self._opening = self._request_model(number, budgets.payer_of(self._request.caller))
            answer = ModelRound()
            async with contextlib.aclosing(self._read(answer)) as blocks:
                async for block in blocks:
                    yield block
            yield self._writer.close()
            usage, stop = answer.end.usage, answer.end.stop
            self._usage = usage if self._usage is None else add_usage(self._usage, usage)
            self._end = MessageEnd(stop, self._usage)
            if stop in _INCOMPLETE:
                yield self._writer.abandon_calls()
                return
            outputs: list[ToolOutput] = []
            async with contextlib.aclosing(self._make_calls(answer)) as results:
                async for output, block in results:
                    outputs += [output] if output is not None else []
                    yield block
            if not outputs or len(outputs) < len(answer.calls):
                # The caller returns the outputs of functions, and approves calls.
                return
            self._chat = answer.next_chat(self._chat, outputs)
            if (limit := self._request.max_tokens) is not None:
                if self._usage.output >= limit:
                    self._end = MessageEnd("length", self._usage)
                    return
                self._chat = replace(self._chat, max_tokens=limit - self._usage.output)

    def _check_time(self) -> None:
        """Raise `TimeLimitExceeded` after the time limit of a call, when a conversation is unlocked."""
        seconds = self._services.gateway.policy.call_seconds
        if time.perf_counter() - self._call.started_at > seconds:
            raise TimeLimitExceeded(f"The response was not complete after {seconds:,.0f} seconds")

    async def _check_credential(self) -> None:
        """Raise `Unauthenticated` if the credential was revoked since the last step.

        Streams are closed within a second of it, but nothing ends the request for a complete response.
        """
        credential = self._credential
        if credential is not None and not await self._services.connections.is_valid(credential):
            raise errors.Unauthenticated("This credential was revoked")

    async def _read(self, answer: ModelRound) -> AsyncGenerator[bytes]:
        """Yield the events of a response of the model, which is collected in `answer`."""
        opening, source = self._opening, None
        assert opening is not None  # noqa: S101 - the caller has set it
        try:
            async for block in self._waiting(opening):
                yield block
            source = opening.result()
            self._opening, self.target = None, source.target
            if isinstance(source, CompleteReply):
                self._replies.append(source.reply)
            async with contextlib.aclosing(source.events()) as events:
                async for event in events:
                    answer.read(event)
                    if not isinstance(event, MessageEnd):
                        yield dialect.render_event(self._writer, event)
        except errors.EngineFailed:
            # A caller that reads too slowly pays for the part that was delivered.
            outcome = None if source is None else source.outcome
            self._charged_failure = outcome is not None and outcome.state != "failed"
            raise

    async def _refund(self, error: errors.SixfoldError) -> None:
        """Refund the requests to the model, whose results are lost."""
        await self._services.gateway.refund(self._request_ids, error.message)

    async def _make_calls(self, answer: ModelRound) -> AsyncGenerator[tuple[ToolOutput | None, bytes]]:
        """Make the calls of servers' tools that need no approval; yield their outputs and events."""
        toolset = self._toolset
        assert toolset is not None  # noqa: S101 - `begin` has set it
        for call in answer.calls:
            if call.name not in toolset.tools or self._writer.needs_approval(call.name):
                continue
            work = asyncio.ensure_future(self._call_tool(toolset, call.name, call.arguments))
            try:
                async for block in self._waiting(work):
                    yield None, block
            finally:
                if not work.done():
                    work.cancel()
                    await asyncio.wait({work})
            output = work.result()
            yield output, self._writer.end_server_call(output)

    async def _call_tool(self, toolset: Toolset, name: str, arguments: str) -> ToolOutput:
        if self._calls_left <= 0:
            text = "The maximum number of calls of tools in one response is reached: answer without them."
            return ToolOutput(text, failed=True)
        self._calls_left -= 1
        await self._check_credential()
        return await toolset.call(self._request.request_id, name, arguments)

    async def _waiting(self, work: asyncio.Future[Any]) -> AsyncGenerator[bytes]:
        """Yield comments for the caller until a result is there."""
        seconds = self._services.gateway.policy.keep_alive_seconds
        while not work.done():
            done, _ = await asyncio.wait({work}, timeout=seconds)
            if not done:
                yield KEEP_ALIVE
