"""Ollama's responses: complete, or streamed as one JSON object per line.

Source: https://docs.ollama.com/api (chat, generate, usage, streaming, errors).
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypedDict

import msgspec
from starlette.responses import Response

from sixfold.api.gateway.chat_handler import ChatCall, ResponseDialect
from sixfold.api.gateway.ollama import requests
from sixfold.core.clock import rfc3339
from sixfold.core.gateway.chat import (
    ChatRequest,
    ChatResponse,
    Event,
    MessageEnd,
    ReasoningDelta,
    ReasoningPart,
    Stop,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    as_json,
)
from sixfold.core.gateway.pricing.usage import TokenUsage
from sixfold.errors import SixfoldError
from sixfold.web import responses

LINES = "application/x-ndjson"
_STOPS: Mapping[Stop, str] = {
    "end": "stop",
    "sequence": "stop",
    "length": "length",
    "tool": "stop",
    "filter": "stop",
}
_encode = msgspec.json.Encoder().encode
# Returns the fields of a response with this text, reasoning and tool calls.
Fields = Callable[[str, str, Sequence[ToolCall]], Mapping[str, Any]]


class OllamaErrorSchema(TypedDict):
    """An error of Ollama's API."""

    error: str


def error(problem: SixfoldError, _request_id: str) -> Response:
    body: OllamaErrorSchema = {"error": problem.message}
    return responses.json(body, problem.status, responses.error_headers(problem))


def now() -> str:
    """Return the current time as Ollama writes it."""
    return rfc3339(time.time_ns() // 1000)


def nanoseconds(start: float, end: float) -> int:
    """Return a duration between two values of `time.perf_counter`."""
    return int((end - start) * 1_000_000_000)


def chat_fields(text: str, thinking: str, calls: Sequence[ToolCall]) -> Mapping[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if thinking:
        message["thinking"] = thinking
    if calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "function": {"index": index, "name": call.name, "arguments": _object(call.arguments)},
            }
            for index, call in enumerate(calls)
        ]
    return {"message": message}


def generate_fields(text: str, thinking: str, _calls: Sequence[ToolCall]) -> Mapping[str, Any]:
    return {"response": text, "thinking": thinking} if thinking else {"response": text}


def _object(text: str) -> Any:
    value = as_json(text or "{}")
    return {"arguments": text} if value is None else value


def _head(call: ChatCall) -> dict[str, Any]:
    return {"model": call.echo()["model"], "created_at": now()}


def _tail(call: ChatCall, stop: Stop, usage: TokenUsage, first_at: float | None) -> dict[str, Any]:
    """Return the final fields of a response; the duration of the prompt is only known for streams."""
    ended_at = time.perf_counter()
    durations = {"total_duration": nanoseconds(call.started_at, ended_at)}
    if first_at is not None:
        durations["prompt_eval_duration"] = nanoseconds(call.started_at, first_at)
        durations["eval_duration"] = nanoseconds(first_at, ended_at)
    counts = {"prompt_eval_count": usage.input, "eval_count": usage.output}
    return {"done": True, "done_reason": _STOPS[stop], **durations, **counts}


def load_response(call: ChatCall, fields: Fields) -> bytes:
    """Return the response to a request without a prompt, which Ollama's clients send to load a model."""
    return _encode({**_head(call), **fields("", "", ()), "done": True, "done_reason": "load"})


def complete_response(call: ChatCall, text: str, stop: Stop, usage: TokenUsage) -> bytes:
    """Encode a complete response as one object, or as two lines if the client requested a stream."""
    tail = _tail(call, stop, usage, None)
    if not call.stream:
        return _encode({**_head(call), **generate_fields(text, "", ()), **tail})
    line = _StreamLines(generate_fields, call).line(text)
    return line + _encode({**_head(call), **generate_fields("", "", ()), **tail}) + b"\n"


class _StreamLines:
    def __init__(self, fields: Fields, call: ChatCall) -> None:
        self._fields = fields
        self._call = call
        self._thinks = bool(call.echo()["thinking"])
        self._first_at: float | None = None
        self._calls: dict[int, tuple[str, str, list[str]]] = {}

    def line(self, text: str, thinking: str = "", calls: Sequence[ToolCall] = ()) -> bytes:
        content = self._fields(text, thinking, calls)
        return _encode({**_head(self._call), **content, "done": False}) + b"\n"

    def of(self, event: Event) -> bytes:
        """Return the lines of an event, which may be empty."""
        self._first_at = self._first_at or time.perf_counter()
        match event:
            case TextDelta():
                return self.line(event.text)
            case ReasoningDelta():
                return self.line("", event.text) if event.text and self._thinks else b""
            case ToolCallStart():
                self._calls[event.number] = (event.id, event.name, [])
            case ToolCallDelta() if event.number in self._calls:
                self._calls[event.number][2].append(event.text)
            case MessageEnd():
                return self._end(event)
            case _:
                pass
        return b""

    def _end(self, event: MessageEnd) -> bytes:
        calls = [ToolCall(call_id, name, "".join(parts)) for call_id, name, parts in self._calls.values()]
        tail = _tail(self._call, event.stop, event.usage, self._first_at)
        end = _encode({**_head(self._call), **self._fields("", "", ()), **tail}) + b"\n"
        return (self.line("", "", calls) if calls else b"") + end


def _dialect(fields: Fields, parse: Callable[[bytes], ChatCall]) -> ResponseDialect:
    def render(answer: ChatResponse, call: ChatCall, _request_id: str) -> bytes:
        thinking = "".join(part.text for part in answer.parts if isinstance(part, ReasoningPart))
        content = fields(answer.text, thinking if call.echo()["thinking"] else "", answer.calls)
        return _encode({**_head(call), **content, **_tail(call, answer.stop, answer.usage, None)})

    async def render_stream(
        events: AsyncIterator[Event], call: ChatCall, _request_id: str
    ) -> AsyncGenerator[bytes]:
        lines = _StreamLines(fields, call)
        async for event in events:
            if output := lines.of(event):
                yield output

    def keep_alive(call: ChatCall) -> bytes:
        return _StreamLines(fields, call).line("")

    def render_error(problem: SixfoldError, _request_id: str) -> bytes:
        return _encode({"error": problem.message}) + b"\n"

    def parse_request(raw: bytes) -> ChatRequest:
        return parse(raw).parse()

    return ResponseDialect(
        "ollama", error, parse_request, render, render_stream, render_error, keep_alive, LINES
    )


CHAT = _dialect(chat_fields, requests.parse_chat)
GENERATE = _dialect(generate_fields, requests.parse_generate)
