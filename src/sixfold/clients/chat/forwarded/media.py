"""OpenAI's image, audio and embedding endpoints: requests are forwarded, responses scanned for usage.

Source: https://platform.openai.com/docs/api-reference/images, …/audio and …/embeddings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from sixfold.clients.chat import sse
from sixfold.clients.chat.rejections import parse_rejection
from sixfold.core.gateway.chat import ChatRequest, ChatResponse, Event
from sixfold.core.gateway.ports import UpstreamRejection, WireProtocol
from sixfold.core.gateway.pricing.usage import TokenUsage, Units, parse_token_count
from sixfold.core.gateway.routing import remove_routing_fields
from sixfold.core.input_limits import json_decoding, json_limits

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode
_raws = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_any = json_decoding.decode_whole
_MODEL_FIELD = b'Content-Disposition: form-data; name="model"\r\n\r\n'
_EVENTS = (b"data:", b"event:", b":")
_PAGE = re.compile(rb"\s*+<(?:!doctype\s+)?html", re.IGNORECASE)
# The end of the type of an event that contains an incomplete image.
_PARTIAL = ".partial_image"
# The longest plausible recording, in seconds.
_MAX_SECONDS = 30 * 24 * 3600.0
# Longer values of `usage` and `duration` are ignored as implausible.
_MAX_USAGE_BYTES = 16 * 1024
_NULL = msgspec.Raw(b"null")
# 24 hours of speech have about a million characters.
_MAX_DECODED_BYTES = 2**20
# The bytes of UTF-8 that continue a character.
_CONTINUATION = bytes(range(0x80, 0xC0))
# Embeddings of 2,048 texts may have 8 million numbers, which are not decoded here. The moderation of 1,000
# inputs has 17,000 objects and arrays, which are all decoded.
_RESPONSE_LIMITS = {
    "embeddings": json_limits.RESPONSE._replace(values=10_000_000),
    "moderations": json_limits.DEFAULT,
}


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
    text: msgspec.Raw = _NULL
    usage: msgspec.Raw = _NULL
    duration: msgspec.Raw = _NULL
    type: str = ""
    error: msgspec.Raw = _NULL


class _ResultRow(msgspec.Struct):
    """A result: an image, a vector, or the moderation of an input."""

    b64_json: msgspec.Raw = _NULL
    url: msgspec.Raw = _NULL
    error: msgspec.Raw = _NULL


_read = msgspec.json.Decoder(_MediaReply).decode
_read_row = msgspec.json.Decoder(_ResultRow).decode
_read_usage = msgspec.json.Decoder(_MediaUsage | None).decode


class MediaGeneration(WireProtocol):
    """A protocol of one endpoint; `results` is the field that contains the list of results, if any.

    `output` is `image`, `sound` or `text`, or an empty string for other results.
    """

    def __init__(
        self, name: str, path: str, *, results: Literal["", "data", "results"] = "", output: str = ""
    ) -> None:
        self.name = name
        self.path = path
        self.response_limits = _RESPONSE_LIMITS.get(name, json_limits.RESPONSE)
        self._results = results
        self._output = output

    @property
    def is_image(self) -> bool:
        """Whether the results are images."""
        return self._output == "image"

    @property
    def is_sound(self) -> bool:
        """Whether the result is audio."""
        return self._output == "sound"

    def rewrite_request(self, body: bytes, model: str) -> bytes:
        """Return the request with the server's model name; forms do not contain one yet."""
        if body.startswith(b"--"):
            boundary = body[: body.index(b"\r\n") + 2]
            return b"".join((boundary, _MODEL_FIELD, model.encode(), b"\r\n", body))
        fields = remove_routing_fields(_raws(body))
        fields["model"] = msgspec.Raw(_encode(model))
        return _encode(fields)

    def usage(self, body: bytes) -> tuple[TokenUsage | None, int]:
        """Return the usage that a response reports, and the length of a transcript, in characters."""
        if not body:
            raise ValueError("the response is empty")
        if self.is_sound:
            if is_document(body):
                raise ValueError("the response is not audio")
            return None, 0
        if not self._results and not body.lstrip().startswith(b"{"):
            if _PAGE.match(body):
                raise ValueError("the response is a web page")
            # Plain text.
            return None, _characters(body)
        try:
            reply = _read(body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise ValueError("the response is not valid JSON") from error
        self._check(reply)
        return self.reported_usage(reply), _transcript_length(reply.text) if self._output == "text" else 0

    def _check(self, reply: _MediaReply) -> None:
        """Raise `ValueError` for an error or a response without a result, which some servers send as 200."""
        if bytes(reply.error) != b"null":
            raise ValueError("the response is an error")
        if self._output == "text" and not bytes(reply.text).startswith(b'"'):
            raise ValueError("the response has no text")
        rows = getattr(reply, self._results) or () if self._results else ()
        if self._results and not any(map(_is_image if self.is_image else _is_result, rows)):
            raise ValueError(f"the response has no {self._results}")

    def reported_usage(self, reply: _MediaReply) -> TokenUsage | None:
        """Return the usage that a response or an event reports, or None."""
        usage = _small(reply.usage, _read_usage)
        milliseconds = _milliseconds(_small(reply.duration, _any) if usage is None else usage.seconds)
        images = sum(map(_is_image, reply.data or ())) if self.is_image else 0
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
        image_tokens = output_tokens - text_tokens if self.is_image else 0
        return TokenUsage(
            input=input_tokens,
            output=output_tokens,
            cached=parse_token_count(inputs.cached_tokens) or 0,
            image_in=parse_token_count(inputs.image_tokens) or 0,
            audio_in=parse_token_count(inputs.audio_tokens) or 0,
            audio_out=output_tokens if self.is_sound else 0,
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


def _transcript_length(text: msgspec.Raw) -> int:
    """Return the length of a JSON string; an escape in an implausibly long one counts as its characters."""
    if memoryview(text).nbytes > _MAX_DECODED_BYTES:
        return _characters(bytes(text))
    return len(msgspec.json.decode(text, type=str))


def _characters(text: bytes) -> int:
    """Return the number of characters of UTF-8, in slices between which other threads can run."""
    slices = (text[at : at + _MAX_DECODED_BYTES] for at in range(0, len(text), _MAX_DECODED_BYTES))
    return sum(len(piece.translate(None, _CONTINUATION)) for piece in slices)


def _is_result(row: msgspec.Raw) -> bool:
    """Return whether a row is an object that is not empty and not an error."""
    try:
        return memoryview(row).nbytes > 2 and bytes(_read_row(row).error) == b"null"
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False


def _is_image(row: msgspec.Raw) -> bool:
    try:
        image = _read_row(row)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    # `""` has two bytes.
    return any(
        memoryview(field).nbytes > 2 and bytes(memoryview(field)[:1]) == b'"'
        for field in (image.b64_json, image.url)
    )


def is_document(body: bytes) -> bool:
    """Return whether bytes are a web page or a JSON object or array, and therefore no audio."""
    if _PAGE.match(body):
        return True
    if body.lstrip()[:1] not in (b"{", b"["):
        return False
    try:
        msgspec.json.decode(body, type=dict[str, msgspec.Raw] | list[msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return False
    return True


def _milliseconds(seconds: Any) -> int:
    """Return the reported duration in milliseconds; some servers send it as a string."""
    try:
        return max(0, round(1000 * min(float(seconds), _MAX_SECONDS))) if seconds is not None else 0
    except (TypeError, ValueError, OverflowError):
        return 0


MEDIA_PROTOCOLS = (
    MediaGeneration("embeddings", "/embeddings", results="data"),
    MediaGeneration("images", "/images/generations", results="data", output="image"),
    MediaGeneration("edits", "/images/edits", results="data", output="image"),
    MediaGeneration("speech", "/audio/speech", output="sound"),
    MediaGeneration("transcriptions", "/audio/transcriptions", output="text"),
    MediaGeneration("translations", "/audio/translations", output="text"),
    MediaGeneration("moderations", "/moderations", results="results"),
)


def _with_images(usage: TokenUsage | None, images: int) -> TokenUsage:
    """Return a usage with the number of images of a stream, whose events contain one image each."""
    usage = usage or TokenUsage(reported=False)
    return replace(usage, units=replace(usage.units or Units(), images=images))


class MediaUsageScanner:
    """Forwards bytes; events are scanned for usage, audio is not parsed.

    `chars` counts what was delivered: bytes of audio, or events.
    """

    def __init__(self, wire: MediaGeneration) -> None:
        self.usage: TokenUsage | None = None
        self.chars = 0
        # The transport raises if audio ends early; events need a result.
        self.complete = True
        self.error = ""
        self._wire = wire
        self._images = 0
        self._has_events: bool | None = None
        self._splitter = sse.EventSplitter()

    @property
    def buffered(self) -> int:
        return self._splitter.size

    def forward(self, block: bytes, *, keep_usage: bool) -> bytes:
        """Return audio unchanged, or the complete events."""
        if self._has_events is None:
            self._has_events = block.startswith(_EVENTS)
            self.complete = not self._has_events
            if not self._has_events and (not self._wire.is_sound or is_document(block)):
                kind = "audio" if self._wire.is_sound else "an event stream"
                self.error = f"The model server returned a response that is not {kind}"
                return b""
        if self.error and not self._has_events:
            return b""
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
        if bytes(reply.error) != b"null" or reply.type == "error":
            self.error = "The model server failed"
            return
        self.chars += 1
        self.complete = self.complete or not reply.type.endswith(_PARTIAL)
        self.usage = self._wire.reported_usage(reply) or self.usage
        if self._wire.is_image and reply.type.endswith(".completed"):
            self._images += 1
            self.usage = _with_images(self.usage, self._images)

    def events(self, block: bytes) -> Sequence[Event]:
        raise NotImplementedError

    def end(self) -> Event:
        raise NotImplementedError
