"""OpenAI's Chat Completions API: parse requests, render responses and their chunks.

Source: https://platform.openai.com/docs/api-reference/chat.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, cast

import msgspec

from sixfold.api.gateway import tags
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
from sixfold.core.gateway.pricing.usage import TokenUsage
from sixfold.web import bodies

_STOPS: Mapping[Stop, str] = {
    "end": "stop",
    "sequence": "stop",
    "length": "length",
    "tool": "tool_calls",
    "filter": "content_filter",
}
_MAX_ANSWERS = 128
_encode = parsing.encode


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _ChatMessageHead(msgspec.Struct):
    role: str


class _ChatHead(msgspec.Struct):
    model: str
    messages: list[_ChatMessageHead]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = None
    store: bool | None = None
    metadata: msgspec.Raw = tags.NONE
    user: msgspec.Raw = tags.NONE


_head = msgspec.json.Decoder(_ChatHead)


def parse_call(raw: bytes) -> ChatCall:
    """Parse the top-level fields of a request body; raises `BadRequest` or `InvalidRequest`."""
    head = cast("_ChatHead", parsing.head(_head, raw))
    if not head.messages:
        raise InvalidRequest("messages must have at least one message", param="messages")
    limits = [limit for limit in (head.max_completion_tokens, head.max_tokens) if limit is not None]
    if limits and min(limits) < 1:
        raise InvalidRequest(f"max_tokens must be at least 1 (got {min(limits)})", param="max_tokens")
    # Servers differ in which of the two they apply.
    max_tokens = max(limits, default=None)
    answers = 1 if head.n is None else head.n
    if not 1 <= answers <= _MAX_ANSWERS:
        raise InvalidRequest(f"n must be from 1 to {_MAX_ANSWERS} (got {answers})", param="n")
    options = head.stream_options
    return ChatCall(
        model=head.model,
        stream=bool(head.stream),
        max_tokens=max_tokens,
        answers=answers,
        parse=lambda: parse(raw),
        store=head.store,
        metadata=head.metadata,
        user=head.user,
        keep_usage=not head.stream or (options is not None and bool(options.include_usage)),
    )


def parse(raw: bytes) -> ChatRequest:
    """Parse a whole request; raises `InvalidRequest` for features that only OpenAI's servers support."""
    body = bodies.parse_object(raw)
    return from_fields(body)


def from_fields(body: Mapping[str, Any]) -> ChatRequest:
    if (body.get("n") or 1) != 1:
        raise InvalidRequest("n must be 1 for this model", param="n")
    system: list[str] = []
    messages: list[ChatMessage] = []
    for index, item in enumerate(parsing.items(body.get("messages"), "messages")):
        where = f"messages[{index}]"
        _add_message(parsing.mapping(item, where), where, system, messages)
    parallel = body.get("parallel_tool_calls")
    return ChatRequest(
        messages=tuple(messages),
        system="\n\n".join(system),
        tools=tuple(_tool(tool) for tool in parsing.items(body.get("tools") or [], "tools")),
        choice=parsing.tool_choice(body.get("tool_choice")),
        parallel=parallel if isinstance(parallel, bool) else None,
        shape=parsing.response_format(body.get("response_format"), "response_format"),
        max_tokens=body.get("max_completion_tokens") or body.get("max_tokens"),
        temperature=parsing.number(body, "temperature"),
        top_p=parsing.number(body, "top_p"),
        stop=parsing.stop_sequences(body.get("stop")),
        effort=str(body.get("reasoning_effort") or ""),
        user=str(body.get("user") or ""),
    )


def _add_message(item: Mapping[str, Any], path: str, system: list[str], messages: list[ChatMessage]) -> None:
    role, content = item.get("role"), item.get("content")
    match role:
        case "system" | "developer":
            system.append("".join(part.text for part in _parts(content, path) if isinstance(part, TextPart)))
        case "user":
            messages.append(ChatMessage("user", _parts(content, path)))
        case "assistant":
            messages.append(ChatMessage("assistant", (*_parts(content, path), *_calls(item, path))))
        case "tool" | "function":
            parts = cast("tuple[TextPart | ImagePart, ...]", _parts(content, path))
            call_id = str(item.get("tool_call_id") or item.get("name") or "")
            messages.append(ChatMessage("user", (ToolResult(call_id, parts),)))
        case _:
            raise InvalidRequest(
                f"{path}.role must be system, developer, user, assistant or tool", param=f"{path}.role"
            )


