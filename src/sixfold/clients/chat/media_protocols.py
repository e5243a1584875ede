"""OpenAI's image, audio and embedding endpoints: requests are passed on, responses scanned for usage.

Source: https://platform.openai.com/docs/api-reference/images, …/audio and …/embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from sixfold.clients.chat import sse
from sixfold.clients.chat.completions import objection
from sixfold.core.gateway.chat import ChatRequest, ChatResponse, Event
from sixfold.core.gateway.ports import UpstreamRejection
from sixfold.core.gateway.usage import TokenUsage, Units, parse_token_count

_encode = msgspec.json.Encoder().encode
_raws = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_PART = b'Content-Disposition: form-data; name="model"\r\n\r\n'
_EVENTS = (b"data:", b"event:", b":")
# The longest plausible recording, in seconds.
_LONGEST = 30 * 24 * 3600.0


class _MediaDetails(msgspec.Struct):
    text_tokens: Any = None
    image_tokens: Any = None
    audio_tokens: Any = None
    cached_tokens: Any = None


class _MediaUsage(msgspec.Struct):
    """The usage of all endpoints; audio uses another name for its details."""

    input_tokens: Any = 0
    output_tokens: Any = 0
    prompt_tokens: Any = 0
    seconds: Any = None
    input_tokens_details: _MediaDetails | None = None
    input_token_details: _MediaDetails | None = None
    output_tokens_details: _MediaDetails | None = None


class _MediaReply(msgspec.Struct):
    data: list[msgspec.Raw] | None = None
    usage: _MediaUsage | None = None
    duration: Any = None
    type: str = ""
    error: Any = None


_read = msgspec.json.Decoder(_MediaReply).decode


class MediaGeneration:
    """One of these protocols; `listed` ones respond with a list of results."""

    def __init__(self, name: str, path: str, *, listed: bool = False, gives: str = "") -> None:
        self.name = name
        self.path = path
        self._listed = listed
        self._gives = gives

    def rewrite_request(self, body: bytes, model: str) -> bytes:
        """Return the request with the server's model name; forms come without one."""
        if body.startswith(b"--"):
            border = body[: body.index(b"\r\n") + 2]
            return b"".join((border, _PART, model.encode(), b"\r\n", body))
        fields = _raws(body)
        fields["model"] = msgspec.Raw(_encode(model))
        return _encode(fields)

    def usage(self, body: bytes) -> tuple[TokenUsage | None, int]:
        if not body:
            raise ValueError("no answer")
        # Audio or plain text.
        if not self._listed and not body.lstrip().startswith(b"{"):
            return None, len(body)
        try:
            found = _read(body)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise ValueError("no answer") from error
        if self._listed and not found.data:
            raise ValueError("an answer without what was made")
        return self.told(found), len(body)

    def told(self, found: _MediaReply) -> TokenUsage | None:
        """Return the usage that a response or an event reports, or None."""
        milliseconds = _milliseconds(found.duration if found.usage is None else found.usage.seconds)
        images = len(found.data or ()) if self._gives == "image" else 0
        counted = Units(images, milliseconds) if images or milliseconds else None
        used = found.usage or _MediaUsage()
        count_in, count_out = (
            parse_token_count(used.input_tokens or used.prompt_tokens),
            parse_token_count(used.output_tokens),
        )
        count_in, count_out = count_in or 0, count_out or 0
        if not count_in and not count_out:
            return TokenUsage(reported=False, units=counted) if counted is not None else None
        inputs = used.input_tokens_details or used.input_token_details or _MediaDetails()
        said = parse_token_count((used.output_tokens_details or _MediaDetails()).text_tokens) or 0
        drawn = count_out - said if self._gives == "image" else 0
        return TokenUsage(
            input=count_in,
            output=count_out,
            cached=parse_token_count(inputs.cached_tokens) or 0,
            image_in=parse_token_count(inputs.image_tokens) or 0,
            audio_in=parse_token_count(inputs.audio_tokens) or 0,
            audio_out=count_out if self._gives == "sound" else 0,
            units=Units(images, milliseconds, image_out=drawn) if counted or drawn else None,
        )

    def parse_error(self, body: bytes) -> UpstreamRejection:
        return objection(body)

    def scanner(self) -> MediaUsageScanner:
        return MediaUsageScanner(self)

    def build_request(self, chat: ChatRequest, model: str, *, stream: bool) -> bytes:
        """Raise `NotImplementedError`: these protocols do not serve chats."""
        raise NotImplementedError

    def parse_response(self, body: bytes, chat: ChatRequest) -> ChatResponse:
        raise NotImplementedError

    def stream_parser(self, chat: ChatRequest) -> MediaUsageScanner:
        raise NotImplementedError


def _milliseconds(seconds: Any) -> int:
    """Return the reported duration in milliseconds; some servers send it as a string."""
    try:
        return max(0, round(1000 * min(float(seconds), _LONGEST))) if seconds is not None else 0
    except (TypeError, ValueError):
        return 0


MAKING = (
    MediaGeneration("embeddings", "/embeddings", listed=True),
    MediaGeneration("images", "/images/generations", listed=True, gives="image"),
    MediaGeneration("edits", "/images/edits", listed=True, gives="image"),
    MediaGeneration("speech", "/audio/speech", gives="sound"),
    MediaGeneration("transcriptions", "/audio/transcriptions"),
)


class MediaUsageScanner:
    """Passes bytes on; events are scanned for usage, audio is not parsed.

    `chars` counts what was delivered: bytes of audio, or events.
    """

    def __init__(self, wire: MediaGeneration) -> None:
        self.usage: TokenUsage | None = None
        self.chars = 0
        # The transport raises if the response is cut off.
        self.complete = True
        self.error = ""
        self._wire = wire
        self._told: bool | None = None
        self._cutter = sse.EventSplitter()

    def forward(self, block: bytes, *, keep_usage: bool) -> bytes:
        """Return audio as it comes, or the complete events."""
        if self._told is None:
            self._told = block.startswith(_EVENTS)
        if not self._told:
            self.chars += len(block)
            return block
        events = self._cutter.feed(block)[0] if block else self._cutter.flush()
        for data in sse.data(events):
            self._take(data)
        return events

    def _take(self, data: bytes) -> None:
        try:
            found = _read(data)
        except (msgspec.MsgspecError, UnicodeError):
            return
        self.chars += 1
        if found.error is not None or found.type == "error":
            self.error = "The model server failed"
        self.usage = self._wire.told(found) or self.usage

    def events(self, block: bytes) -> Sequence[Event]:
        raise NotImplementedError

    def end(self) -> Event:
        raise NotImplementedError
