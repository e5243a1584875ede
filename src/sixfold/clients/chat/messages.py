"""Anthropic's Messages API.

Source: https://platform.claude.com/docs/en/api/messages and …/build-with-claude/streaming (events, stop
reasons, usage, whose `input_tokens` exclude tokens read from or written to the cache). A JSON response is
requested as the input of a tool with that schema; the input is then the text of the response.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from sixfold.clients.chat import anthropic_models, sse
from sixfold.clients.chat.message_usage import MessagesUsage
from sixfold.clients.chat.rejections import parse_rejection
from sixfold.core.gateway.chat import (
    GEMINI_SIGNATURE,
    REASONING_FIELDS,
    ChatMessage,
    ChatRequest,
    ChatResponse,
    Event,
    ImagePart,
    MessageEnd,
    Part,
    ReasoningDelta,
    ReasoningPart,
    ResponseFormat,
    Stop,
    TextDelta,
    TextPart,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    ToolResult,
    as_json,
)
from sixfold.core.gateway.ports import UpstreamRejection, WireProtocol
from sixfold.core.gateway.pricing.usage import NOTHING, TokenUsage, Units, uncounted
from sixfold.core.gateway.requirements import provider_tools
from sixfold.core.gateway.routing import remove_routing_fields

_encode = msgspec.json.Encoder().encode
_raws = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_rows = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_DEFAULT_MAX_TOKENS = 4096
# Signatures of reasoning that a server of another protocol returned.
_FOREIGN = frozenset({"", *REASONING_FIELDS})
JSON_TOOL, JSON_TOOL_TEXT = "answer_in_json", "Give the whole answer as this JSON."
_STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "stop_sequence": "sequence",
    "tool_use": "tool",
    "refusal": "filter",
}


class _ContentBlock(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw()
    partial_json: str | None = None
    stop_reason: str | None = None
    container: Any = None

    @property
    def runs_code(self) -> bool:
        """Whether the block names a container, or calls a tool with which the server runs code."""
        is_call = self.type == "server_tool_use" and (self.name or "").endswith("code_execution")
        return is_call or self.container is not None

    @property
    def is_foreign(self) -> bool:
        """Whether the block is reasoning of another protocol, which servers of this protocol reject."""
        signature = self.signature or ""
        is_foreign = signature in _FOREIGN or signature.startswith(GEMINI_SIGNATURE)
        return self.type == "thinking" and is_foreign


class _MessageTurn(msgspec.Struct):
    role: str
    content: list[_ContentBlock] | str

    @property
    def blocks(self) -> list[_ContentBlock]:
        return [] if isinstance(self.content, str) else self.content

    @property
    def types(self) -> set[str]:
        return {block.type for block in self.blocks}


class _MessagesDocument(msgspec.Struct):
    type: str = ""
    id: str | None = None
    model: str | None = None
    content: list[_ContentBlock] | None = None
    stop_reason: str | None = None
    usage: MessagesUsage | None = None
    container: Any = None
    index: int = 0
    message: Any = None
    content_block: _ContentBlock | None = None
    delta: _ContentBlock | None = None
    error: Any = None

    @property
    def runs_code(self) -> bool:
        """Whether the server has run code in a container."""
        blocks = (*(self.content or ()), self.content_block, self.delta)
        return self.container is not None or any(block is not None and block.runs_code for block in blocks)

    def read_usage(self) -> TokenUsage | None:
        return None if self.usage is None else self.usage.read(runs_code=self.runs_code)


_decode_document = msgspec.json.Decoder(_MessagesDocument).decode
_turns_of = msgspec.json.Decoder(list[_MessageTurn]).decode


class Messages(WireProtocol):
    """The protocol of `POST /messages`."""

    name = "messages"
    path = "/messages"

    def rewrite_request(self, body: bytes, model: str) -> bytes:
        """Return the request with the server's model name and without foreign reasoning."""
        fields = remove_routing_fields(_raws(body))
        if b'"thinking"' in body and "messages" in fields:
            _remove_foreign(fields)
        fields["model"] = msgspec.Raw(_encode(model))
        provider_tools.limit_messages(fields)
        return _encode(fields)

    def build_request(self, chat: ChatRequest, model: str, *, stream: bool) -> bytes:
        effort = chat.effort if not json_as_tool(chat) and may_think(chat.messages) else ""
        thinking = anthropic_models.thinking(model, effort)
        allows_sampling = not thinking and anthropic_models.allows_sampling(model)
        max_tokens = chat.max_tokens or _DEFAULT_MAX_TOKENS
        fields: dict[str, Any] = {
            "model": model,
            "max_tokens": max_tokens + anthropic_models.thinking_tokens(effort),
            "messages": _turns(chat.messages),
        }
        if stream:
            fields["stream"] = True
        system = chat.system
        if chat.shape is not None and not json_as_tool(chat):
            system = f"{system}\n\n{json_instruction(chat.shape)}".strip()
        optional: dict[str, Any] = {
            "system": system or None,
            "temperature": min(1.0, chat.temperature)
            if allows_sampling and chat.temperature is not None
            else None,
            "top_p": chat.top_p if allows_sampling and chat.temperature is None else None,
            "stop_sequences": [text for text in chat.stop if text.strip()] or None,
            "metadata": {"user_id": chat.user} if chat.user else None,
            **thinking,
            **_tools(chat),
        }
        return _encode({**fields, **{name: value for name, value in optional.items() if value is not None}})

    def usage(self, body: bytes) -> tuple[TokenUsage | None, int]:
        document = _document(body)
        chars = sum(
            len(block.text or block.thinking or bytes(block.input)) for block in document.content or ()
        )
        return document.read_usage(), chars

    def parse_response(self, body: bytes, chat: ChatRequest) -> ChatResponse:
        document, as_tool = _document(body), json_as_tool(chat)
        parts = (_part(block, as_tool=as_tool) for block in document.content or ())
        stop = _STOPS.get(document.stop_reason or "end_turn", "end")
        return ChatResponse(
            document.id or "",
            document.model or "",
            tuple(part for part in parts if part is not None),
            "end" if as_tool and stop == "tool" else stop,
            document.read_usage() or NOTHING,
        )

    def parse_error(self, body: bytes) -> UpstreamRejection:
        return parse_rejection(body)

    def scanner(self) -> MessagesParser:
        return MessagesParser(as_tool=False)

    def stream_parser(self, chat: ChatRequest) -> MessagesParser:
        return MessagesParser(as_tool=json_as_tool(chat))


