"""OpenAI's chat completions, which most other model servers support.

Source: https://platform.openai.com/docs/api-reference/chat (fields, streaming, `stream_options`, usage).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from sixfold.clients.chat import sse
from sixfold.clients.chat.rejections import is_error, parse_rejection
from sixfold.clients.chat.request_fields import FieldNames, user_name
from sixfold.core.gateway.chat import (
    REASONING_FIELDS,
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
)
from sixfold.core.gateway.ports import UpstreamRejection, WireProtocol
from sixfold.core.gateway.pricing import usage as token_usage
from sixfold.core.gateway.pricing.usage import NOTHING, TokenUsage
from sixfold.core.gateway.routing import remove_routing_fields
from sixfold.core.input_limits import json_decoding

_encode = msgspec.json.Encoder().encode
_raws = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_any = json_decoding.decode_whole
_USAGE = re.compile(rb'"usage":\s*\{')
# Quotes in a JSON string are escaped, so neither matches in a message; `re` finds a literal prefix quickly.
_NULL_USAGE = re.compile(rb',\s*"usage":\s*null(?=\s*[,}])')
_FIRST_NULL_USAGE = re.compile(rb'\{"usage":\s*null\s*,\s*')
_STOPS: dict[str, Stop] = {"stop": "end", "length": "length", "tool_calls": "tool", "function_call": "tool"}
_STOPS |= {"content_filter": "filter", "model_length": "length"}
_TRUE, _WITH_USAGE = msgspec.Raw(b"true"), msgspec.Raw(b'{"include_usage":true}')


class _CompletionsDetails(msgspec.Struct):
    cached_tokens: Any = None
    cache_write_tokens: Any = None
    audio_tokens: Any = None
    image_tokens: Any = None
    reasoning_tokens: Any = None


class _CompletionsUsage(msgspec.Struct):
    """The reported usage; servers may send values of any type."""

    prompt_tokens: Any = None
    completion_tokens: Any = None
    prompt_tokens_details: _CompletionsDetails | None = None
    completion_tokens_details: _CompletionsDetails | None = None
    # Fields of DeepSeek (cached tokens) and OpenRouter (the charge in USD).
    prompt_cache_hit_tokens: Any = None
    cost: Any = None

    def read(self) -> TokenUsage | None:
        """Return the usage, or None if the main counts are missing or invalid."""
        totals = token_usage.parse_totals(self.prompt_tokens, self.completion_tokens)
        if totals is None:
            return None
        inputs = self.prompt_tokens_details or _CompletionsDetails()
        outputs = self.completion_tokens_details or _CompletionsDetails()
        return TokenUsage(
            input=totals[0],
            output=totals[1],
            cached=token_usage.parse_token_count(inputs.cached_tokens or self.prompt_cache_hit_tokens) or 0,
            cache_write=token_usage.parse_token_count(inputs.cache_write_tokens) or 0,
            image_in=token_usage.parse_token_count(inputs.image_tokens) or 0,
            audio_in=token_usage.parse_token_count(inputs.audio_tokens) or 0,
            audio_out=token_usage.parse_token_count(outputs.audio_tokens) or 0,
            reasoning=token_usage.parse_token_count(outputs.reasoning_tokens) or 0,
            billed_micros=token_usage.parse_micros(self.cost),
        )


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None

    @property
    def arguments_text(self) -> str:
        """The arguments as JSON text; some servers send an object."""
        if isinstance(self.arguments, str):
            return self.arguments
        return "" if self.arguments is None else _encode(self.arguments).decode()


class _ToolCall(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _MessageText(msgspec.Struct):
    """The content of a message or of a delta."""

    content: Any = None
    reasoning_content: str | None = None
    reasoning: Any = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None
    # The call of a function in OpenAI's older API, and the media of servers that generate them.
    function_call: Any = None
    audio: Any = None
    images: Any = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            parts = cast("list[Any]", self.content)
            return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
        return self.content if isinstance(self.content, str) else self.refusal or ""

    @property
    def reasoning_text(self) -> str:
        return self.reasoning_content or (self.reasoning if isinstance(self.reasoning, str) else "")

    @property
    def field(self) -> str:
        """Name of the field that contains the reasoning."""
        return REASONING_FIELDS[0] if self.reasoning_content else REASONING_FIELDS[1]

    @property
    def chars(self) -> int:
        """Length of the text, the reasoning, the tool arguments and the media in characters."""
        calls = [call.function for call in self.tool_calls or ()]
        argument_chars = sum(len(call.arguments_text) for call in calls if call is not None)
        other_chars = sse.other_chars(self.function_call, self.audio, self.images)
        return len(self.text) + len(self.reasoning_text) + argument_chars + other_chars


class _CompletionChoice(msgspec.Struct):
    message: _MessageText | None = None
    delta: _MessageText | None = None
    # Set only in text completions.
    text: str | None = None
    finish_reason: str | None = None

    @property
    def chars(self) -> int:
        """Length of the choice, or of its next piece, in characters."""
        part = self.message or self.delta
        return part.chars if part is not None else len(self.text or "")


class _CompletionsDocument(msgspec.Struct):
    id: str | None = None
    model: str | None = None
    choices: list[_CompletionChoice] | None = None
    usage: _CompletionsUsage | None = None
    error: Any = None


class _TokenCounts(msgspec.Struct):
    choices: list[msgspec.Raw] | None = None
    usage: _CompletionsUsage | None = None


read_document = msgspec.json.Decoder(_CompletionsDocument).decode
_count = msgspec.json.Decoder(_TokenCounts).decode


class Completions(WireProtocol):
    """The protocol of `POST /chat/completions`; `limit` is the server's field for the maximum output tokens.

    `names` maps request fields to the provider's names for them.
    """

    name = "chat"
    path = "/chat/completions"

    def __init__(self, limit: str = "max_tokens", names: Mapping[str, str] | None = None) -> None:
        self._limit = limit
        self._names = FieldNames(names or {})

    def rewrite_request(self, body: bytes, model: str) -> bytes:
        """Return the request with the server's model name; a stream must report its usage."""
        fields = remove_routing_fields(_raws(body))
        fields["model"] = msgspec.Raw(_encode(model))
        if fields.get("stream") == _TRUE:
            stream_options = fields.get("stream_options")
            options = (
                _raws(stream_options)
                if stream_options is not None and bytes(stream_options) != b"null"
                else {}
            )
            fields["stream_options"] = (
                msgspec.Raw(_encode({**options, "include_usage": True})) if options else _WITH_USAGE
            )
        return self._names.adapt(_encode(fields))

    def build_request(self, chat: ChatRequest, model: str, *, stream: bool) -> bytes:
        fields: dict[str, Any] = {"model": model, "messages": _messages(chat)}
        if stream:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        if chat.tools:
            fields["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": tool.schema,
                    },
                }
                for tool in chat.tools
            ]
            has_name = chat.choice.startswith("=")
            function = {"type": "function", "function": {"name": chat.choice[1:]}}
            fields["tool_choice"] = function if has_name else chat.choice
        optional: dict[str, Any] = {
            self._limit: chat.max_tokens,
            "temperature": chat.temperature,
            "top_p": chat.top_p,
            "stop": list(chat.stop) or None,
            "parallel_tool_calls": chat.parallel if chat.tools else None,
            "reasoning_effort": chat.effort or None,
            "user": user_name(chat.user),
            "response_format": _format(chat),
            "seed": chat.seed,
            "presence_penalty": chat.presence_penalty,
            "frequency_penalty": chat.frequency_penalty,
        }
        fields |= {name: value for name, value in optional.items() if value is not None}
        return self._names.adapt(_encode(fields))

    def usage(self, body: bytes) -> tuple[TokenUsage | None, int]:
        if b'"error"' in body and is_error(body):
            raise ValueError("the response is an error")
        usage = _reported_usage(body)
        if usage is not None:
            return usage, 0
        choices = _document(body).choices or ()
        return None, sum(choice.chars for choice in choices)

    def parse_response(self, body: bytes, chat: ChatRequest) -> ChatResponse:
        document = _document(body)
        choice = document.choices[0] if document.choices else _CompletionChoice()
        message = choice.message or _MessageText()
        parts: list[TextPart | ToolCall | ReasoningPart] = (
            [ReasoningPart(message.reasoning_text, message.field)] if message.reasoning_text else []
        )
        if message.text:
            parts.append(TextPart(message.text))
        for call in message.tool_calls or []:
            function = call.function or _Function()
            parts.append(ToolCall(call.id or "", function.name or "", function.arguments_text or "{}"))
        stop = _stop_reason(
            _STOPS.get(choice.finish_reason or "stop", "end"), has_calls=bool(message.tool_calls)
        )
        usage = document.usage.read() if document.usage is not None else None
        return ChatResponse(document.id or "", document.model or "", tuple(parts), stop, usage or NOTHING)

    def parse_error(self, body: bytes) -> UpstreamRejection:
        return parse_rejection(body)

    def scanner(self) -> CompletionsParser:
        return CompletionsParser()

    def stream_parser(self, chat: ChatRequest) -> CompletionsParser:
        return CompletionsParser()