def _parts(content: Any, path: str) -> tuple[Part, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (TextPart(content),) if content else ()
    path = f"{path}.content"
    return tuple(_part(parsing.mapping(part, path), path) for part in parsing.items(content, path))


def _part(part: Mapping[str, Any], path: str) -> Part:
    match part.get("type"):
        case "text" | "input_text" | "output_text":
            return TextPart(str(part.get("text", "")))
        case "refusal":
            return TextPart(str(part.get("refusal", "")))
        case "image_url":
            value = part.get("image_url")
            url = value if isinstance(value, str) else parsing.mapping(value, path).get("url")
            return parsing.image_part(url, f"{path}.image_url")
        case kind:
            raise InvalidRequest(f"This model does not support parts of type {kind!r}", param=path)


def _calls(item: Mapping[str, Any], path: str) -> tuple[ToolCall, ...]:
    calls: list[ToolCall] = []
    for call in parsing.items(item.get("tool_calls") or [], f"{path}.tool_calls"):
        row = parsing.mapping(call, f"{path}.tool_calls")
        function = parsing.mapping(row.get("function"), f"{path}.tool_calls.function")
        calls.append(
            ToolCall(
                str(row.get("id", "")), str(function.get("name", "")), str(function.get("arguments") or "{}")
            )
        )
    return tuple(calls)


def _tool(value: Any) -> ToolSpec:
    row = parsing.mapping(value, "tools")
    if row.get("type", "function") != "function":
        raise InvalidRequest("This model supports only tools of type function", param="tools")
    function = parsing.mapping(row.get("function"), "tools.function")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidRequest(
            "tools.function.name is required and must be a string", param="tools.function.name"
        )
    parameters: Any = function.get("parameters") or {"type": "object", "properties": {}}
    return ToolSpec(
        name, str(function.get("description") or ""), parsing.mapping(parameters, "tools.function")
    )


def usage(tokens: TokenUsage) -> dict[str, Any]:
    """Return the usage in OpenAI's format."""
    return {
        "prompt_tokens": tokens.input,
        "completion_tokens": tokens.output,
        "total_tokens": tokens.input + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached, "audio_tokens": tokens.audio_in},
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning, "audio_tokens": tokens.audio_out},
    }


def render(answer: ChatResponse, chat_call: ChatCall, request_id: str) -> bytes:
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in answer.calls
    ]
    reasoning = "".join(part.text for part in answer.parts if isinstance(part, ReasoningPart))
    text = answer.text
    message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
    message["refusal"] = None
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    if chat_call.searches:
        message["annotations"] = _annotations(text, chat_call)
    return _encode(
        {
            "id": f"chatcmpl-{request_id}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": answer.model or chat_call.model,
            "choices": [
                {"index": 0, "message": message, "logprobs": None, "finish_reason": _STOPS[answer.stop]}
            ],
            "usage": usage(answer.usage),
        }
    )


def _annotations(text: str, chat_call: ChatCall) -> list[dict[str, Any]]:
    """Return the citations in OpenAI's format, with the fields nested under the citation type."""
    rows = (row for search in chat_call.searches for row in search.annotations(text))
    return [
        {"type": row["type"], row["type"]: {name: row[name] for name in row if name != "type"}}
        for row in rows
    ]


async def _with_arguments(events: AsyncIterator[Event]) -> AsyncGenerator[Event]:
    """Yield the events, with an empty object for each call without arguments."""
    without_arguments: dict[int, None] = {}
    async for event in events:
        match event:
            case ToolCallStart():
                without_arguments[event.number] = None
            case ToolCallDelta():
                without_arguments.pop(event.number, None)
            case MessageEnd():
                for number in without_arguments:
                    yield ToolCallDelta(number, "{}")
            case _:
                pass
        yield event


async def render_stream(
    events: AsyncIterator[Event], chat_call: ChatCall, request_id: str
) -> AsyncGenerator[bytes]:
    """Yield the chunks and `[DONE]`."""
    shared = {
        "id": f"chatcmpl-{request_id}",
        "object": "chat.completion.chunk",
        "created": int(time.time()),
        "model": chat_call.model,
    }

    def chunk(delta: Mapping[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return b"data: " + _encode({**shared, "choices": [choice]}) + b"\n\n"

    yield chunk({"role": "assistant", "content": ""})
    text = ""
    async for event in _with_arguments(events):
        if not isinstance(event, MessageEnd):
            if chat_call.searches and isinstance(event, TextDelta):
                text += event.text
            if delta := _delta(event):
                yield chunk(delta)
            continue
        if annotations := _annotations(text, chat_call):
            yield chunk({"annotations": annotations})
        yield chunk({}, _STOPS[event.stop])
        if chat_call.keep_usage:
            usage_chunk: dict[str, Any] = {**shared, "choices": [], "usage": usage(event.usage)}
            yield b"data: " + _encode(usage_chunk) + b"\n\n"
        yield b"data: [DONE]\n\n"


def _delta(event: TextDelta | ReasoningDelta | ToolCallStart | ToolCallDelta) -> Mapping[str, Any]:
    match event:
        case TextDelta():
            return {"content": event.text}
        case ReasoningDelta():
            return {"reasoning_content": event.text} if event.text else {}
        case ToolCallStart():
            function = {"name": event.name, "arguments": ""}
            call = {"index": event.number, "id": event.id, "type": "function", "function": function}
            return {"tool_calls": [call]}
        case ToolCallDelta():
            return {"tool_calls": [{"index": event.number, "function": {"arguments": event.text}}]}


# No server speaks this protocol, so that all completions with a search of this server are rendered here.
SEARCH_DIALECT = ResponseDialect(
    "chat_with_search", openai_errors.dialect, parse, render, render_stream, openai_errors.event
)
DIALECT = ResponseDialect("chat", openai_errors.dialect, parse, render, render_stream, openai_errors.event)
