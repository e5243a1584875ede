"""Anthropic's Messages API: parse requests, render messages and their events.

Source: https://platform.claude.com/docs/en/api/messages and …/build-with-claude/streaming.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, Literal, cast

import msgspec

from sixfold import errors
from sixfold.api.gateway import tags
from sixfold.api.gateway.anthropic import errors as anthropic_errors
from sixfold.api.gateway.chat_handler import ChatCall, ResponseDialect
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
    ResponseFormat,
    Stop,
    TextDelta,
    TextPart,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    ToolResult,
    ToolSpec,
    as_json,
)
from sixfold.core.gateway.pricing.usage import NOTHING, TokenUsage
from sixfold.web import bodies

_STOPS: Mapping[Stop, str] = {
    "end": "end_turn",
    "sequence": "stop_sequence",
    "length": "max_tokens",
    "tool": "tool_use",
    "filter": "refusal",
}
_CHOICES = {"any": "required", "none": "none"}
_EFFORTS = ((2048, "low"), (8192, "medium"))
_encode = msgspec.json.Encoder().encode
Role = Literal["user", "assistant"]
# Longer arguments are not parsed to detect their end, so the next call waits until the stream ends.
_MAX_CHECKED_CHARS = 64 * 1024


class _MessageHead(msgspec.Struct):
    role: str
    content: msgspec.Raw


class _MessagesHead(msgspec.Struct):
    model: str
    messages: list[_MessageHead]
    max_tokens: int | None = None
    stream: bool | None = None
    metadata: msgspec.Raw = tags.NONE


_head = msgspec.json.Decoder(_MessagesHead)


def parse_call(raw: bytes, *, counting: bool = False) -> ChatCall:
    """Parse the top-level fields of a request body; raises `BadRequest` and `InputTooLarge`."""
    bodies.check_size(raw)
    bodies.require_object(raw)
    try:
        head = _head.decode(raw)
    except msgspec.ValidationError as error:
        raise errors.BadRequest(f"Invalid request: {error}") from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise errors.BadRequest(bodies.INVALID_JSON) from error
    if not head.messages:
        raise errors.BadRequest("messages: at least one message is required")
    if not counting:
        if head.max_tokens is None:
            raise errors.BadRequest("max_tokens: Field required")
        if head.max_tokens < 1:
            raise errors.BadRequest(f"max_tokens: must be at least 1 (got {head.max_tokens})")
    return ChatCall(
        head.model, bool(head.stream), head.max_tokens, lambda: parse(raw), metadata=head.metadata
    )


def parse(raw: bytes) -> ChatRequest:
    """Parse a whole request; raises `BadRequest` for features that only Anthropic's servers support."""
    body = bodies.parse_object(raw)
    choice = _mapping(body.get("tool_choice") or {}, "tool_choice")
    kind = choice.get("type", "auto")
    tool_rows = _items(body.get("tools") or [], "tools")
    output_config = _mapping(body.get("output_config") or {}, "output_config")
    parallel = not choice["disable_parallel_tool_use"] if "disable_parallel_tool_use" in choice else None
    system, turns = _chat_messages(_items(body.get("messages"), "messages"), _system(body.get("system")))
    return ChatRequest(
        messages=turns,
        system=system,
        tools=tuple(tool for value in tool_rows if (tool := _tool(value)) is not None),
        choice=f"={choice.get('name')}" if kind == "tool" else _CHOICES.get(str(kind), "auto"),
        parallel=parallel,
        max_tokens=body.get("max_tokens"),
        temperature=body.get("temperature"),
        top_p=body.get("top_p"),
        stop=tuple(str(text) for text in _items(body.get("stop_sequences") or [], "stop_sequences")),
        effort=_effort(body.get("thinking"), output_config),
        shape=_response_format(output_config.get("format") or body.get("output_format")),
        user=str(_mapping(body.get("metadata") or {}, "metadata").get("user_id") or ""),
    )


def _response_format(value: Any) -> ResponseFormat | None:
    if value is None:
        return None
    output_format = _mapping(value, "output_config.format")
    if output_format.get("type") != "json_schema":
        raise errors.BadRequest("output_config.format.type: must be json_schema")
    return ResponseFormat(
        schema=_mapping(output_format.get("schema"), "output_config.format.schema"), strict=True
    )


def _effort(thinking: Any, output: Mapping[str, Any]) -> str:
    """Return the reasoning effort, as requested or derived from the token budget."""
    if effort := output.get("effort"):
        return str(effort) if effort in ("low", "medium") else "high"
    if not isinstance(thinking, dict) or cast("dict[str, Any]", thinking).get("type") != "enabled":
        return ""
    budget = cast("dict[str, Any]", thinking).get("budget_tokens") or 0
    if not isinstance(budget, int):
        raise errors.BadRequest("thinking.budget_tokens: must be an integer")
    return next((word for limit, word in _EFFORTS if budget <= limit), "high")


