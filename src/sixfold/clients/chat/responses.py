"""OpenAI's Responses API: requests are forwarded, and responses are only scanned for usage.

Source: https://platform.openai.com/docs/api-reference/responses and …/responses-streaming.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from sixfold.clients.chat import sse
from sixfold.clients.chat.rejections import parse_rejection
from sixfold.core.gateway.chat import ChatRequest, ChatResponse, Event
from sixfold.core.gateway.ports import COMPACTION, UpstreamRejection, WireProtocol
from sixfold.core.gateway.pricing.usage import TokenUsage, Units, parse_token_count, parse_totals, uncounted
from sixfold.core.gateway.requirements import provider_tools
from sixfold.core.gateway.routing import remove_routing_fields

_encode = msgspec.json.Encoder().encode
_raws = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_ENDS = frozenset({"response.completed", "response.incomplete"})
# Containers of one response whose ids are kept, and the characters of an id; further containers do not count.
_MAX_CONTAINERS, _MAX_ID_CHARS = 1_000, 200


class _ResponsesDetails(msgspec.Struct):
    cached_tokens: Any = None
    reasoning_tokens: Any = None


class _ResponsesUsage(msgspec.Struct):
    input_tokens: Any = 0
    output_tokens: Any = 0
    input_tokens_details: _ResponsesDetails | None = None
    output_tokens_details: _ResponsesDetails | None = None

    def read(self) -> TokenUsage | None:
        totals = parse_totals(self.input_tokens, self.output_tokens)
        if totals is None:
            return None
        inputs, outputs = (
            self.input_tokens_details or _ResponsesDetails(),
            self.output_tokens_details or _ResponsesDetails(),
        )
        return TokenUsage(
            input=totals[0],
            output=totals[1],
            cached=parse_token_count(inputs.cached_tokens) or 0,
            reasoning=parse_token_count(outputs.reasoning_tokens) or 0,
        )


class _OutputItem(msgspec.Struct):
    """An item of the output; calls of tools that are billed by use are counted."""

    type: Any = None
    action: Any = None
    container_id: Any = None
    environment: Any = None

    @property
    def container(self) -> str:
        """The id of the container that ran code."""
        place = self.environment
        container_id = cast("dict[str, Any]", place).get("container_id") if isinstance(place, dict) else None
        return str(container_id or self.container_id or "")[:_MAX_ID_CHARS]

    @property
    def is_search(self) -> bool:
        """Whether a web search call is a search; opening a page is free of charge."""
        action = self.action
        kind = cast("dict[str, Any]", action).get("type") if isinstance(action, dict) else None
        return kind in (None, "search")

    def units(self) -> Units | None:
        match self.type:
            case "web_search_call" if self.is_search:
                return Units(web_searches=1)
            case "file_search_call":
                return Units(file_searches=1)
            case "code_interpreter_call":
                return Units(code_containers=1)
            case "shell_call" if self.container:
                return Units(code_containers=1)
            case _:
                return None


class _Response(msgspec.Struct):
    object: str = ""
    usage: _ResponsesUsage | None = None
    output: list[msgspec.Raw] | None = None
    status: Any = None
    error: Any = None


class _StreamEvent(msgspec.Struct):
    type: str = ""
    delta: Any = None
    response: _Response | None = None
    item: msgspec.Raw = msgspec.Raw()


_item = msgspec.json.Decoder(_OutputItem).decode
_read = msgspec.json.Decoder(_Response).decode
_event = msgspec.json.Decoder(_StreamEvent).decode


class ResponsesProtocol(WireProtocol):
    """The protocol of `POST /responses`, whose requests are forwarded."""

    name = "responses"
    path = "/responses"

    def rewrite_request(self, body: bytes, model: str) -> bytes:
        fields = remove_routing_fields(_raws(body))
        fields["model"] = msgspec.Raw(_encode(model))
        provider_tools.limit_responses(fields)
        return _encode(fields)

    def build_request(self, chat: ChatRequest, model: str, *, stream: bool) -> bytes:
        """Raise `NotImplementedError`: other protocols are translated to chat completions."""
        raise NotImplementedError

    def parse_response(self, body: bytes, chat: ChatRequest) -> ChatResponse:
        raise NotImplementedError

    def usage(self, body: bytes) -> tuple[TokenUsage | None, int]:
        try:
            response = _read(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ValueError("the response is not valid JSON") from error
        if response.output is None:
            raise ValueError("the response has no output")
        if response.status == "failed" or response.error is not None:
            # The caller gets the server's error, and is not charged, as in a stream.
            return TokenUsage(), 0
        return _usage(response), sum(map(len, map(bytes, response.output)))

    def parse_error(self, body: bytes) -> UpstreamRejection:
        return parse_rejection(body)

    def scanner(self) -> ResponsesParser:
        return ResponsesParser()

    def stream_parser(self, chat: ChatRequest) -> ResponsesParser:
        raise NotImplementedError


class ResponseCompaction(ResponsesProtocol):
    """The protocol of `POST /responses/compact`, which is never streamed and does not run tools."""

    name = COMPACTION
    path = "/responses/compact"

    def rewrite_request(self, body: bytes, model: str) -> bytes:
        fields = remove_routing_fields(_raws(body))
        fields["model"] = msgspec.Raw(_encode(model))
        return _encode(fields)


def _usage(response: _Response) -> TokenUsage | None:
    units = _units(response.output or ())
    usage = None if response.usage is None else response.usage.read()
    return uncounted(units) if usage is None else msgspec.structs.replace(usage, units=units)


def _units(items: Iterable[msgspec.Raw]) -> Units | None:
    """Return the uses of tools in the output."""
    uses = _ToolUses()
    for item in items:
        uses.add(item)
    return uses.units


class _ToolUses:
    """Counts the uses of tools in items of the output; the calls of an interpreter share their container."""

    def __init__(self) -> None:
        self.units: Units | None = None
        self._containers: set[str] = set()

    def add(self, item: msgspec.Raw) -> None:
        # Most items are long messages.
        if b'_call"' not in bytes(item):
            return
        try:
            call = _item(item)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return
        units = call.units()
        if units is None:
            return
        if units.code_containers:
            if call.container in self._containers or len(self._containers) >= _MAX_CONTAINERS:
                return
            self._containers.add(call.container)
        earlier = msgspec.structs.astuple(self.units or Units())
        self.units = Units(*map(sum, zip(earlier, msgspec.structs.astuple(units), strict=True)))


class ResponsesParser:
    """Scans the events of a response for usage."""

    def __init__(self) -> None:
        self._reported: TokenUsage | None = None
        self._uses = _ToolUses()
        self.chars = 0
        self.complete = False
        self.error = ""
        self._splitter = sse.EventSplitter()

    @property
    def usage(self) -> TokenUsage | None:
        """The reported usage; before the end, the uses of tools so far."""
        if self._reported is not None:
            return self._reported
        return uncounted(self._uses.units)

    @property
    def buffered(self) -> int:
        return self._splitter.size

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
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return
        if event.type.endswith(".delta") and isinstance(event.delta, str):
            self.chars += len(event.delta)
        elif event.type in _ENDS:
            self.complete = True
            self._reported = None if event.response is None else _usage(event.response)
        elif event.type == "response.output_item.done":
            self._uses.add(event.item)
        elif event.type in ("error", "response.failed"):
            self.error = "The model server failed"
