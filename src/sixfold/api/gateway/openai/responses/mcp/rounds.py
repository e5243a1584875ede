"""One request to a model within a response with MCP tools: its events, and what the next request repeats."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from msgspec.structs import replace

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.gateway.chat import (
    ChatMessage,
    ChatRequest,
    ChatResponse,
    Event,
    MessageEnd,
    Part,
    ReasoningDelta,
    ReasoningPart,
    TextDelta,
    TextPart,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    ToolResult,
)
from sixfold.core.gateway.gateway import Gateway
from sixfold.core.gateway.ports import GatewayReply, GatewayRequest
from sixfold.core.gateway.pricing.usage import NOTHING
from sixfold.core.gateway.request_log import CallOutcome
from sixfold.core.gateway.tools.servers import ToolOutput


class EventSource(Protocol):
    """A response of a model as events; `target` names the model and its server.

    `outcome` is the outcome of the call, once a stream has ended.
    """

    target: str
    outcome: CallOutcome | None

    def events(self) -> AsyncGenerator[Event]: ...

    async def abandon(self) -> None:
        """Close a response that was not read."""
        ...


class CompleteReply:
    """The events of a complete response."""

    def __init__(self, reply: GatewayReply) -> None:
        self.target = reply.target
        self.outcome: CallOutcome | None = None
        self.reply = reply

    async def events(self) -> AsyncGenerator[Event]:
        """Yield the parts and the end of the response."""
        answer = self.reply.answer or ChatResponse("", "", (), "end", self.reply.usage)
        for number, part in enumerate(answer.parts):
            match part:
                case TextPart():
                    yield TextDelta(part.text)
                case ReasoningPart():
                    yield ReasoningDelta(part.text, part.signature)
                case ToolCall():
                    yield ToolCallStart(number, part.id, part.name)
                    yield ToolCallDelta(number, part.arguments)
        yield MessageEnd(answer.stop, self.reply.usage)

    async def abandon(self) -> None:
        """Do nothing, as the response was charged when it was complete."""


async def request(gateway: Gateway, call: GatewayRequest, payer: Payer | None) -> EventSource:
    """Return the response of a model; raises the errors of `Gateway.complete`."""
    if call.stream:
        return await gateway.stream(call, payer)
    return CompleteReply(await gateway.complete(call, payer))


async def abandon(opening: asyncio.Future[EventSource]) -> None:
    """Close a response that is not read further, also if it has not begun."""
    if not opening.done():
        opening.cancel()
    with contextlib.suppress(asyncio.CancelledError, errors.SixfoldError):
        await (await opening).abandon()


class ModelRound:
    """The parts of one response of the model."""

    def __init__(self) -> None:
        self.end = MessageEnd("end", NOTHING)
        self._parts: list[Part] = []
        self._reasoning = io.StringIO()
        self._text = io.StringIO()
        self._calls: list[tuple[str, str, io.StringIO]] = []
        # The index of a call by its number in the events.
        self._numbers: dict[int, int] = {}

    def read(self, event: Event) -> None:
        """Add an event."""
        match event:
            case TextDelta():
                self._text.write(event.text)
            case ReasoningDelta():
                self._reasoning.write(event.text)
                if event.signature:
                    # Reasoning without a signature is not sent again, as in conversations.
                    self._parts.append(ReasoningPart(self._reasoning.getvalue(), event.signature))
                    self._reasoning = io.StringIO()
            case ToolCallStart():
                self._numbers[event.number] = len(self._calls)
                self._calls.append((event.id or ids.new("call"), event.name, io.StringIO()))
            case ToolCallDelta():
                if event.number in self._numbers:
                    self._calls[self._numbers[event.number]][2].write(event.text)
            case MessageEnd():
                self.end = event

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls in their order."""
        return tuple(ToolCall(own_id, name, text.getvalue() or "{}") for own_id, name, text in self._calls)

    def next_chat(self, chat: ChatRequest, outputs: Sequence[ToolOutput]) -> ChatRequest:
        """Return the next request, with this response and the outputs of its calls."""
        text, calls = self._text.getvalue(), self.calls
        texts = (TextPart(text),) if text else ()
        results = tuple(
            ToolResult(call.id, (TextPart(output.text),), output.failed)
            for call, output in zip(calls, outputs, strict=True)
        )
        messages = (
            ChatMessage("assistant", (*self._parts, *texts, *calls)),
            ChatMessage("user", results),
        )
        # A choice that requires a call applies to the first request only.
        choice = chat.choice if chat.choice == "none" else "auto"
        return replace(chat, messages=(*chat.messages, *messages), choice=choice)
