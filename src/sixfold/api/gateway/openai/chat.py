"""Chat completions: a request read, an answer and its chunks said.

Source: https://platform.openai.com/docs/api-reference/chat.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, cast

import msgspec

from sixfold.api.gateway.chat_handler import ChatCall, ResponseDialect
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.errors import InvalidRequest
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
    ToolSpec,
)
from sixfold.core.gateway.usage import TokenUsage
from sixfold.web import bodies

_STOPS: Mapping[Stop, str] = {
    "end": "stop",
    "sequence": "stop",
    "length": "length",
    "tool": "tool_calls",
    "filter": "content_filter",
}
_MOST_ANSWERS = 128
_encode = parsing.encode


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _ChatHead(msgspec.Struct):
    model: str
    messages: list[msgspec.Raw]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = None


_head = msgspec.json.Decoder(_ChatHead)


def wanted(raw: bytes) -> ChatCall:
    """What a request asks for; raises `BadRequest` or `InvalidRequest`."""
    head = cast("_ChatHead", parsing.head(_head, raw))
    if not head.messages:
        raise InvalidRequest("messages must have at least one message", param="messages")
    limits = [limit for limit in (head.max_completion_tokens, head.max_tokens) if limit is not None]
    if limits and min(limits) < 0:
        raise InvalidRequest("max_tokens must be positive", param="max_tokens")
    most = max(limits, default=None)  # which of the two a server heeds is its own affair
    number = 1 if head.n is None else head.n
    if not 1 <= number <= _MOST_ANSWERS:
        raise InvalidRequest(f"n must be from 1 to {_MOST_ANSWERS}", param="n")
    options = head.stream_options
    return ChatCall(
        model=head.model,
        stream=bool(head.stream),
        max_tokens=most * number if most is not None else None,
        parse=lambda: parse(raw),
        keep_usage=not head.stream or (options is not None and bool(options.include_usage)),
    )


def parse(raw: bytes) -> ChatRequest:
    """A request in no dialect; raises `InvalidRequest` for what only its own dialect knows."""
    body = bodies.parse_object(raw)
    return from_fields(body)


def from_fields(body: Mapping[str, Any]) -> ChatRequest:
    """The same from its fields."""
    if (body.get("n") or 1) != 1:
        raise InvalidRequest("n must be 1 for this model", param="n")
    system: list[str] = []
    messages: list[ChatMessage] = []
    for index, item in enumerate(parsing.items(body.get("messages"), "messages")):
        where = f"messages[{index}]"
        _take(parsing.mapping(item, where), where, system, messages)
    parallel = body.get("parallel_tool_calls")
    return ChatRequest(
        messages=tuple(messages),
        system="\n\n".join(system),
        tools=tuple(_tool(tool) for tool in parsing.items(body.get("tools") or [], "tools")),
        choice=parsing.choice(body.get("tool_choice")),
        parallel=parallel if isinstance(parallel, bool) else None,
        shape=parsing.shape(body.get("response_format"), "response_format"),
        max_tokens=body.get("max_completion_tokens") or body.get("max_tokens"),
        temperature=parsing.number(body, "temperature"),
        top_p=parsing.number(body, "top_p"),
        stop=parsing.stops(body.get("stop")),
        effort=str(body.get("reasoning_effort") or ""),
        user=str(body.get("user") or ""),
    )


def _take(item: Mapping[str, Any], where: str, system: list[str], messages: list[ChatMessage]) -> None:
    role, content = item.get("role"), item.get("content")
    match role:
        case "system" | "developer":
            system.append("".join(part.text for part in _parts(content, where) if isinstance(part, TextPart)))
        case "user":
            messages.append(ChatMessage("user", _parts(content, where)))
        case "assistant":
            messages.append(ChatMessage("assistant", (*_parts(content, where), *_calls(item, where))))
        case "tool" | "function":
            told = cast("tuple[TextPart | ImagePart, ...]", _parts(content, where))
            call_id = str(item.get("tool_call_id") or item.get("name") or "")
            messages.append(ChatMessage("user", (ToolResult(call_id, told),)))
        case _:
            raise InvalidRequest(f"{where}.role is not known", param=f"{where}.role")


def _parts(content: Any, where: str) -> tuple[Part, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (TextPart(content),) if content else ()
    where = f"{where}.content"
    return tuple(_part(parsing.mapping(part, where), where) for part in parsing.items(content, where))


def _part(part: Mapping[str, Any], where: str) -> Part:
    match part.get("type"):
        case "text" | "input_text" | "output_text":
            return TextPart(str(part.get("text", "")))
        case "refusal":
            return TextPart(str(part.get("refusal", "")))
        case "image_url":
            found = part.get("image_url")
            url = found if isinstance(found, str) else parsing.mapping(found, where).get("url")
            return parsing.picture(url, f"{where}.image_url")
        case kind:
            raise InvalidRequest(f"This model takes no part of type {kind!r}", param=where)


def _calls(item: Mapping[str, Any], where: str) -> tuple[ToolCall, ...]:
    found: list[ToolCall] = []
    for call in parsing.items(item.get("tool_calls") or [], f"{where}.tool_calls"):
        row = parsing.mapping(call, f"{where}.tool_calls")
        function = parsing.mapping(row.get("function"), f"{where}.tool_calls.function")
        found.append(
            ToolCall(
                str(row.get("id", "")), str(function.get("name", "")), str(function.get("arguments") or "{}")
            )
        )
    return tuple(found)


def _tool(value: Any) -> ToolSpec:
    row = parsing.mapping(value, "tools")
    if row.get("type", "function") != "function":
        raise InvalidRequest("This model takes functions as tools only", param="tools")
    function = parsing.mapping(row.get("function"), "tools.function")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidRequest("A tool needs a name", param="tools.function.name")
    parameters: Any = function.get("parameters") or {"type": "object", "properties": {}}
    return ToolSpec(
        name, str(function.get("description") or ""), parsing.mapping(parameters, "tools.function")
    )


# -- saying ----------------------------------------------------------------------------------------


def usage(used: TokenUsage) -> dict[str, Any]:
    """Usage in this dialect."""
    return {
        "prompt_tokens": used.input,
        "completion_tokens": used.output,
        "total_tokens": used.input + used.output,
        "prompt_tokens_details": {"cached_tokens": used.cached, "audio_tokens": used.audio_in},
        "completion_tokens_details": {"reasoning_tokens": used.reasoning, "audio_tokens": used.audio_out},
    }


def whole(answer: ChatResponse, asked: ChatCall, request_id: str) -> bytes:
    """A chat completion."""
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in answer.calls
    ]
    thought = "".join(part.text for part in answer.parts if isinstance(part, ReasoningPart))
    text = answer.text
    message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
    message["refusal"] = None
    if thought:
        message["reasoning_content"] = thought
    if calls:
        message["tool_calls"] = calls
    return _encode(
        {
            "id": f"chatcmpl-{request_id}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": answer.model or asked.model,
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "logprobs": None,
                    "finish_reason": _STOPS[answer.stop],
                }
            ],
            "usage": usage(answer.usage),
        }
    )


async def _filled(events: AsyncIterator[Event]) -> AsyncGenerator[Event]:
    """The same, where a call without arguments has an empty object of them."""
    bare: dict[int, None] = {}
    async for event in events:
        match event:
            case ToolCallStart():
                bare[event.number] = None
            case ToolCallDelta():
                bare.pop(event.number, None)
            case MessageEnd():
                for number in bare:
                    yield ToolCallDelta(number, "{}")
            case _:
                pass
        yield event


async def stream(events: AsyncIterator[Event], asked: ChatCall, request_id: str) -> AsyncGenerator[bytes]:
    """Chunks, and `[DONE]`."""
    shared = {
        "id": f"chatcmpl-{request_id}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": asked.model,
    }

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return b"data: " + _encode({**shared, "choices": [choice]}) + b"\n\n"

    yield chunk({"role": "assistant", "content": ""})
    async for event in _filled(events):
        match event:
            case TextDelta():
                yield chunk({"content": event.text})
            case ReasoningDelta():
                if event.text:
                    yield chunk({"reasoning_content": event.text})
            case ToolCallStart():
                function = {"name": event.name, "arguments": ""}
                call = {"index": event.number, "id": event.id, "type": "function", "function": function}
                yield chunk({"tool_calls": [call]})
            case ToolCallDelta():
                yield chunk({"tool_calls": [{"index": event.number, "function": {"arguments": event.text}}]})
            case MessageEnd():
                yield chunk({}, _STOPS[event.stop])
                if asked.keep_usage:
                    last: dict[str, Any] = {**shared, "choices": [], "usage": usage(event.usage)}
                    yield b"data: " + _encode(last) + b"\n\n"
                yield b"data: [DONE]\n\n"


TONGUE = ResponseDialect("chat", openai_errors.dialect, whole, stream, openai_errors.event)