def _chat_messages(items: Sequence[Any], system: str) -> tuple[str, tuple[ChatMessage, ...]]:
    """Return the system prompt and the messages.

    A later system message becomes a part of the user's turn at its position: the beginning of the
    conversation stays in the server's prompt cache, and many models accept a system prompt at the beginning
    only.
    """
    system_texts, turns = [system] if system else [], list[tuple[Role, list[Part]]]()
    for index, item in enumerate(items):
        path = f"messages.{index}"
        row = _mapping(item, path)
        parts = _parts(row.get("content"), f"{path}.content")
        match row.get("role"):
            case "user" | "assistant" as role:
                turns.append((role, [*parts]))
            case "system" if turns:
                if turns[-1][0] != "user":
                    turns.append(("user", []))
                turns[-1][1].append(_reminder(_text_of(parts)))
            case "system":
                system_texts.append(_text_of(parts))
            case _:
                raise errors.BadRequest(f"{path}.role: must be user, assistant or system")
    messages = tuple(ChatMessage(role, tuple(parts)) for role, parts in turns)
    return "\n\n".join(system_texts), messages


def _text_of(parts: Sequence[Part]) -> str:
    return "\n\n".join(part.text for part in parts if isinstance(part, TextPart))


def _reminder(text: str) -> TextPart:
    """Return a system message as a part of the user's turn, marked as coding agents do."""
    return TextPart(f"\n\n<system-reminder>\n{text}\n</system-reminder>")


def _parts(content: Any, path: str) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (TextPart(content),) if content else ()
    return tuple(_part(_mapping(block, path), path) for block in _items(content or [], path))


def _part(block: Mapping[str, Any], path: str) -> Part:
    match block.get("type"):
        case "text":
            return TextPart(str(block.get("text", "")))
        case "image":
            return _image_part(_mapping(block.get("source"), f"{path}.source"), path)
        case "tool_use":
            arguments = _encode(block.get("input") or {}).decode()
            return ToolCall(str(block.get("id") or ""), str(block.get("name") or ""), arguments)
        case "tool_result":
            parts = cast("tuple[TextPart | ImagePart, ...]", _parts(block.get("content"), path))
            return ToolResult(str(block.get("tool_use_id") or ""), parts, bool(block.get("is_error")))
        case "thinking":
            return ReasoningPart(str(block.get("thinking") or ""), str(block.get("signature") or ""))
        case "document" if _mapping(block.get("source"), f"{path}.source").get("type") == "text":
            return TextPart(str(block["source"].get("data") or ""))
        case "redacted_thinking":
            return ReasoningPart("")
        case kind:
            raise errors.BadRequest(f"{path}: this model does not support blocks of type {kind!r}")


def _image_part(source: Mapping[str, Any], path: str) -> ImagePart:
    match source.get("type"):
        case "base64":
            return ImagePart(
                media_type=str(source.get("media_type") or ""), data=str(source.get("data") or "")
            )
        case "url":
            return ImagePart(url=str(source.get("url") or ""))
        case kind:
            raise errors.BadRequest(f"{path}.source: this model does not support sources of type {kind!r}")