class MessagesParser:
    """Parses the events of a message."""

    def __init__(self, *, as_tool: bool) -> None:
        self.chars = 0
        self.complete = False
        self.error = ""
        self._reported: MessagesUsage | None = None
        # Whether the end has reported the output tokens; the start counts only the first one.
        self._has_output = False
        self._stop: Stop = "end"
        self._as_tool = as_tool
        self._splitter = sse.EventSplitter()
        self._calls: dict[int, int] = {}
        self._searches = 0
        self._runs_code = False

    @property
    def usage(self) -> TokenUsage | None:
        if self._reported is None:
            return None
        reported = self._reported
        if not self._has_output:
            output = None if self.complete else reported.output_tokens or 0
            reported = msgspec.structs.replace(reported, output_tokens=output)
        usage = reported.read(runs_code=self._runs_code)
        # The server reports the number of searches only at the end, which is missing after a disconnect.
        if self.complete or not self._searches:
            return usage
        units = Units(web_searches=self._searches, code_executions=int(self._runs_code))
        return uncounted(units) if usage is None else msgspec.structs.replace(usage, units=units)

    @property
    def buffered(self) -> int:
        return self._splitter.size

    def forward(self, block: bytes, *, keep_usage: bool) -> bytes:
        events = self._splitter.feed(block)[0] if block else self._splitter.flush()
        for data in sse.data(events):
            self._parse_event(data)
        return events

    def events(self, block: bytes) -> Sequence[Event]:
        events: list[Event] = []
        for data in sse.data(self._splitter.feed(block)[0] if block else self._splitter.flush()):
            document = self._parse_event(data)
            if document is None:
                continue
            if (
                document.content_block is not None
                and document.content_block.type == "tool_use"
                and not self._as_tool
            ):
                number = self._calls.setdefault(document.index, len(self._calls))
                events.append(
                    ToolCallStart(number, document.content_block.id or "", document.content_block.name or "")
                )
            if document.type == "content_block_delta" and document.delta is not None:
                events += self._delta_events(document.index, document.delta)
        return events

    def end(self) -> MessageEnd:
        stop = "end" if self._as_tool and self._stop == "tool" else self._stop
        return MessageEnd(stop, self.usage or NOTHING)

    def _parse_event(self, data: bytes) -> _MessagesDocument | None:
        try:
            event = _decode_document(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        if event.type == "error":
            self.error = f"The model server failed: {parse_rejection(data).message[:200]}"
        elif event.type == "message_stop":
            self.complete = True
        elif event.type == "message_start" and isinstance(event.message, dict):
            self._reported = _convert_usage(cast("dict[str, Any]", event.message).get("usage"))
        block = event.content_block
        if block is not None and (block.type, block.name) == ("server_tool_use", "web_search"):
            self._searches += 1
        self._runs_code = self._runs_code or event.runs_code
        if event.usage is not None:
            self._reported = event.usage.merge(self._reported)
            self._has_output = self._has_output or event.usage.output_tokens is not None
        if event.delta is not None:
            delta = event.delta
            self.chars += len(delta.text or delta.partial_json or delta.thinking or "")
            self._stop = _STOPS.get(delta.stop_reason, "end") if delta.stop_reason else self._stop
        return event

    def _delta_events(self, index: int, delta: _ContentBlock) -> list[Event]:
        if delta.text:
            return [TextDelta(delta.text)]
        if delta.thinking or delta.signature:
            return [ReasoningDelta(delta.thinking or "", delta.signature or "")]
        if delta.partial_json:
            number = self._calls.get(index, 0)
            return [
                TextDelta(delta.partial_json) if self._as_tool else ToolCallDelta(number, delta.partial_json)
            ]
        return []


def _convert_usage(value: Any) -> MessagesUsage | None:
    try:
        return msgspec.convert(value, MessagesUsage | None)
    except msgspec.ValidationError:
        return None


def _document(body: bytes) -> _MessagesDocument:
    try:
        document = _decode_document(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError("the response is not valid JSON") from error
    if document.content is None:
        raise ValueError("the response has no content")
    return document


def _part(block: _ContentBlock, *, as_tool: bool) -> TextPart | ToolCall | ReasoningPart | None:
    """Parse a content block; with `as_tool`, the input of a tool is the text of the response."""
    match block.type:
        case "text" if block.text:
            return TextPart(block.text)
        case "thinking":
            return ReasoningPart(block.thinking or "", block.signature or "")
        case "tool_use":
            arguments = (bytes(block.input) or b"{}").decode()
            return TextPart(arguments) if as_tool else ToolCall(block.id or "", block.name or "", arguments)
        case _:
            return None


def _remove_foreign(fields: dict[str, msgspec.Raw]) -> None:
    """Remove foreign reasoning; all other blocks are unchanged.

    If this removes all reasoning of a turn that waits for tool results, the request disables thinking.
    """
    try:
        turns, rows = _turns_of(fields["messages"]), _rows(fields["messages"])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        # The server rejects the request with its error message.
        return
    if not any(block.is_foreign for turn in turns for block in turn.blocks):
        return
    remaining: list[tuple[_MessageTurn, dict[str, msgspec.Raw]]] = []
    for turn, row in zip(turns, rows, strict=True):
        if not any(block.is_foreign for block in turn.blocks):
            remaining.append((turn, row))
            continue
        pairs = zip(turn.blocks, _list(row["content"]), strict=True)
        own_blocks = [(block, raw) for block, raw in pairs if not block.is_foreign]
        if own_blocks:
            content = msgspec.Raw(_encode([raw for _, raw in own_blocks]))
            remaining.append(
                (_MessageTurn(turn.role, [block for block, _ in own_blocks]), {**row, "content": content})
            )
    fields["messages"] = msgspec.Raw(_encode([row for _, row in remaining]))
    if not _may_think_raw([turn for turn, _ in remaining]):
        fields.pop("thinking", None)


def _may_think_raw(turns: Sequence[_MessageTurn]) -> bool:
    """Apply the rule of `may_think` to a forwarded request."""
    types: set[str] = set()
    for turn in reversed(turns):
        if turn.role == "assistant":
            types |= turn.types
        elif types or "tool_result" not in turn.types:
            break
    return "tool_use" not in types or bool(types & {"thinking", "redacted_thinking"})


def may_think(messages: Sequence[ChatMessage]) -> bool:
    """Return whether thinking may continue: a turn that waits for tool results needs its signed reasoning."""
    turn: list[Part] = []
    for message in reversed(messages):
        if message.role == "assistant":
            turn += message.parts
        elif turn or not any(isinstance(part, ToolResult) for part in message.parts):
            break
    calls = any(isinstance(part, ToolCall) for part in turn)
    return not calls or any(isinstance(part, ReasoningPart) and part.signed for part in turn)


def json_as_tool(chat: ChatRequest) -> bool:
    """Return whether a JSON response is requested as the input of a tool."""
    return chat.shape is not None and not chat.tools


def json_instruction(response_format: ResponseFormat) -> str:
    """Return the instruction for JSON output in requests with tools."""
    instruction = "Answer with one JSON object and nothing else."
    return (
        instruction
        if response_format.schema is None
        else f"{instruction} It follows this schema: {_encode(response_format.schema).decode()}"
    )


def _tools(chat: ChatRequest) -> dict[str, Any]:
    if json_as_tool(chat) and chat.shape is not None:
        schema = chat.shape.schema or {"type": "object", "additionalProperties": True}
        tool = {"name": JSON_TOOL, "description": JSON_TOOL_TEXT, "input_schema": schema}
        return {"tools": [tool], "tool_choice": {"type": "tool", "name": JSON_TOOL}}
    if not chat.tools:
        return {}
    tools = [
        {
            "name": tool.name,
            "description": tool.description,
            "input_schema": {"type": "object", **tool.schema},
        }
        for tool in chat.tools
    ]
    kinds = {"auto": "auto", "none": "none", "required": "any"}
    choice: dict[str, Any] = {"type": kinds.get(chat.choice, "tool")}
    if chat.choice.startswith("="):
        choice["name"] = chat.choice[1:]
    if chat.parallel is False and choice["type"] != "none":
        choice["disable_parallel_tool_use"] = True
    return {"tools": tools, "tool_choice": choice}


def _turns(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Merge consecutive messages of one role, since roles must alternate."""
    turns: list[dict[str, Any]] = []
    for message in messages:
        blocks = [block for part in message.parts if (block := _block(part)) is not None]
        if not blocks:
            continue
        if turns and turns[-1]["role"] == message.role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": message.role, "content": blocks})
    return turns


def _block(part: Part) -> dict[str, Any] | None:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text} if part.text else None
        case ImagePart():
            return {"type": "image", "source": _source(part)}
        case ToolCall():
            return {
                "type": "tool_use",
                "id": part.id,
                "name": part.name,
                "input": parse_arguments(part.arguments),
            }
        case ToolResult():
            content = [block for inner in part.parts if (block := _block(inner)) is not None]
            result: dict[str, Any] = {"type": "tool_result", "tool_use_id": part.call_id, "content": content}
            return {**result, "is_error": True} if part.failed else result
        case ReasoningPart():
            block = {"type": "thinking", "thinking": part.text, "signature": part.signature}
            return block if part.signed else None


def _source(image: ImagePart) -> dict[str, str]:
    if image.data:
        return {"type": "base64", "media_type": image.media_type, "data": image.data}
    return {"type": "url", "url": image.url}


def parse_arguments(text: str) -> Any:
    """Return the arguments of a tool call, or an empty object if they are invalid."""
    value = as_json(text)
    return value if value is not None and bytes(value).startswith(b"{") else {}
