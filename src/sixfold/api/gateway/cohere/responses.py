"""Cohere's chat responses: complete, as server-sent events, and as lines in the first version.

Sources: https://docs.cohere.com/reference/chat-stream and https://docs.cohere.com/v1/reference/chat-stream.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from typing import Any, NotRequired, TypedDict

from sixfold.api.gateway import rerank
from sixfold.api.gateway.chat_handler import ChatCall, ResponseDialect
from sixfold.api.gateway.cohere import requests
from sixfold.api.gateway.openai import parsing
from sixfold.core.gateway.chat import (
    ChatResponse,
    Event,
    MessageEnd,
    ReasoningDelta,
    ReasoningPart,
    Stop,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from sixfold.core.gateway.pricing.usage import TokenUsage
from sixfold.errors import SixfoldError

_LINES = "application/stream+json"
_STOPS: Mapping[Stop, str] = {
    "end": "COMPLETE",
    "sequence": "STOP_SEQUENCE",
    "length": "MAX_TOKENS",
    "tool": "TOOL_CALL",
    "filter": "ERROR_TOXIC",
}
# The endpoints of Cohere's API by the capability of a model.
_ENDPOINTS: Mapping[str, str] = {"chat": "chat", "embeddings": "embed", "rerank": "rerank"}
_encode = parsing.encode


class CohereMessageSchema(TypedDict):
    """The message of the model."""

    role: str
    content: NotRequired[list[dict[str, str]]]
    tool_calls: NotRequired[list[dict[str, Any]]]


class CohereChatSchema(TypedDict):
    """A response of the second version."""

    id: str
    finish_reason: str
    message: CohereMessageSchema
    usage: dict[str, dict[str, int]]


class CohereTextSchema(TypedDict):
    """A response of the first version."""

    response_id: str
    generation_id: str
    text: str
    finish_reason: str
    chat_history: list[dict[str, str]]
    meta: dict[str, Any]


def models(rows: Iterable[Mapping[str, Any]], endpoint: str | None) -> list[dict[str, Any]]:
    """Return rows of `/v1/models` in Cohere's format; with `endpoint`, only models that have it."""
    results: list[dict[str, Any]] = []
    for row in rows:
        endpoints = [_ENDPOINTS[name] for name in row.get("capabilities", ()) if name in _ENDPOINTS]
        if endpoint is None or endpoint in endpoints:
            context = row.get("context_length")
            results.append({"name": row["id"], "endpoints": endpoints, "context_length": context})
    return results


def _usage(tokens: TokenUsage) -> dict[str, dict[str, int]]:
    counts = {"input_tokens": tokens.input, "output_tokens": tokens.output}
    return {"billed_units": counts, "tokens": counts}


def _finish_reason(stop: Stop) -> str:
    # The second version has no reason for filtered content.
    return "ERROR" if stop == "filter" else _STOPS[stop]


def _render_second(answer: ChatResponse, _call: ChatCall, request_id: str) -> bytes:
    thinking = "".join(part.text for part in answer.parts if isinstance(part, ReasoningPart))
    content = [{"type": "thinking", "thinking": thinking}] if thinking else []
    if answer.text or not answer.calls:
        content.append({"type": "text", "text": answer.text})
    message: CohereMessageSchema = {"role": "assistant"}
    if content:
        message["content"] = content
    if answer.calls:
        message["tool_calls"] = [_tool_call(call.id, call.name, call.arguments) for call in answer.calls]
    document: CohereChatSchema = {
        "id": request_id,
        "finish_reason": _finish_reason(answer.stop),
        "message": message,
        "usage": _usage(answer.usage),
    }
    return _encode(document)


