"""OpenAI's image, audio and embedding endpoints: requests are forwarded, responses scanned for usage.

Source: https://platform.openai.com/docs/api-reference/images, …/audio and …/embeddings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from sixfold.clients.chat import sse
from sixfold.clients.chat.rejections import parse_rejection
from sixfold.core.gateway.chat import ChatRequest, ChatResponse, Event
from sixfold.core.gateway.ports import UpstreamRejection, WireProtocol
from sixfold.core.gateway.routing import remove_routing_fields
from sixfold.core.gateway.usage import TokenUsage, Units, parse_token_count
from sixfold.core.input_limits import json_decoding, json_limits

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode
_raws = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_any = json_decoding.decode_whole
_MODEL_FIELD = b'Content-Disposition: form-data; name="model"\r\n\r\n'
_EVENTS = (b"data:", b"event:", b":")
# The longest plausible recording, in seconds.
_MAX_SECONDS = 30 * 24 * 3600.0
# Longer values of `usage` and `duration` are ignored as implausible.
_MAX_USAGE_BYTES = 16 * 1024
_NULL = msgspec.Raw(b"null")
# Embeddings of 2,048 texts may have 8 million numbers, which are not decoded here.
_EMBEDDINGS = json_limits.RESPONSE._replace(values=10_000_000)


class _MediaDetails(msgspec.Struct):
    text_tokens: Any = None
    image_tokens: Any = None
    audio_tokens: Any = None
    cached_tokens: Any = None


class _MediaUsage(msgspec.Struct):
    """The usage of a response; audio endpoints use another name for the details."""

    input_tokens: Any = 0
    output_tokens: Any = 0
    prompt_tokens: Any = 0
    seconds: Any = None
    input_tokens_details: _MediaDetails | None = None
    input_token_details: _MediaDetails | None = None
    output_tokens_details: _MediaDetails | None = None


class _MediaReply(msgspec.Struct):
    data: list[msgspec.Raw] | None = None
    results: list[msgspec.Raw] | None = None
    usage: msgspec.Raw = _NULL
    duration: msgspec.Raw = _NULL
    type: str = ""
    error: msgspec.Raw = _NULL


_read = msgspec.json.Decoder(_MediaReply).decode
_read_usage = msgspec.json.Decoder(_MediaUsage | None).decode


class MediaGeneration(WireProtocol):
    """A protocol of one endpoint; `results` is the field that contains the list of results, if any."""

    def __init__(
        self, name: str, path: str, *, results: Literal["", "data", "results"] = "", output: str = ""
    ) -> None:
        self.name = name
        self.path = path
        self.response_limits = _EMBEDDINGS if name == "embeddings" else json_limits.RESPONSE
        self._results = results
        self._output = output

    def rewrite_request(self, body: bytes, model: str) -> bytes:
        """Return the request with the server's model name; forms do not contain one yet."""
        if body.startswith(b"--"):
            boundary = body[: body.index(b"\r\n") + 2]
            return b"".join((boundary, _MODEL_FIELD, model.encode(), b"\r\n", body))
        fields = remove_routing_fields(_raws(body))
        fields["model"] = msgspec.Raw(_encode(model))
        return _encode(fields)

    def usage(self, body: bytes) -> tuple[TokenUsage | None, int]:
        if not body:
            raise ValueError("the response is empty")
        # Audio or plain text.
        if not self._results and not body.lstrip().startswith(b"{"):
            return None, len(body)
        try:
            reply = _read(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ValueError("the response is not valid JSON") from error
        if self._results and not getattr(reply, self._results):
            raise ValueError(f"the response has no {self._results}")
        return self.reported_usage(reply), len(body)

    def reported_usage(self, reply: _MediaReply) -> TokenUsage | None:
        """Return the usage that a response or an event reports, or None."""
        usage = _small(reply.usage, _read_usage)
        milliseconds = _milliseconds(_small(reply.duration, _any) if usage is None else usage.seconds)
        images = len(reply.data or ()) if self._output == "image" else 0
        units = Units(images, milliseconds) if images or milliseconds else None
        usage = usage or _MediaUsage()
        input_tokens, output_tokens = (
            parse_token_count(usage.input_tokens or usage.prompt_tokens),
            parse_token_count(usage.output_tokens),
        )
        input_tokens, output_tokens = input_tokens or 0, output_tokens or 0
        if not input_tokens and not output_tokens:
            return TokenUsage(reported=False, units=units) if units is not None else None
        inputs = usage.input_tokens_details or usage.input_token_details or _MediaDetails()
        text_tokens = parse_token_count((usage.output_tokens_details or _MediaDetails()).text_tokens) or 0
        image_tokens = output_tokens - text_tokens if self._output == "image" else 0
        return TokenUsage(
            input=input_tokens,
            output=output_tokens,
            cached=parse_token_count(inputs.cached_tokens) or 0,
            image_in=parse_token_count(inputs.image_tokens) or 0,
            audio_in=parse_token_count(inputs.audio_tokens) or 0,
            audio_out=output_tokens if self._output == "sound" else 0,
            units=Units(images, milliseconds, image_out=image_tokens) if units or image_tokens else None,
        )

    def parse_error(self, body: bytes) -> UpstreamRejection:
        return parse_rejection(body)

    def scanner(self) -> MediaUsageScanner:
        return MediaUsageScanner(self)

    def build_request(self, chat: ChatRequest, model: str, *, stream: bool) -> bytes:
        """Raise `NotImplementedError`: these protocols do not serve chats."""
        raise NotImplementedError

    def parse_response(self, body: bytes, chat: ChatRequest) -> ChatResponse:
        raise NotImplementedError

    def stream_parser(self, chat: ChatRequest) -> MediaUsageScanner:
        raise NotImplementedError


def _small(value: msgspec.Raw, decode: Callable[[msgspec.Raw], T]) -> T | None:
    """Decode a value; return None if it is too long or of another type."""
    try:
        return decode(value) if memoryview(value).nbytes <= _MAX_USAGE_BYTES else None
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _milliseconds(seconds: Any) -> int:
    """Return the reported duration in milliseconds; some servers send it as a string."""
    try:
        return max(0, round(1000 * min(float(seconds), _MAX_SECONDS))) if seconds is not None else 0
    except (TypeError, ValueError):
        return 0


MEDIA_PROTOCOLS = (
    MediaGeneration("embeddings", "/embeddings", results="data"),
    MediaGeneration("images", "/images/generations", results="data", output="image"),
    MediaGeneration("edits", "/images/edits", results="data", output="image"),
    MediaGeneration("speech", "/audio/speech", output="sound"),
    MediaGeneration("transcriptions", "/audio/transcriptions"),
    MediaGeneration("translations", "/audio/translations"),
    MediaGeneration("moderations", "/moderations", results="results"),
)


class MediaUsageScanner:
    """Forwards bytes; events are scanned for usage, audio is not parsed.

    `chars` counts what was delivered: bytes of audio, or events.
    """

    def __init__(self, wire: MediaGeneration) -> None:
        self.usage: TokenUsage | None = None
        self.chars = 0
        # The transport raises if the response ends early.
        self.complete = True
        self.error = ""
        self._wire = wire
        self._has_events: bool | None = None
        self._splitter = sse.EventSplitter()

    def forward(self, block: bytes, *, keep_usage: bool) -> bytes:
        """Return audio unchanged, or the complete events."""
        if self._has_events is None:
            self._has_events = block.startswith(_EVENTS)
        if not self._has_events:
            self.chars += len(block)
            return block
        events = self._splitter.feed(block)[0] if block else self._splitter.flush()
        for data in sse.data(events):
            self._scan_event(data)
        return events

    def _scan_event(self, data: bytes) -> None:
        try:
            reply = _read(data)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return
        self.chars += 1
        if bytes(reply.error) != b"null" or reply.type == "error":
            self.error = "The model server failed"
        self.usage = self._wire.reported_usage(reply) or self.usage

    def events(self, block: bytes) -> Sequence[Event]:
        raise NotImplementedError

    def end(self) -> Event:
        raise NotImplementedError
