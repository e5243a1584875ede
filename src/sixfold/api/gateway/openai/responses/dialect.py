"""OpenAI's Responses API: parse requests, render responses and their events.

Source: https://platform.openai.com/docs/api-reference/responses and …/responses-streaming. Stored responses
are in `stored`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, cast

import msgspec

from sixfold.api.gateway import tags
from sixfold.api.gateway.chat_handler import ChatCall, ResponseDialect
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai import parsing, tools
from sixfold.api.gateway.openai.errors import InvalidRequest, MutuallyExclusive, PreviousResponseNotFound
from sixfold.api.gateway.openai.responses import mcp_items
from sixfold.api.gateway.openai.responses.event_writer import ResponseEventWriter
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
from sixfold.core.input_limits import json_decoding
from sixfold.errors import SixfoldError
from sixfold.web import bodies

_encode = parsing.encode


class _ConversationHead(msgspec.Struct):
    id: str


class _ResponsesHead(msgspec.Struct):
    model: str
    input: str | list[msgspec.Raw] | None = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    previous_response_id: str | None = None
    conversation: str | _ConversationHead | None = None
    store: bool | None = None
    background: bool | None = None
    metadata: msgspec.Raw = tags.NONE
    user: msgspec.Raw = tags.NONE


class ResponsesRequest(ChatCall, frozen=True):
    """A parsed request, with the ids of the previous response and the conversation."""

    previous: str = ""
    conversation: str = ""
    background: bool = False


PROVIDER_TOOL_ITEMS = frozenset(
    {"web_search_call", "file_search_call", "code_interpreter_call", "mcp_list_tools"}
)
_ECHOED_FIELDS = (
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
_COUNTED_FIELDS = frozenset(
    {
        "input",
        "instructions",
        "model",
        "parallel_tool_calls",
        "previous_response_id",
        "reasoning",
        "text",
        "tool_choice",
        "tools",
        "truncation",
    }
)
_head = msgspec.json.Decoder(_ResponsesHead)


def parse_call(raw: bytes, *, counting: bool = False) -> ResponsesRequest:
    """Parse the top-level fields of a request body; raises `BadRequest` or `InvalidRequest`.

    A request that only counts tokens may omit the input if it continues a response or a conversation.
    """
    head = cast("_ResponsesHead", parsing.head(_head, raw))
    if not head.input and not (counting and (head.previous_response_id or head.conversation)):
        raise InvalidRequest("input must not be empty", param="input")
    if head.max_output_tokens is not None and head.max_output_tokens < 1:
        raise InvalidRequest(
            f"max_output_tokens must be at least 1 (got {head.max_output_tokens})", param="max_output_tokens"
        )
    conversation = (
        head.conversation.id if isinstance(head.conversation, _ConversationHead) else head.conversation
    )
    if conversation and head.previous_response_id:
        raise MutuallyExclusive("previous_response_id", "conversation")
    return ResponsesRequest(
        model=head.model,
        stream=bool(head.stream),
        max_tokens=head.max_output_tokens,
        parse=lambda: parse(raw),
        tools=lambda: tools.tool_kinds(_tools(raw)),
        echo=lambda: _echo(raw),
        ignored_tools=lambda: tools.ignored_kinds(_tools(raw)),
        previous=head.previous_response_id or "",
        conversation=conversation or "",
        background=bool(head.background),
        store=head.store,
        metadata=head.metadata,
        user=head.user,
    )


def _tools(raw: bytes) -> Any:
    return json_decoding.decode(parsing.raws(raw).get("tools", b"null"))


def countable(raw: bytes) -> bytes:
    """Return a request with the fields that servers accept when they count its tokens."""
    return _encode({name: value for name, value in parsing.raws(raw).items() if name in _COUNTED_FIELDS})


def _echo(raw: bytes) -> Mapping[str, msgspec.Raw]:
    """Return the request's fields that the response repeats."""
    fields = parsing.raws(raw)
    return {name: fields[name] for name in _ECHOED_FIELDS if bytes(fields.get(name, b"null")) != b"null"}


def parse(raw: bytes) -> ChatRequest:
    """Parse a whole request; raises `InvalidRequest` for features that only OpenAI's servers support."""
    return parse_body(bodies.parse_object(raw))


def parse_body(body: Mapping[str, Any]) -> ChatRequest:
    """Return the chat of a decoded request; raises `InvalidRequest` as `parse` does."""
    if body.get("previous_response_id"):
        raise PreviousResponseNotFound(str(body["previous_response_id"]))
    if body.get("prompt"):
        raise InvalidRequest(
            "prompt requires a model server with the Responses API: send instructions and input instead",
            param="prompt",
        )
    system = [str(body["instructions"])] if body.get("instructions") else []
    messages: list[ChatMessage] = []
    items: Any = body.get("input") or []
    if isinstance(items, str):
        messages.append(ChatMessage("user", (TextPart(items),)))
    else:
        for index, item in mcp_items.expanded(parsing.items(items, "input")):
            _add_item(parsing.mapping(item, f"input[{index}]"), f"input[{index}]", system, messages)
    text: Any = body.get("text") or {}
    reasoning: Any = body.get("reasoning") or {}
    parallel = body.get("parallel_tool_calls")
    return ChatRequest(
        messages=tuple(messages),
        system="\n\n".join(system),
        tools=tools.function_specs(body.get("tools")),
        choice=parsing.tool_choice(body.get("tool_choice")),
        parallel=parallel if isinstance(parallel, bool) else None,
        shape=parsing.response_format(parsing.mapping(text, "text").get("format"), "text.format"),
        max_tokens=body.get("max_output_tokens"),
        temperature=parsing.number(body, "temperature"),
        top_p=parsing.number(body, "top_p"),
        effort=str(parsing.mapping(reasoning, "reasoning").get("effort") or ""),
        user=str(body.get("user") or ""),
    )


