"""Messages: a request read, a message and its events said.

Source: https://platform.claude.com/docs/en/api/messages and …/build-with-claude/streaming.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from sixfold import errors
from sixfold.api.gateway.anthropic import errors as anthropic_errors
from sixfold.api.gateway.chat_handler import ChatCall, ResponseDialect
from sixfold.core import json_decoding
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
)
from sixfold.core.gateway.usage import NOTHING, TokenUsage
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
_decode = json_decoding.decode_whole


class _MessagesHead(msgspec.Struct):
    model: str
    messages: list[msgspec.Raw]
    max_tokens: int | None = None
    stream: bool | None = None


_head = msgspec.json.Decoder(_MessagesHead)


def wanted(raw: bytes, *, counting: bool = False) -> ChatCall:
    """What a request asks for; raises `BadRequest` and `InputTooLarge`."""
    bodies.check_size(raw)
    try:
        head = _head.decode(raw)
    except msgspec.ValidationError as error:
        raise errors.BadRequest(f"Invalid request: {error}") from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise errors.BadRequest(bodies.INVALID_JSON) from error
    if not head.messages:
        raise errors.BadRequest("messages: at least one message is required")
    if not counting and (head.max_tokens is None or head.max_tokens < 1):
        raise errors.BadRequest("max_tokens: Field required")
    return ChatCall(head.model, bool(head.stream), head.max_tokens, lambda: parse(raw))


def parse(raw: bytes) -> ChatRequest:
    """A request in no dialect; raises `BadRequest` for what only its own dialect knows."""
    body = bodies.parse_object(raw)
    choice = _mapping(body.get("tool_choice") or {}, "tool_choice")
    kind = choice.get("type", "auto")
    given_tools = _items(body.get("tools") or [], "tools")
    output = _mapping(body.get("output_config") or {}, "output_config")
    parallel = not choice["disable_parallel_tool_use"] if "disable_parallel_tool_use" in choice else None
    system, turns = _turns(_items(body.get("messages"), "messages"), _system(body.get("system")))
    return ChatRequest(
        messages=turns,
        system=system,
        tools=tuple(tool for value in given_tools if (tool := _tool(value)) is not None),
        choice=f"={choice.get('name')}" if kind == "tool" else _CHOICES.get(str(kind), "auto"),
        parallel=parallel,
        max_tokens=body.get("max_tokens"),
        temperature=body.get("temperature"),
        top_p=body.get("top_p"),
        stop=tuple(str(text) for text in _items(body.get("stop_sequences") or [], "stop_sequences")),
        effort=_effort(body.get("thinking"), output),
        shape=_shape(output.get("format") or body.get("output_format")),
        user=str(_mapping(body.get("metadata") or {}, "metadata").get("user_id") or ""),
    )


def _shape(given: Any) -> ResponseFormat | None:
    """The JSON that is asked for."""
    if given is None:
        return None
    found = _mapping(given, "output_config.format")
    if found.get("type") != "json_schema":
        raise errors.BadRequest("output_config.format.type: must be json_schema")
    return ResponseFormat(schema=_mapping(found.get("schema"), "output_config.format.schema"), strict=True)


def _effort(thinking: Any, output: Mapping[str, Any]) -> str:
    """How hard to think, as it is said or by the tokens that a thought may take."""
    if said := output.get("effort"):
        return str(said) if said in ("low", "medium") else "high"
    if not isinstance(thinking, dict) or cast("dict[str, Any]", thinking).get("type") != "enabled":
        return ""
    budget = cast("dict[str, Any]", thinking).get("budget_tokens") or 0
    if not isinstance(budget, int):
        raise errors.BadRequest("thinking.budget_tokens: must be a whole number")
    return next((word for limit, word in _EFFORTS if budget <= limit), "high")


def _turns(given: Sequence[Any], system: str) -> tuple[str, tuple[ChatMessage, ...]]:
    """What is said before a conversation, and its turns.

    What the system says later is told where it stands, in the caller's words: the beginning of a conversation
    stays what its server remembers, and many models know of a system at the beginning only.
    """
    before, turns = [system] if system else [], list[ChatMessage]()
    for index, item in enumerate(given):
        where = f"messages.{index}"
        row = _mapping(item, where)
        parts = _parts(row.get("content"), f"{where}.content")
        match row.get("role"):
            case "user":
                turns.append(ChatMessage("user", parts))
            case "assistant":
                turns.append(ChatMessage("assistant", parts))
            case "system" if turns:
                _remind(turns, _words(parts))
            case "system":
                before.append(_words(parts))
            case _:
                raise errors.BadRequest(f"{where}.role: must be user, assistant or system")
    return "\n\n".join(before), tuple(turns)


def _words(parts: Sequence[Part]) -> str:
    return "\n\n".join(part.text for part in parts if isinstance(part, TextPart))


def _remind(turns: list[ChatMessage], words: str) -> None:
    """Say in the caller's turn what the system says there; coding agents mark it so themselves."""
    told = TextPart(f"\n\n<system-reminder>\n{words}\n</system-reminder>")
    said = turns.pop().parts if turns[-1].role == "user" else ()
    turns.append(ChatMessage("user", (*said, told)))


