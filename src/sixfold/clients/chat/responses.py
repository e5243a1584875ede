"""OpenAI's Responses API: requests are passed on, and responses are only scanned for usage.

Source: https://platform.openai.com/docs/api-reference/responses and …/responses-streaming.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sixfold.clients.chat import sse
from sixfold.clients.chat.rejections import parse_rejection
from sixfold.core.gateway.chat import ChatRequest, ChatResponse, Event
from sixfold.core.gateway.ports import UpstreamRejection, WireProtocol
from sixfold.core.gateway.routing import remove_routing_fields
from sixfold.core.gateway.usage import TokenUsage, parse_token_count

_encode = msgspec.json.Encoder().encode
_raws = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_ENDS = frozenset({"response.completed", "response.incomplete"})


class _ResponsesDetails(msgspec.Struct):
    cached_tokens: Any = None
    reasoning_tokens: Any = None


class _ResponsesUsage(msgspec.Struct):
    input_tokens: Any = 0
    output_tokens: Any = 0
    input_tokens_details: _ResponsesDetails | None = None
    output_tokens_details: _ResponsesDetails | None = None

    def read(self) -> TokenUsage:
        inputs, outputs = (
            self.input_tokens_details or _ResponsesDetails(),
            self.output_tokens_details or _ResponsesDetails(),
        )
        return TokenUsage(
            input=parse_token_count(self.input_tokens) or 0,
            output=parse_token_count(self.output_tokens) or 0,
            cached=parse_token_count(inputs.cached_tokens) or 0,
            reasoning=parse_token_count(outputs.reasoning_tokens) or 0,
        )


class _Response(msgspec.Struct):
    object: str = ""
    usage: _ResponsesUsage | None = None
    output: list[msgspec.Raw] | None = None
    error: Any = None


class _StreamEvent(msgspec.Struct):
    type: str = ""
    delta: Any = None
    response: _Response | None = None


_read = msgspec.json.Decoder(_Response).decode
_event = msgspec.json.Decoder(_StreamEvent).decode


class ResponsesProtocol(WireProtocol):
    """`POST /responses`."""

    name = "responses"
    path = "/responses"

    def rewrite_request(self, body: bytes, model: str) -> bytes:
        fields = remove_routing_fields(_raws(body))
        fields["model"] = msgspec.Raw(_encode(model))
        return _encode(fields)

    def build_request(self, chat: ChatRequest, model: str, *, stream: bool) -> bytes:
        """Raise `NotImplementedError`: other protocols are translated to chat completions."""
        raise NotImplementedError

    def parse_response(self, body: bytes, chat: ChatRequest) -> ChatResponse:
        raise NotImplementedError

    def usage(self, body: bytes) -> tuple[TokenUsage | None, int]:
        try:
            response = _read(body)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise ValueError("the response is not valid JSON") from error
        if response.output is None:
            raise ValueError("the response has no output")
        return response.usage.read() if response.usage is not None else None, sum(
            map(len, map(bytes, response.output))
        )

    def parse_error(self, body: bytes) -> UpstreamRejection:
        return parse_rejection(body)

    def scanner(self) -> ResponsesParser:
        return ResponsesParser()

    def stream_parser(self, chat: ChatRequest) -> ResponsesParser:
        raise NotImplementedError


class ResponsesParser:
    """Scans the events of a response."""

    def __init__(self) -> None:
        self.usage: TokenUsage | None = None
        self.chars = 0
        self.complete = False
        self.error = ""
        self._splitter = sse.EventSplitter()

    def forward(self, block: bytes, *, keep_usage: bool) -> bytes:
        events = self._splitter.feed(block)[0] if block else self._splitter.flush()
        for data in sse.data(events):
            self._scan_event(data)
        return events

    def events(self, block: bytes) -> Sequence[Event]:
        raise NotImplementedError

    def end(self) -> Event:
        raise NotImplementedError

    def _scan_event(self, data: bytes) -> None:
        try:
            event = _event(data)
        except (msgspec.MsgspecError, UnicodeError):
            return
        if event.type.endswith(".delta") and isinstance(event.delta, str):
            self.chars += len(event.delta)
        elif event.type in _ENDS:
            self.complete = True
            if event.response is not None and event.response.usage is not None:
                self.usage = event.response.usage.read()
        elif event.type in ("error", "response.failed"):
            self.error = "The model server failed"