def _system(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    blocks = (_mapping(block, "system") for block in _items(value, "system"))
    return "\n\n".join(str(block.get("text", "")) for block in blocks)


def _tool(value: Any) -> ToolSpec | None:
    """Return a tool as a function, or None for a tool that only the provider can run."""
    row = _mapping(value, "tools")
    if row.get("type", "custom") != "custom":
        return None
    name, description = str(row.get("name") or ""), str(row.get("description") or "")
    return ToolSpec(name, description, _mapping(row.get("input_schema") or {}, "tools.input_schema"))


def _mapping(value: Any, path: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise errors.BadRequest(f"{path}: must be an object")
    return cast("dict[str, Any]", value)


def _items(value: Any, path: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise errors.BadRequest(f"{path}: must be an array")
    return cast("list[Any]", value)


def usage(tokens: TokenUsage) -> dict[str, Any]:
    """Return the usage in Anthropic's format, whose `input_tokens` exclude cached tokens."""
    return {
        "input_tokens": tokens.input - tokens.cached - tokens.cache_write - tokens.cache_write_long,
        "cache_creation_input_tokens": tokens.cache_write + tokens.cache_write_long,
        "cache_read_input_tokens": tokens.cached,
        "output_tokens": tokens.output,
    }


def render(answer: ChatResponse, chat_call: ChatCall, request_id: str) -> bytes:
    blocks = [_render_part(part) for part in answer.parts]
    return _encode(_document(answer.model or chat_call.model, request_id, blocks, answer.stop, answer.usage))


def _render_part(part: TextPart | ToolCall | ReasoningPart) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ReasoningPart():
            return {"type": "thinking", "thinking": part.text, "signature": part.signature}
        case ToolCall():
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": _object(part.arguments)}


def _object(text: str) -> Any:
    value = as_json(text)
    return {"arguments": text} if value is None else value


def _document(
    model: str, request_id: str, content: list[dict[str, Any]], stop: Stop | None, tokens: TokenUsage
) -> dict[str, Any]:
    return {
        "id": f"msg_{request_id.removeprefix('req_')}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": _STOPS[stop] if stop is not None else None,
        "stop_sequence": None,
        "usage": usage(tokens),
    }


class _Blocks:
    """Renders the content blocks of a stream, one open at a time, as clients expect.

    Some servers begin all tool calls first, or interleave their arguments: a call that begins while the
    arguments of the open call are incomplete is queued.
    """

    def __init__(self) -> None:
        self._index = -1
        self._kind = ""
        # The number of the call that began last.
        self._number = -1
        self._arguments = ""
        self._queued: dict[int, tuple[Mapping[str, Any], list[str]]] = {}

    def open(self, kind: str, block: Mapping[str, Any]) -> bytes:
        """Return the events that begin a block of this kind; empty if one is open."""
        if self._kind == kind:
            return b""
        return self.close() + self._start(kind, block)

    def delta(self, delta: Mapping[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def call(self, number: int, block: Mapping[str, Any]) -> bytes:
        """Return the events that begin the block of a call, or queue the call."""
        if self._kind == "call" and not _is_object(self._arguments):
            self._queued[number] = (block, [])
            return b""
        self._number, self._arguments = number, ""
        return self._close_open() + self._start("call", block)

    def argument(self, number: int, text: str) -> bytes:
        """Return a delta of a call's arguments, or queue it."""
        if number in self._queued:
            self._queued[number][1].append(text)
            return b""
        if number != self._number or not text:
            return b""
        if len(self._arguments) <= _MAX_CHECKED_CHARS:
            self._arguments += text
        output = [self.delta({"type": "input_json_delta", "partial_json": text})]
        while self._queued and _is_object(self._arguments):
            output.append(self._next())
        return b"".join(output)

    def close(self) -> bytes:
        output = [self._next() for _ in range(len(self._queued))]
        return b"".join(output) + self._close_open()

    def _next(self) -> bytes:
        """Begin the block of the first queued call, with the arguments received so far."""
        self._number = next(iter(self._queued))
        block, arguments = self._queued.pop(self._number)
        text = "".join(arguments)
        self._arguments = text[: _MAX_CHECKED_CHARS + 1]
        output = self._close_open() + self._start("call", block)
        return output + self.delta({"type": "input_json_delta", "partial_json": text}) if text else output

    def _start(self, kind: str, block: Mapping[str, Any]) -> bytes:
        self._kind = kind
        self._index += 1
        return _event("content_block_start", index=self._index, content_block=block)

    def _close_open(self) -> bytes:
        if not self._kind:
            return b""
        self._kind = ""
        return _event("content_block_stop", index=self._index)


def _is_object(arguments: str) -> bool:
    """Return whether the arguments are a complete JSON object; False for long arguments, to save time."""
    is_checked = len(arguments) <= _MAX_CHECKED_CHARS and arguments.rstrip().endswith("}")
    return is_checked and as_json(arguments) is not None


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), _encode({"type": kind, **fields}))


async def render_stream(
    events: AsyncIterator[Event], chat_call: ChatCall, request_id: str
) -> AsyncGenerator[bytes]:
    yield _event("message_start", message=_document(chat_call.model, request_id, [], None, NOTHING))
    blocks = _Blocks()
    async for event in events:
        match event:
            case TextDelta():
                yield blocks.open("text", {"type": "text", "text": ""}) + blocks.delta(
                    {"type": "text_delta", "text": event.text}
                )
            case ReasoningDelta():
                yield _render_reasoning(blocks, event)
            case ToolCallStart():
                call: dict[str, Any] = {"type": "tool_use", "id": event.id, "name": event.name, "input": {}}
                yield blocks.call(event.number, call)
            case ToolCallDelta():
                yield blocks.argument(event.number, event.text)
            case MessageEnd():
                delta = {"stop_reason": _STOPS[event.stop], "stop_sequence": None}
                yield blocks.close() + _event("message_delta", delta=delta, usage=usage(event.usage))
                yield _event("message_stop")


def _render_reasoning(blocks: _Blocks, event: ReasoningDelta) -> bytes:
    output = blocks.open("thinking", {"type": "thinking", "thinking": "", "signature": ""})
    if event.text:
        output += blocks.delta({"type": "thinking_delta", "thinking": event.text})
    if event.signature:
        output += blocks.delta({"type": "signature_delta", "signature": event.signature})
    return output


DIALECT = ResponseDialect(
    "messages", anthropic_errors.dialect, parse, render, render_stream, anthropic_errors.event
)