def _parts(content: Any, where: str) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (TextPart(content),) if content else ()
    return tuple(_part(_mapping(block, where), where) for block in _items(content or [], where))


def _part(block: Mapping[str, Any], where: str) -> Part:
    match block.get("type"):
        case "text":
            return TextPart(str(block.get("text", "")))
        case "image":
            return _picture(_mapping(block.get("source"), f"{where}.source"), where)
        case "tool_use":
            arguments = _encode(block.get("input") or {}).decode()
            return ToolCall(str(block.get("id") or ""), str(block.get("name") or ""), arguments)
        case "tool_result":
            told = cast("tuple[TextPart | ImagePart, ...]", _parts(block.get("content"), where))
            return ToolResult(str(block.get("tool_use_id") or ""), told, bool(block.get("is_error")))
        case "thinking":
            return ReasoningPart(str(block.get("thinking") or ""), str(block.get("signature") or ""))
        case "document" if _mapping(block.get("source"), f"{where}.source").get("type") == "text":
            return TextPart(str(block["source"].get("data") or ""))
        case "redacted_thinking":
            return ReasoningPart("")
        case kind:
            raise errors.BadRequest(f"{where}: this model takes no block of type {kind!r}")


def _picture(source: Mapping[str, Any], where: str) -> ImagePart:
    match source.get("type"):
        case "base64":
            return ImagePart(
                media_type=str(source.get("media_type") or ""), data=str(source.get("data") or "")
            )
        case "url":
            return ImagePart(url=str(source.get("url") or ""))
        case kind:
            raise errors.BadRequest(f"{where}.source: this model takes no source of type {kind!r}")