def _add_item(item: Mapping[str, Any], path: str, system: list[str], messages: list[ChatMessage]) -> None:
    match item.get("type", "message"):
        case "message":
            parts = _parts(item.get("content"), path)
            if item.get("role") in ("system", "developer"):
                system.append("".join(part.text for part in parts if isinstance(part, TextPart)))
            else:
                messages.append(
                    ChatMessage("assistant" if item.get("role") == "assistant" else "user", parts)
                )
        case "function_call" | "custom_tool_call":
            messages.append(ChatMessage("assistant", (tools.tool_call(item),)))
        case "function_call_output" | "custom_tool_call_output":
            parts = cast("tuple[TextPart | ImagePart, ...]", _parts(item.get("output"), path))
            messages.append(ChatMessage("user", (ToolResult(str(item.get("call_id") or ""), parts),)))
        case "reasoning":
            signature = str(item.get("encrypted_content") or "")
            summary = parsing.items(item.get("summary") or [], path)
            reasoning = " ".join(str(parsing.mapping(part, path).get("text", "")) for part in summary)
            if signature:
                messages.append(ChatMessage("assistant", (ReasoningPart(reasoning, signature),)))
        case "compaction":
            raise InvalidRequest(
                "A compaction can be read only by the provider that created it: choose a model of that "
                "provider, or send the messages instead",
                param=path,
            )
        case "item_reference":
            raise InvalidRequest(f"Item with id '{item.get('id')}' not found.", status=404, param=path)
        case str(kind) if kind in PROVIDER_TOOL_ITEMS:
            # The message that follows has the result of the provider's own tool.
            pass
        case kind:
            raise InvalidRequest(f"This model does not support items of type {kind!r}", param=path)


def _parts(content: Any, path: str) -> tuple[Part, ...]:
    if isinstance(content, str):
        return (TextPart(content),) if content else ()
    parts: list[Part] = []
    for value in parsing.items(content or [], path):
        part = parsing.mapping(value, path)
        match part.get("type"):
            case "input_text" | "output_text" | "text":
                parts.append(TextPart(str(part.get("text", ""))))
            case "refusal":
                parts.append(TextPart(str(part.get("refusal", ""))))
            case "input_image":
                parts.append(parsing.image_part(part.get("image_url"), f"{path}.image_url"))
            case kind:
                raise InvalidRequest(f"This model does not support parts of type {kind!r}", param=path)
    return tuple(parts)


def render(answer: ChatResponse, chat_call: ChatCall, request_id: str) -> bytes:
    writer = ResponseEventWriter(request_id, answer.model or chat_call.model, chat_call)
    writer.add_searches()
    for part in answer.parts:
        match part:
            case TextPart():
                writer.add_text(part.text)
            case ReasoningPart():
                writer.add_reasoning(part.text)
                if part.signature:
                    writer.set_signature(part.signature)
            case ToolCall():
                number = len(writer.output)
                writer.begin_call(ToolCallStart(number, part.id, part.name))
                writer.add_arguments(ToolCallDelta(number, part.arguments))
    writer.close()
    return _encode(writer.response(MessageEnd(answer.stop, answer.usage)))


async def render_stream(
    events: AsyncIterator[Event], chat_call: ChatCall, request_id: str
) -> AsyncGenerator[bytes]:
    """Yield the events of a response; an error becomes a `response.failed` event, which some agents need."""
    writer = ResponseEventWriter(request_id, chat_call.model, chat_call)
    yield writer.begin() + writer.add_searches()
    try:
        async for event in events:
            yield render_event(writer, event)
    except SixfoldError as error:
        yield writer.fail(error_fields(error))


def render_event(writer: ResponseEventWriter, event: Event) -> bytes:
    """Return the events of the API for an event of a model."""
    match event:
        case TextDelta():
            return writer.add_text(event.text)
        case ReasoningDelta():
            output = writer.add_reasoning(event.text) if event.text else b""
            return output + (writer.set_signature(event.signature) if event.signature else b"")
        case ToolCallStart():
            return writer.begin_call(event)
        case ToolCallDelta():
            return writer.add_arguments(event)
        case MessageEnd():
            return writer.close() + writer.end(event)


def error_fields(error: SixfoldError) -> dict[str, Any]:
    """Return the fields of the event that reports an error."""
    body = openai_errors.document(error)["error"]
    return {"code": body["code"], "message": body["message"], "param": body["param"]}


def render_error(error: SixfoldError, _request_id: str) -> bytes:
    """Return the error event of a response that had not begun or that the server rendered itself."""
    event = {"type": "error", **error_fields(error), "sequence_number": 0}
    return b"event: error\ndata: " + _encode(event) + b"\n\n"


# No server speaks this protocol, so that all responses with a tool of this server are rendered here.
TOOL_DIALECT = ResponseDialect(
    "responses_with_tools", openai_errors.dialect, parse, render, render_stream, render_error
)
DIALECT = ResponseDialect("responses", openai_errors.dialect, parse, render, render_stream, render_error)