def _tool_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _event(kind: str, **fields: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + _encode({"type": kind, **fields}) + b"\n\n"


class _SecondEvents:
    """Numbers the contents and the tool calls, and ends each before the next begins."""

    def __init__(self) -> None:
        self._contents = 0
        # The kind of the open content, `text` or `thinking`, and the number of the open call.
        self._open = ""
        self._open_call: int | None = None

    def of(self, event: Event) -> bytes:
        """Return the events, which may be empty."""
        match event:
            case TextDelta():
                return self._content("text", event.text)
            case ReasoningDelta():
                return self._content("thinking", event.text)
            case ToolCallStart():
                closed, self._open_call = self.close(), event.number
                call = _tool_call(event.id, event.name, "")
                return closed + _event("tool-call-start", index=event.number, **_delta(tool_calls=call))
            case ToolCallDelta():
                call = {"function": {"arguments": event.text}}
                return _event("tool-call-delta", index=event.number, **_delta(tool_calls=call))
            case MessageEnd():
                delta = {"finish_reason": _finish_reason(event.stop), "usage": _usage(event.usage)}
                return self.close() + _event("message-end", delta=delta)

    def _content(self, kind: str, text: str) -> bytes:
        if not text:
            return b""
        start = b""
        if self._open != kind:
            start = self.close()
            self._open = kind
            content = {"type": kind, kind: ""}
            start += _event("content-start", index=self._contents, **_delta(content=content))
        return start + _event("content-delta", index=self._contents, **_delta(content={kind: text}))

    def close(self) -> bytes:
        """Return the end of the open content or call."""
        ends = b""
        if self._open:
            ends = _event("content-end", index=self._contents)
            self._open, self._contents = "", self._contents + 1
        if self._open_call is not None:
            ends += _event("tool-call-end", index=self._open_call)
            self._open_call = None
        return ends


def _delta(**message: Any) -> dict[str, Any]:
    return {"delta": {"message": message}}


async def _stream_second(
    events: AsyncIterator[Event], _call: ChatCall, request_id: str
) -> AsyncGenerator[bytes]:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": [],
        "tool_plan": "",
        "tool_calls": [],
        "citations": [],
    }
    yield _event("message-start", id=request_id, delta={"message": message})
    writer = _SecondEvents()
    async for event in events:
        if output := writer.of(event):
            yield output
    yield b"data: [DONE]\n\n"


def _error_second(problem: SixfoldError, _request_id: str) -> bytes:
    return _event("message-end", delta={"finish_reason": "ERROR", "error": problem.message})


def _first_document(
    text: str, stop: Stop, usage: TokenUsage, call: ChatCall, request_id: str
) -> CohereTextSchema:
    history = [*call.echo()["chat_history"], {"role": "CHATBOT", "message": text}]
    return {
        "response_id": request_id,
        "generation_id": request_id,
        "text": text,
        "finish_reason": _STOPS[stop],
        "chat_history": history,
        "meta": {"api_version": {"version": "1"}, **_usage(usage)},
    }


def _render_first(answer: ChatResponse, call: ChatCall, request_id: str) -> bytes:
    return _encode(_first_document(answer.text, answer.stop, answer.usage, call, request_id))


def _line(kind: str, **fields: Any) -> bytes:
    return _encode({"is_finished": kind == "stream-end", "event_type": kind, **fields}) + b"\n"


async def _stream_first(
    events: AsyncIterator[Event], call: ChatCall, request_id: str
) -> AsyncGenerator[bytes]:
    yield _line("stream-start", generation_id=request_id)
    texts: list[str] = []
    async for event in events:
        match event:
            case TextDelta() if event.text:
                texts.append(event.text)
                yield _line("text-generation", text=event.text)
            case MessageEnd():
                document = _first_document("".join(texts), event.stop, event.usage, call, request_id)
                yield _line("stream-end", finish_reason=document["finish_reason"], response=document)
            case _:
                pass


def _error_first(problem: SixfoldError, _request_id: str) -> bytes:
    return _line("stream-end", finish_reason="ERROR", error=problem.message)


# No server gets these requests unchanged, so that all responses are rendered here.
SECOND = ResponseDialect(
    "cohere", rerank.error_format, requests.parse, _render_second, _stream_second, _error_second
)
FIRST = ResponseDialect(
    "cohere",
    rerank.error_format,
    requests.parse,
    _render_first,
    _stream_first,
    _error_first,
    lambda _call: _line("text-generation", text=""),
    _LINES,
)