def _system(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    blocks = (_mapping(block, "system") for block in _items(value, "system"))
    return "\n\n".join(str(block.get("text", "")) for block in blocks)


def _tool(value: Any) -> ToolSpec | None:
    """A function; a tool that the provider itself would run is left out, as the model can do without."""
    row = _mapping(value, "tools")
    if row.get("type", "custom") != "custom":
        return None
    name, description = str(row.get("name") or ""), str(row.get("description") or "")
    return ToolSpec(name, description, _mapping(row.get("input_schema") or {}, "tools.input_schema"))


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise errors.BadRequest(f"{where}: must be an object")
    return cast("dict[str, Any]", value)


def _items(value: Any, where: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise errors.BadRequest(f"{where}: must be an array")
    return cast("list[Any]", value)


# -- saying ----------------------------------------------------------------------------------------


def usage(used: TokenUsage) -> dict[str, Any]:
    """Usage in this dialect, where `input_tokens` leaves out what was cached."""
    return {
        "input_tokens": used.input - used.cached - used.cache_write - used.cache_write_long,
        "cache_creation_input_tokens": used.cache_write + used.cache_write_long,
        "cache_read_input_tokens": used.cached,
        "output_tokens": used.output,
    }


def whole(answer: ChatResponse, asked: ChatCall, request_id: str) -> bytes:
    """A message."""
    blocks = [_said(part) for part in answer.parts]
    return _encode(_document(answer.model or asked.model, request_id, blocks, answer.stop, answer.usage))


def _said(part: TextPart | ToolCall | ReasoningPart) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ReasoningPart():
            return {"type": "thinking", "thinking": part.text, "signature": part.signature}
        case ToolCall():
            return {"type": "tool_use", "id": part.id, "name": part.name, "input": _object(part.arguments)}


def _object(text: str) -> Any:
    try:
        return _decode(text.encode())
    except (msgspec.MsgspecError, UnicodeError):
        return {"arguments": text}


def _document(
    model: str, request_id: str, content: list[dict[str, Any]], stop: Stop | None, used: TokenUsage
) -> dict[str, Any]:
    return {
        "id": f"msg_{request_id.removeprefix('req_')}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": _STOPS[stop] if stop is not None else None,
        "stop_sequence": None,
        "usage": usage(used),
    }


class _Blocks:
    """Numbers the blocks of a stream; one is open at a time, and clients lose more of one that is closed.

    Some servers name all of their calls first, or mix their arguments: a call that begins before the
    arguments of the open one are whole waits for them.
    """

    def __init__(self) -> None:
        self._index = -1
        self._kind = ""
        self._number = -1  # of the call that was begun last
        self._arguments = ""
        self._waiting: dict[int, tuple[Mapping[str, Any], list[str]]] = {}

    def open(self, kind: str, block: Mapping[str, Any]) -> bytes:
        """Begin a block of this kind, unless it is the one that is open."""
        if self._kind == kind:
            return b""
        return self.close() + self._begin(kind, block)

    def more(self, delta: Mapping[str, Any]) -> bytes:
        """More of the block that is open."""
        return _event("content_block_delta", index=self._index, delta=delta)

    def call(self, number: int, block: Mapping[str, Any]) -> bytes:
        """Begin the block of a call, now or later."""
        if self._kind == "call" and not _is_object(self._arguments):
            self._waiting[number] = (block, [])
            return b""
        self._number, self._arguments = number, ""
        return self._shut() + self._begin("call", block)

    def argument(self, number: int, text: str) -> bytes:
        """More of a call's arguments."""
        if number in self._waiting:
            self._waiting[number][1].append(text)
            return b""
        if number != self._number or not text:
            return b""
        self._arguments += text
        told = self.more({"type": "input_json_delta", "partial_json": text})
        while self._waiting and _is_object(self._arguments):
            told += self._next()
        return told

    def close(self) -> bytes:
        """All blocks that were begun are whole."""
        told = b""
        while self._waiting:
            told += self._next()
        return told + self._shut()

    def _next(self) -> bytes:
        number = next(iter(self._waiting))
        block, arguments = self._waiting.pop(number)
        told = self._shut() + self.call(number, block)
        return told + self.argument(number, "".join(arguments))

    def _begin(self, kind: str, block: Mapping[str, Any]) -> bytes:
        self._kind = kind
        self._index += 1
        return _event("content_block_start", index=self._index, content_block=block)

    def _shut(self) -> bytes:
        if not self._kind:
            return b""
        self._kind = ""
        return _event("content_block_stop", index=self._index)


def _is_object(arguments: str) -> bool:
    """Whether nothing can follow."""
    if not arguments.rstrip().endswith("}"):
        return False
    try:
        _decode(arguments.encode())
    except (msgspec.MsgspecError, UnicodeError):
        return False
    return True


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), _encode({"type": kind, **fields}))


async def stream(events: AsyncIterator[Event], asked: ChatCall, request_id: str) -> AsyncGenerator[bytes]:
    """The events of a message."""
    yield _event("message_start", message=_document(asked.model, request_id, [], None, NOTHING))
    blocks = _Blocks()
    async for event in events:
        match event:
            case TextDelta():
                yield blocks.open("text", {"type": "text", "text": ""}) + blocks.more(
                    {"type": "text_delta", "text": event.text}
                )
            case ReasoningDelta():
                yield _thinking(blocks, event)
            case ToolCallStart():
                call: dict[str, Any] = {"type": "tool_use", "id": event.id, "name": event.name, "input": {}}
                yield blocks.call(event.number, call)
            case ToolCallDelta():
                yield blocks.argument(event.number, event.text)
            case MessageEnd():
                delta = {"stop_reason": _STOPS[event.stop], "stop_sequence": None}
                yield blocks.close() + _event("message_delta", delta=delta, usage=usage(event.usage))
                yield _event("message_stop")


def _thinking(blocks: _Blocks, event: ReasoningDelta) -> bytes:
    told = blocks.open("thinking", {"type": "thinking", "thinking": "", "signature": ""})
    if event.text:
        told += blocks.more({"type": "thinking_delta", "thinking": event.text})
    if event.signature:
        told += blocks.more({"type": "signature_delta", "signature": event.signature})
    return told


TONGUE = ResponseDialect("messages", anthropic_errors.dialect, whole, stream, anthropic_errors.event)
