"""Amazon Bedrock's Converse API.

Source: https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html and
…/API_runtime_ConverseStream.html (content blocks, stop reasons and usage). `inputTokens` excludes tokens
read from or written to the cache. A JSON schema for the response is sent as the input schema of a tool,
because not every model supports structured output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from sixfold.clients.chat import anthropic_models
from sixfold.clients.chat.aws_events import AwsEvent, AwsEventSplitter
from sixfold.clients.chat.messages import (
    JSON_TOOL,
    JSON_TOOL_TEXT,
    json_as_tool,
    json_instruction,
    may_think,
    parse_arguments,
)
from sixfold.clients.chat.rejections import parse_rejection
from sixfold.core.gateway.chat import (
    ChatMessage,
    ChatRequest,
    ChatResponse,
    Event,
    ImagePart,
    MessageEnd,
    Part,
    ReasoningDelta,
    ReasoningPart,
    Stop,
    TextDelta,
    TextPart,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    ToolResult,
)
from sixfold.core.gateway.ports import UpstreamRejection, WireProtocol
from sixfold.core.gateway.pricing.usage import NOTHING, TokenUsage, parse_token_count, parse_totals

_encode = msgspec.json.Encoder().encode
_STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "stop_sequence": "sequence",
    "tool_use": "tool",
    "guardrail_intervened": "filter",
    "content_filtered": "filter",
}


class _CacheDetail(msgspec.Struct):
    ttl: Any = None
    input_tokens: Any = msgspec.field(default=None, name="inputTokens")


class _ConverseUsage(msgspec.Struct, rename="camel"):
    input_tokens: Any = None
    output_tokens: Any = None
    cache_read_input_tokens: Any = None
    cache_write_input_tokens: Any = None
    cache_details: list[_CacheDetail] | None = None

    def read(self) -> TokenUsage | None:
        totals = parse_totals(self.input_tokens, self.output_tokens)
        if totals is None:
            return None
        cached = parse_token_count(self.cache_read_input_tokens) or 0
        cache_write = parse_token_count(self.cache_write_input_tokens) or 0
        details = self.cache_details or ()
        hour = sum(parse_token_count(detail.input_tokens) or 0 for detail in details if detail.ttl == "1h")
        return TokenUsage(
            input=totals[0] + cached + cache_write,
            output=totals[1],
            cached=cached,
            cache_write=max(0, cache_write - hour),
            cache_write_long=min(cache_write, hour),
        )


class _ReasoningText(msgspec.Struct):
    text: str | None = None
    signature: str | None = None


class _Reasoning(msgspec.Struct, rename="camel"):
    """Reasoning; `reasoning_text` is set only in a whole message, the other fields only in a delta."""

    reasoning_text: _ReasoningText | None = None
    text: str | None = None
    signature: str | None = None


class _ToolUse(msgspec.Struct, rename="camel"):
    tool_use_id: str | None = None
    name: str | None = None
    # A JSON document in a whole message, a part of its text in a delta.
    input: msgspec.Raw = msgspec.Raw()


class _ConverseBlock(msgspec.Struct, rename="camel"):
    text: str | None = None
    tool_use: _ToolUse | None = None
    reasoning_content: _Reasoning | None = None

    @property
    def chars(self) -> int:
        reasoning = self.reasoning_content
        inner = None if reasoning is None else (reasoning.reasoning_text or reasoning).text
        return len(self.text or inner or "") + (len(self.tool_use.input) if self.tool_use is not None else 0)


class _ConverseMessage(msgspec.Struct):
    content: list[_ConverseBlock] | None = None


class _ConverseOutput(msgspec.Struct):
    message: _ConverseMessage | None = None


class _ConverseDocument(msgspec.Struct, rename="camel"):
    """A response, or the payload of any event."""

    output: _ConverseOutput | None = None
    stop_reason: str | None = None
    usage: _ConverseUsage | None = None
    content_block_index: int = 0
    start: _ConverseBlock | None = None
    delta: _ConverseBlock | None = None
    message: str | None = None


_decode = msgspec.json.Decoder(_ConverseDocument).decode
_text = msgspec.json.Decoder(str).decode


class Converse(WireProtocol):
    """The protocol of `POST /model/{model}/converse`; the model is in the path."""

    name = "converse"
    path = "/converse"

    def path_of(self, model: str, *, stream: bool) -> str:
        return f"/model/{quote(model, safe='')}/converse{'-stream' if stream else ''}"

    def rewrite_request(self, body: bytes, model: str) -> bytes:
        """Raise `NotImplementedError`, as callers do not use this protocol."""
        raise NotImplementedError

    def build_request(self, chat: ChatRequest, model: str, *, stream: bool) -> bytes:
        effort = chat.effort if not json_as_tool(chat) and may_think(chat.messages) else ""
        thinking = anthropic_models.thinking(model, effort) if "claude" in model else {}
        allows_sampling = not thinking and anthropic_models.allows_sampling(model)
        budget = anthropic_models.thinking_tokens(effort) if thinking else 0
        system = chat.system
        if chat.shape is not None and not json_as_tool(chat):
            system = f"{system}\n\n{json_instruction(chat.shape)}".strip()
        temperature = chat.temperature if allows_sampling else None
        inference: dict[str, Any] = {
            "maxTokens": chat.max_tokens + budget if chat.max_tokens else None,
            "temperature": None if temperature is None else min(1.0, temperature),
            "topP": chat.top_p if allows_sampling and temperature is None else None,
            "stopSequences": [text for text in chat.stop if text.strip()] or None,
        }
        inference = {name: value for name, value in inference.items() if value is not None}
        fields: dict[str, Any] = {
            "messages": _turns(chat.messages),
            "system": [{"text": system}] if system else None,
            "inferenceConfig": inference or None,
            "toolConfig": _tools(chat) or None,
            "additionalModelRequestFields": thinking or None,
        }
        return _encode({name: value for name, value in fields.items() if value is not None})

    def usage(self, body: bytes) -> tuple[TokenUsage | None, int]:
        document, blocks = _response(body)
        usage = document.usage.read() if document.usage is not None else None
        return usage, sum(block.chars for block in blocks)

    def parse_response(self, body: bytes, chat: ChatRequest) -> ChatResponse:
        document, blocks = _response(body)
        as_tool = json_as_tool(chat)
        parts = [part for block in blocks if (part := _parse_block(block, as_tool=as_tool)) is not None]
        stop = _STOPS.get(document.stop_reason or "end_turn", "end")
        usage = document.usage.read() if document.usage is not None else None
        end = "end" if as_tool and stop == "tool" else stop
        return ChatResponse("", "", tuple(parts), end, usage or NOTHING)

    def parse_error(self, body: bytes) -> UpstreamRejection:
        return parse_rejection(body)

    def scanner(self) -> ConverseParser:
        return ConverseParser(as_tool=False)

    def stream_parser(self, chat: ChatRequest) -> ConverseParser:
        return ConverseParser(as_tool=json_as_tool(chat))


class ConverseParser:
    """Parses the binary events of a message."""

    def __init__(self, *, as_tool: bool) -> None:
        self.usage: TokenUsage | None = None
        self.chars = 0
        self.complete = False
        self.error = ""
        self._stop: Stop = "end"
        self._as_tool = as_tool
        self._splitter = AwsEventSplitter()
        self._calls: dict[int, int] = {}

    @property
    def buffered(self) -> int:
        return self._splitter.size

    def forward(self, block: bytes, *, keep_usage: bool) -> bytes:
        self.events(block)
        return block

    def events(self, block: bytes) -> Sequence[Event]:
        if self.error:
            return ()
        events: list[Event] = []
        try:
            for event in self._splitter.feed(block):
                events += self._parse_event(event)
        except (ValueError, msgspec.MsgspecError):
            self.error = "The model server sent an invalid event stream"
        return events

    def end(self) -> MessageEnd:
        stop = "end" if self._as_tool and self._stop == "tool" else self._stop
        return MessageEnd(stop, self.usage or NOTHING)

    def _parse_event(self, event: AwsEvent) -> list[Event]:
        document = _decode(event.payload)
        if event.failed:
            self.error = f"The model server failed: {(document.message or event.kind)[:200]}"
        elif event.kind == "messageStop":
            self.complete = True
            self._stop = _STOPS.get(document.stop_reason or "end_turn", "end")
        elif document.usage is not None:
            self.usage = document.usage.read()
        index = document.content_block_index
        if document.start is not None and document.start.tool_use is not None and not self._as_tool:
            call = document.start.tool_use
            number = self._calls.setdefault(index, len(self._calls))
            return [ToolCallStart(number, call.tool_use_id or "", call.name or "")]
        return [] if document.delta is None else self._delta_events(index, document.delta)

    def _delta_events(self, index: int, delta: _ConverseBlock) -> list[Event]:
        self.chars += delta.chars
        reasoning = delta.reasoning_content
        if delta.text:
            return [TextDelta(delta.text)]
        if reasoning is not None and (reasoning.text or reasoning.signature):
            return [ReasoningDelta(reasoning.text or "", reasoning.signature or "")]
        if delta.tool_use is not None and delta.tool_use.input:
            text = _text(delta.tool_use.input)
            return [TextDelta(text) if self._as_tool else ToolCallDelta(self._calls.get(index, 0), text)]
        return []


def _response(body: bytes) -> tuple[_ConverseDocument, Sequence[_ConverseBlock]]:
    try:
        document = _decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError("the response is not valid JSON") from error
    if document.output is None or document.output.message is None:
        raise ValueError("the response has no message")
    return document, document.output.message.content or ()


def _parse_block(block: _ConverseBlock, *, as_tool: bool) -> TextPart | ToolCall | ReasoningPart | None:
    if block.text:
        return TextPart(block.text)
    if block.reasoning_content is not None and block.reasoning_content.reasoning_text is not None:
        reasoning = block.reasoning_content.reasoning_text
        return ReasoningPart(reasoning.text or "", reasoning.signature or "")
    if block.tool_use is not None:
        arguments = (bytes(block.tool_use.input) or b"{}").decode()
        call = ToolCall(block.tool_use.tool_use_id or "", block.tool_use.name or "", arguments)
        return TextPart(arguments) if as_tool else call
    return None


def _tools(chat: ChatRequest) -> dict[str, Any]:
    if json_as_tool(chat) and chat.shape is not None:
        schema = chat.shape.schema or {"type": "object", "additionalProperties": True}
        choice: dict[str, Any] = {"tool": {"name": JSON_TOOL}}
        return {"tools": [_tool(JSON_TOOL, JSON_TOOL_TEXT, schema)], "toolChoice": choice}
    earlier = {part.name for message in chat.messages for part in message.parts if isinstance(part, ToolCall)}
    tools = [_tool(tool.name, tool.description, {"type": "object", **tool.schema}) for tool in chat.tools]
    if chat.choice == "none" or not tools:
        # Messages with tool calls are rejected without a definition of any tool.
        return (
            {"tools": tools or [_tool(name, "", {"type": "object"}) for name in sorted(earlier)]}
            if earlier
            else {}
        )
    if chat.choice.startswith("="):
        choice = {"tool": {"name": chat.choice[1:]}}
    else:
        choice = {"any": {}} if chat.choice == "required" else {"auto": {}}
    return {"tools": tools, "toolChoice": choice}


def _tool(name: str, description: str, schema: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"name": name, "inputSchema": {"json": schema}}
    return {"toolSpec": {**spec, "description": description} if description else spec}


def _turns(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Merge consecutive messages of one role, since roles must alternate."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        blocks = [block for part in message.parts if (block := _block(part)) is not None]
        if blocks and turns and turns[-1]["role"] == message.role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": message.role, "content": blocks})
    return turns


def _block(part: Part) -> dict[str, Any] | None:
    match part:
        case TextPart():
            return {"text": part.text} if part.text.strip() else None
        case ImagePart():
            kind = part.media_type.rpartition("/")[2].replace("jpg", "jpeg")
            return {"image": {"format": kind, "source": {"bytes": part.data}}}
        case ToolCall():
            call = {"toolUseId": part.id, "name": part.name, "input": parse_arguments(part.arguments)}
            return {"toolUse": call}
        case ToolResult():
            content = [block for inner in part.parts if (block := _block(inner)) is not None]
            result = {"toolUseId": part.call_id, "content": content}
            return {"toolResult": {**result, "status": "error"} if part.failed else result}
        case ReasoningPart():
            text = {"text": part.text, "signature": part.signature}
            return {"reasoningContent": {"reasoningText": text}} if part.signed else None
