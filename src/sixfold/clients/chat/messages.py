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
from sixfold.clients.chat.completions import objection
from sixfold.core import json_decoding
from sixfold.core.gateway.chat import (
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
)
from sixfold.core.gateway.ports import UpstreamRejection
from sixfold.core.gateway.usage import NOTHING, TokenUsage, parse_token_count

_encode = msgspec.json.Encoder().encode
_raws = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_any = json_decoding.decode_whole
_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_rows = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode
_DEFAULT_MAX_TOKENS = 4096
# Signatures of reasoning that did not come from a server of this protocol.
_FOREIGN = frozenset({"", *REASONING_FIELDS})
_SHAPE = "answer_in_json"
_STOPS: dict[str, Stop] = {
    "end_turn": "end",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "stop_sequence": "sequence",
    "tool_use": "tool",
    "refusal": "filter",
}


class _CacheCreation(msgspec.Struct):
    ephemeral_1h_input_tokens: Any = None


class _MessagesUsage(msgspec.Struct):
    input_tokens: Any = None
    output_tokens: Any = None
    cache_read_input_tokens: Any = None
    cache_creation_input_tokens: Any = None
    cache_creation: _CacheCreation | None = None

    def read(self) -> TokenUsage:
        cached = parse_token_count(self.cache_read_input_tokens) or 0
        written = parse_token_count(self.cache_creation_input_tokens) or 0
        creation = self.cache_creation or _CacheCreation()
        long = parse_token_count(creation.ephemeral_1h_input_tokens) or 0
        return TokenUsage(
            input=(parse_token_count(self.input_tokens) or 0) + cached + written,
            output=parse_token_count(self.output_tokens) or 0,
            cached=cached,
            cache_write=written - long,
            cache_write_long=long,
        )

    def over(self, before: _MessagesUsage | None) -> _MessagesUsage:
        """Return the newer numbers, else the older: the end of a stream need not repeat all."""
        if before is None:
            return self
        pairs = {name: (getattr(self, name), getattr(before, name)) for name in self.__struct_fields__}
        return _MessagesUsage(**{name: old if new is None else new for name, (new, old) in pairs.items()})


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

    @property
    def foreign(self) -> bool:
        """Whether it is reasoning of another protocol's server, which this one would reject."""
        return self.type == "thinking" and (self.signature or "") in _FOREIGN


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
    usage: _MessagesUsage | None = None
    index: int = 0
    message: Any = None
    content_block: _ContentBlock | None = None
    delta: _ContentBlock | None = None
    error: Any = None


_read = msgspec.json.Decoder(_MessagesDocument).decode
_turns_of = msgspec.json.Decoder(list[_MessageTurn]).decode


class Messages:
    """`POST /messages`."""

    name = "messages"
    path = "/messages"

    def rewrite_request(self, body: bytes, model: str) -> bytes:
        """Return the request with the server's model name and without foreign reasoning."""
        fields = _raws(body)
        if b'"thinking"' in body and "messages" in fields:
            _leave_foreign(fields)
        fields["model"] = msgspec.Raw(_encode(model))
        return _encode(fields)

    def build_request(self, chat: ChatRequest, model: str, *, stream: bool) -> bytes:
        effort = chat.effort if not _shaped(chat) and _sealed(chat.messages) else ""
        thinking = anthropic_models.thinking(model, effort)
        chance = not thinking and anthropic_models.takes_chance(model)
        limit = chat.max_tokens or _DEFAULT_MAX_TOKENS
        fields: dict[str, Any] = {
            "model": model,
            "max_tokens": limit + anthropic_models.room(effort),
            "messages": _turns(chat.messages),
        }
        if stream:
            fields["stream"] = True
        system = chat.system
        if chat.shape is not None and not _shaped(chat):
            system = f"{system}\n\n{_order(chat.shape)}".strip()
        given: dict[str, Any] = {
            "system": system or None,
            "temperature": min(1.0, chat.temperature) if chance and chat.temperature is not None else None,
            "top_p": chat.top_p if chance and chat.temperature is None else None,
            "stop_sequences": [text for text in chat.stop if text.strip()] or None,
            "metadata": {"user_id": chat.user} if chat.user else None,
            **thinking,
            **_tools(chat),
        }
        return _encode({**fields, **{name: value for name, value in given.items() if value is not None}})

    def usage(self, body: bytes) -> tuple[TokenUsage | None, int]:
        found = _document(body)
        chars = sum(len(block.text or block.thinking or bytes(block.input)) for block in found.content or ())
        return found.usage.read() if found.usage is not None else None, chars

    def parse_response(self, body: bytes, chat: ChatRequest) -> ChatResponse:
        found, shaped = _document(body), _shaped(chat)
        parts = (_part(block, shaped=shaped) for block in found.content or ())
        stop = _STOPS.get(found.stop_reason or "end_turn", "end")
        return ChatResponse(
            found.id or "",
            found.model or "",
            tuple(part for part in parts if part is not None),
            "end" if shaped and stop == "tool" else stop,
            found.usage.read() if found.usage is not None else NOTHING,
        )

    def parse_error(self, body: bytes) -> UpstreamRejection:
        return objection(body)

    def scanner(self) -> MessagesParser:
        return MessagesParser(shaped=False)

    def stream_parser(self, chat: ChatRequest) -> MessagesParser:
        return MessagesParser(shaped=_shaped(chat))