class CompletionsParser:
    """Parses the `data:` lines of chat completion chunks."""

    def __init__(self) -> None:
        self.usage: TokenUsage | None = None
        self.chars = 0
        self.complete = False
        self.error = ""
        self._stop: Stop = "end"
        self._has_chunks = False
        self._splitter = sse.EventSplitter()
        # The number and the ID of the latest tool call of each index.
        self._calls: dict[int, tuple[int, str]] = {}
        self._call_count = 0
        # The name of the field in which incomplete reasoning arrives.
        self._reasoning_field = ""

    @property
    def buffered(self) -> int:
        return self._splitter.size

    def forward(self, block: bytes, *, keep_usage: bool) -> bytes:
        """Return complete events, without usage unless `keep_usage` is set."""
        events = self._splitter.feed(block)[0] if block else self._splitter.flush()
        if not events:
            return b""
        chunk = None
        for data in sse.data(events):
            if data == b"[DONE]":
                self.complete = self.complete or self._has_chunks
            else:
                chunk = self._parse_chunk(data)
        if keep_usage or chunk is None or b'"usage"' not in events:
            return events
        return _without_usage(_FIRST_NULL_USAGE.sub(b"{", _NULL_USAGE.sub(b"", events)))

    def events(self, block: bytes) -> Sequence[Event]:
        events: list[Event] = []
        for data in sse.data(self._splitter.feed(block)[0] if block else self._splitter.flush()):
            if data == b"[DONE]":
                self.complete = self.complete or self._has_chunks
                continue
            chunk = self._parse_chunk(data)
            if chunk is not None and chunk.choices and chunk.choices[0].delta is not None:
                events += self._delta_events(chunk.choices[0].delta)
        return events

    def end(self) -> MessageEnd:
        return MessageEnd(_stop_reason(self._stop, has_calls=bool(self._calls)), self.usage or NOTHING)

    def _parse_chunk(self, data: bytes) -> _CompletionsDocument | None:
        self._has_chunks = True
        try:
            chunk = read_document(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        if chunk.error is not None:
            self.error = f"The model server failed: {parse_rejection(data).message[:200]}"
        if chunk.usage is not None:
            self.usage = chunk.usage.read() or self.usage
        for choice in chunk.choices or ():
            self.chars += choice.chars
            if choice.finish_reason:
                self.complete = True
                self._stop = _STOPS.get(choice.finish_reason, "end")
        return chunk

    def _delta_events(self, delta: _MessageText) -> list[Event]:
        events: list[Event] = []
        if delta.reasoning_text:
            self._reasoning_field = delta.field
            events.append(ReasoningDelta(delta.reasoning_text))
        elif self._reasoning_field and (delta.text or delta.tool_calls):
            events.append(ReasoningDelta("", self._reasoning_field))
            self._reasoning_field = ""
        if delta.text:
            events.append(TextDelta(delta.text))
        for call in delta.tool_calls or ():
            function = call.function or _Function()
            index = call.index or 0
            number, call_id = self._calls.get(index, (-1, ""))
            if number < 0 or (function.name and call.id not in (None, "", call_id)):
                # Ollama used one index for all calls of a response, so a new ID starts a new call.
                self._call_count += 1
                number, call_id = self._call_count - 1, call.id or f"call_{index}"
                self._calls[index] = number, call_id
                events.append(ToolCallStart(number, call_id, function.name or ""))
            if function.arguments_text:
                events.append(ToolCallDelta(number, function.arguments_text))
        return events


def _without_usage(events: bytes) -> bytes:
    """Return the events without usage; an event that contains nothing else is removed with its blank line."""
    lines: list[bytes] = []
    is_removed = False
    for line in events.split(b"\n"):
        if is_removed and not line.strip():
            is_removed = False
            continue
        if not line.startswith(b"data:") or not _USAGE.search(line):
            lines.append(line)
            continue
        fields = _raws(line[5:].strip())
        fields.pop("usage", None)
        is_removed = not _any(fields.get("choices", msgspec.Raw(b"[]")))
        if not is_removed:
            lines.append(b"data: " + _encode(fields))
    return b"\n".join(lines).lstrip(b"\n")


def _reported_usage(body: bytes) -> TokenUsage | None:
    """Return the reported usage without parsing the message."""
    try:
        document = _count(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return document.usage.read() if document.usage is not None and document.choices else None


def _document(body: bytes) -> _CompletionsDocument:
    try:
        document = read_document(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError("the response is not valid JSON") from error
    if not document.choices:
        raise ValueError("the response has no choices")
    return document


def _stop_reason(stop: Stop, *, has_calls: bool) -> Stop:
    """Return the stop reason, corrected for servers that report a plain stop after a forced tool call."""
    return "tool" if has_calls and stop == "end" else stop


def _format(chat: ChatRequest) -> dict[str, Any] | None:
    if chat.shape is None:
        return None
    if chat.shape.schema is None:
        return {"type": "json_object"}
    schema = {"name": chat.shape.name, "schema": chat.shape.schema, "strict": chat.shape.strict}
    return {"type": "json_schema", "json_schema": schema}


def _messages(chat: ChatRequest) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": chat.system}] if chat.system else []
    for message in _merge_turns(chat.messages):
        messages += _tool_messages(message)
        parts = [part for part in message.parts if not isinstance(part, ToolResult | ReasoningPart)]
        if parts:
            messages.append({**_reasoning_fields(message), **_turn(message.role, parts)})
    return messages


def _merge_turns(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Merge consecutive messages of the assistant, and consecutive tool results, as servers require."""
    runs: list[list[ChatMessage]] = []
    for message in messages:
        previous = runs[-1][-1] if runs else None
        if (
            previous is not None
            and previous.role == message.role
            and (message.role == "assistant" or (_is_tool_results(previous) and _is_tool_results(message)))
        ):
            runs[-1].append(message)
        else:
            runs.append([message])
    return [ChatMessage(run[0].role, tuple(part for each in run for part in each.parts)) for run in runs]


def _is_tool_results(message: ChatMessage) -> bool:
    return all(isinstance(part, ToolResult) for part in message.parts)


def _tool_messages(message: ChatMessage) -> list[dict[str, Any]]:
    """Return each tool result as a separate message; the images follow in a user message."""
    messages: list[dict[str, Any]] = []
    images: list[Part] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            text = "\n".join(inner.text for inner in part.parts if isinstance(inner, TextPart))
            messages.append({"role": "tool", "tool_call_id": part.call_id, "content": text})
            images += [inner for inner in part.parts if isinstance(inner, ImagePart)]
    return [*messages, _turn("user", images)] if images else messages


def _reasoning_fields(message: ChatMessage) -> dict[str, str]:
    """Return the reasoning fields, which some servers require during tool calls."""
    fields: dict[str, str] = {}
    for part in message.parts:
        if isinstance(part, ReasoningPart) and part.field:
            fields[part.field] = fields.get(part.field, "") + part.text
    return fields


def _turn(role: str, parts: Sequence[Part]) -> dict[str, Any]:
    turn: dict[str, Any] = {"role": role}
    calls = [part for part in parts if isinstance(part, ToolCall)]
    if calls:
        turn["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    if any(isinstance(part, ImagePart) for part in parts):
        turn["content"] = [_content(part) for part in parts if isinstance(part, TextPart | ImagePart)]
    else:
        texts = [part.text for part in parts if isinstance(part, TextPart)]
        turn["content"] = "".join(texts) if texts or not calls else None
    return turn


def _content(part: TextPart | ImagePart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    url = part.url or f"data:{part.media_type};base64,{part.data}"
    return {"type": "image_url", "image_url": {"url": url}}
