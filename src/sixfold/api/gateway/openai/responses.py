"""Responses: a request read, a response and its events said.

Source: https://platform.openai.com/docs/api-reference/responses and …/responses-streaming. `keeping` has what
is kept of them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, cast

import msgspec

from sixfold.api.gateway.chat_handler import ChatCall, ResponseDialect
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai import parsing, tools
from sixfold.api.gateway.openai.errors import InvalidRequest, PreviousResponseNotFound
from sixfold.api.gateway.openai.response_events import ResponseEventWriter
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
    TextDelta,
    TextPart,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    ToolResult,
)
from sixfold.errors import SixfoldError
from sixfold.web import bodies

_encode = parsing.encode


class _ResponsesHead(msgspec.Struct):
    model: str
    input: str | list[msgspec.Raw]
    stream: bool | None = None
    max_output_tokens: int | None = None
    previous_response_id: str | None = None
    store: bool | None = None


class ResponsesRequest(ChatCall, frozen=True):
    """A request for a response: which one it goes on from, and whether to keep it where it says so."""

    previous: str = ""
    store: bool | None = None


_DONE_ELSEWHERE = frozenset(
    {"web_search_call", "file_search_call", "code_interpreter_call", "mcp_list_tools"}
)
_ECHOED = (
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
    "truncation",
    "user",
)
_head = msgspec.json.Decoder(_ResponsesHead)


def wanted(raw: bytes) -> ResponsesRequest:
    """What a request asks for; raises `BadRequest` or `InvalidRequest`."""
    head = cast("_ResponsesHead", parsing.head(_head, raw))
    if not head.input:
        raise InvalidRequest("input must not be empty", param="input")
    if head.max_output_tokens is not None and head.max_output_tokens < 1:
        raise InvalidRequest("max_output_tokens must be positive", param="max_output_tokens")
    return ResponsesRequest(
        model=head.model,
        stream=bool(head.stream),
        max_tokens=head.max_output_tokens,
        parse=lambda: parse(raw),
        tools=lambda: tools.kinds(bodies.parse_object(raw).get("tools")),
        echo=lambda: _echo(raw),
        previous=head.previous_response_id or "",
        store=head.store,
    )


def _echo(raw: bytes) -> Mapping[str, msgspec.Raw]:
    """What a response has of its request, as it came."""
    given = parsing.raws(raw)
    return {name: given[name] for name in _ECHOED if bytes(given.get(name, b"null")) != b"null"}


def parse(raw: bytes) -> ChatRequest:
    """A request in no dialect; raises `InvalidRequest` for what only its own dialect knows."""
    body = bodies.parse_object(raw)
    if body.get("previous_response_id"):
        raise PreviousResponseNotFound(str(body["previous_response_id"]))
    for name in ("conversation", "prompt"):
        if body.get(name):
            raise InvalidRequest(f"{name} needs a server that speaks responses itself", param=name)
    system = [str(body["instructions"])] if body.get("instructions") else []
    messages: list[ChatMessage] = []
    given = body.get("input")
    if isinstance(given, str):
        messages.append(ChatMessage("user", (TextPart(given),)))
    else:
        for index, item in enumerate(parsing.items(given, "input")):
            _take(parsing.mapping(item, f"input[{index}]"), f"input[{index}]", system, messages)
    text: Any = body.get("text") or {}
    reasoning: Any = body.get("reasoning") or {}
    parallel = body.get("parallel_tool_calls")
    return ChatRequest(
        messages=tuple(messages),
        system="\n\n".join(system),
        tools=tools.offered(body.get("tools")),
        choice=parsing.choice(body.get("tool_choice")),
        parallel=parallel if isinstance(parallel, bool) else None,
        shape=parsing.shape(parsing.mapping(text, "text").get("format"), "text.format"),
        max_tokens=body.get("max_output_tokens"),
        temperature=parsing.number(body, "temperature"),
        top_p=parsing.number(body, "top_p"),
        effort=str(parsing.mapping(reasoning, "reasoning").get("effort") or ""),
        user=str(body.get("user") or ""),
    )


def _take(item: Mapping[str, Any], where: str, system: list[str], messages: list[ChatMessage]) -> None:
    match item.get("type", "message"):
        case "message":
            parts = _parts(item.get("content"), where)
            if item.get("role") in ("system", "developer"):
                system.append("".join(part.text for part in parts if isinstance(part, TextPart)))
            else:
                messages.append(
                    ChatMessage("assistant" if item.get("role") == "assistant" else "user", parts)
                )
        case "function_call" | "custom_tool_call":
            messages.append(ChatMessage("assistant", (tools.call(item),)))
        case "function_call_output" | "custom_tool_call_output":
            told = cast("tuple[TextPart | ImagePart, ...]", _parts(item.get("output"), where))
            messages.append(ChatMessage("user", (ToolResult(str(item.get("call_id") or ""), told),)))
        case "reasoning":
            signature = str(item.get("encrypted_content") or "")
            said = parsing.items(item.get("summary") or [], where)
            thought = " ".join(str(parsing.mapping(part, where).get("text", "")) for part in said)
            if signature:
                messages.append(ChatMessage("assistant", (ReasoningPart(thought, signature),)))
        case "item_reference":
            raise InvalidRequest(f"Item with id '{item.get('id')}' not found.", status=404, param=where)
        case str(kind) if kind in _DONE_ELSEWHERE:
            pass  # what a provider's own tool did: what came of it is in the message that follows
        case kind:
            raise InvalidRequest(f"This model takes no item of type {kind!r}", param=where)


def _parts(content: Any, where: str) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (TextPart(content),) if content else ()
    found: list[Part] = []
    for value in parsing.items(content or [], where):
        part = parsing.mapping(value, where)
        match part.get("type"):
            case "input_text" | "output_text" | "text":
                found.append(TextPart(str(part.get("text", ""))))
            case "refusal":
                found.append(TextPart(str(part.get("refusal", ""))))
            case "input_image":
                found.append(parsing.picture(part.get("image_url"), f"{where}.image_url"))
            case kind:
                raise InvalidRequest(f"This model takes no part of type {kind!r}", param=where)
    return tuple(found)


def whole(answer: ChatResponse, asked: ChatCall, request_id: str) -> bytes:
    """A response."""
    speaker = ResponseEventWriter(request_id, answer.model or asked.model, asked)
    for part in answer.parts:
        match part:
            case TextPart():
                speaker.said(part.text)
            case ReasoningPart():
                speaker.thought(part.text)
                if part.signature:
                    speaker.sealed(part.signature)
            case ToolCall():
                number = len(speaker.output)
                speaker.calling(ToolCallStart(number, part.id, part.name))
                speaker.argument(ToolCallDelta(number, part.arguments))
    speaker.close()
    return _encode(speaker.response(MessageEnd(answer.stop, answer.usage)))


async def stream(events: AsyncIterator[Event], asked: ChatCall, request_id: str) -> AsyncGenerator[bytes]:
    """The events of a response; of one that fails in the middle, too, which some agents wait for."""
    speaker = ResponseEventWriter(request_id, asked.model, asked)
    yield speaker.begin()
    try:
        async for event in events:
            yield _said(speaker, event)
    except SixfoldError as error:
        yield speaker.fail(_fault(error))


def _said(speaker: ResponseEventWriter, event: Event) -> bytes:
    match event:
        case TextDelta():
            return speaker.said(event.text)
        case ReasoningDelta():
            told = speaker.thought(event.text) if event.text else b""
            return told + (speaker.sealed(event.signature) if event.signature else b"")
        case ToolCallStart():
            return speaker.calling(event)
        case ToolCallDelta():
            return speaker.argument(event)
        case MessageEnd():
            return speaker.close() + speaker.end(event)


def _fault(error: SixfoldError) -> dict[str, Any]:
    """What an event of an error has."""
    found = openai_errors.document(error)["error"]
    return {"code": found["code"], "message": found["message"], "param": found["param"]}


def failed(error: SixfoldError, _request_id: str) -> bytes:
    """An error where a response had not begun, or was another server's own."""
    told = {"type": "error", **_fault(error), "sequence_number": 0}
    return b"event: error\ndata: " + _encode(told) + b"\n\n"


TONGUE = ResponseDialect("responses", openai_errors.dialect, whole, stream, failed)