class MessagesParser:
    """Parses the events of a message."""

    def __init__(self, *, shaped: bool) -> None:
        self.chars = 0
        self.complete = False
        self.error = ""
        self._told: _MessagesUsage | None = None
        self._stop: Stop = "end"
        self._shaped = shaped
        self._cutter = sse.EventSplitter()
        self._calls: dict[int, int] = {}

    @property
    def usage(self) -> TokenUsage | None:
        return self._told.read() if self._told is not None else None

    def forward(self, block: bytes, *, keep_usage: bool) -> bytes:
        events = self._cutter.feed(block)[0] if block else self._cutter.flush()
        for data in sse.data(events):
            self._take(data)
        return events

    def events(self, block: bytes) -> Sequence[Event]:
        said: list[Event] = []
        for data in sse.data(self._cutter.feed(block)[0] if block else self._cutter.flush()):
            found = self._take(data)
            if found is None:
                continue
            if (
                found.content_block is not None
                and found.content_block.type == "tool_use"
                and not self._shaped
            ):
                number = self._calls.setdefault(found.index, len(self._calls))
                said.append(
                    ToolCallStart(number, found.content_block.id or "", found.content_block.name or "")
                )
            if found.type == "content_block_delta" and found.delta is not None:
                said += self._said(found.index, found.delta)
        return said

    def end(self) -> MessageEnd:
        stop = "end" if self._shaped and self._stop == "tool" else self._stop
        return MessageEnd(stop, self.usage or NOTHING)

    def _take(self, data: bytes) -> _MessagesDocument | None:
        try:
            found = _read(data)
        except (msgspec.MsgspecError, UnicodeError):
            return None
        if found.type == "error":
            self.error = f"The model server failed: {objection(data).message[:200]}"
        elif found.type == "message_stop":
            self.complete = True
        elif found.type == "message_start" and isinstance(found.message, dict):
            usage = cast("dict[str, Any]", found.message).get("usage")
            self._told = msgspec.convert(usage, _MessagesUsage) if isinstance(usage, dict) else None
        if found.usage is not None:
            self._told = found.usage.over(self._told)
        if found.delta is not None:
            delta = found.delta
            self.chars += len(delta.text or delta.partial_json or delta.thinking or "")
            self._stop = _STOPS.get(delta.stop_reason, "end") if delta.stop_reason else self._stop
        return found

    def _said(self, index: int, delta: _ContentBlock) -> list[Event]:
        if delta.text:
            return [TextDelta(delta.text)]
        if delta.thinking or delta.signature:
            return [ReasoningDelta(delta.thinking or "", delta.signature or "")]
        if delta.partial_json:
            number = self._calls.get(index, 0)
            return [
                TextDelta(delta.partial_json) if self._shaped else ToolCallDelta(number, delta.partial_json)
            ]
        return []


def _document(body: bytes) -> _MessagesDocument:
    try:
        found = _read(body)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ValueError("no answer") from error
    if found.content is None:
        raise ValueError("an answer without content")
    return found


def _part(block: _ContentBlock, *, shaped: bool) -> TextPart | ToolCall | ReasoningPart | None:
    """Parse a content block; with `shaped`, the input of a tool is the text of the response."""
    match block.type:
        case "text" if block.text:
            return TextPart(block.text)
        case "thinking":
            return ReasoningPart(block.thinking or "", block.signature or "")
        case "tool_use":
            arguments = (bytes(block.input) or b"{}").decode()
            return TextPart(arguments) if shaped else ToolCall(block.id or "", block.name or "", arguments)
        case _:
            return None


def _leave_foreign(fields: dict[str, msgspec.Raw]) -> None:
    """Remove foreign reasoning; all other blocks stay unchanged.

    If a turn that waits for tool results has no reasoning left, the request disables thinking.
    """
    try:
        turns, rows = _turns_of(fields["messages"]), _rows(fields["messages"])
    except (msgspec.MsgspecError, UnicodeError):
        # The server reports what is wrong.
        return
    if not any(block.foreign for turn in turns for block in turn.blocks):
        return
    kept: list[tuple[_MessageTurn, dict[str, msgspec.Raw]]] = []
    for turn, row in zip(turns, rows, strict=True):
        if not any(block.foreign for block in turn.blocks):
            kept.append((turn, row))
            continue
        pairs = zip(turn.blocks, _list(row["content"]), strict=True)
        own = [(block, raw) for block, raw in pairs if not block.foreign]
        if own:
            content = msgspec.Raw(_encode([raw for _, raw in own]))
            kept.append((_MessageTurn(turn.role, [block for block, _ in own]), {**row, "content": content}))
    fields["messages"] = msgspec.Raw(_encode([row for _, row in kept]))
    if not _thoughtful([turn for turn, _ in kept]):
        fields.pop("thinking", None)


def _thoughtful(turns: Sequence[_MessageTurn]) -> bool:
    """Apply the rule of `_sealed` to a request that is passed on."""
    types: set[str] = set()
    for turn in reversed(turns):
        if turn.role == "assistant":
            types |= turn.types
        elif types or "tool_result" not in turn.types:
            break
    return "tool_use" not in types or bool(types & {"thinking", "redacted_thinking"})


def _sealed(messages: Sequence[ChatMessage]) -> bool:
    """Return whether thinking may continue: a turn that waits for tool results needs its signed reasoning."""
    turn: list[Part] = []
    for message in reversed(messages):
        if message.role == "assistant":
            turn += message.parts
        elif turn or not any(isinstance(part, ToolResult) for part in message.parts):
            break
    calls = any(isinstance(part, ToolCall) for part in turn)
    return not calls or any(
        isinstance(part, ReasoningPart) and part.signature and not part.field for part in turn
    )


def _shaped(chat: ChatRequest) -> bool:
    """Return whether a JSON response is requested as the input of a tool."""
    return chat.shape is not None and not chat.tools


def _order(shape: ResponseFormat) -> str:
    """Return the instruction for JSON output for models that have other tools."""
    told = "Answer with one JSON object and nothing else."
    return (
        told if shape.schema is None else f"{told} It follows this schema: {_encode(shape.schema).decode()}"
    )


def _tools(chat: ChatRequest) -> dict[str, Any]:
    if _shaped(chat) and chat.shape is not None:
        schema = chat.shape.schema or {"type": "object", "additionalProperties": True}
        tool = {"name": _SHAPE, "description": "Give the whole answer as this JSON.", "input_schema": schema}
        return {"tools": [tool], "tool_choice": {"type": "tool", "name": _SHAPE}}
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
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": _arguments(part.arguments)}
        case ToolResult():
            content = [block for inner in part.parts if (block := _block(inner)) is not None]
            told: dict[str, Any] = {"type": "tool_result", "tool_use_id": part.call_id, "content": content}
            return {**told, "is_error": True} if part.failed else told
        case ReasoningPart():
            sealed = {"type": "thinking", "thinking": part.text, "signature": part.signature}
            return sealed if part.signature and not part.field else None


def _source(picture: ImagePart) -> dict[str, str]:
    if picture.data:
        return {"type": "base64", "media_type": picture.media_type, "data": picture.data}
    return {"type": "url", "url": picture.url}


def _arguments(text: str) -> Any:
    try:
        found = _any(text.encode())
    except (msgspec.MsgspecError, UnicodeError):
        return {}
    return found if isinstance(found, dict) else {}
