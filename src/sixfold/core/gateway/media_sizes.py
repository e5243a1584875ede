"""The number and characters of media that a request contains as base64, which do not count as text.

Only the media fields of an API are counted: base64 anywhere else, such as in a message's text or in the
arguments of a tool call, is text for the model and is charged as text.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import msgspec

from sixfold.core.input_limits import json_decoding

# Types of parts with media or encrypted reasoning, in any API.
_TYPES = frozenset(
    {
        *("image_url", "image", "input_image", "computer_screenshot", "audio_url", "video_url"),
        *("input_audio", "file", "input_file", "document"),
        *("thinking", "redacted_thinking", "reasoning"),
    }
)
# Members of such a part, and of an object in one of them, that contain the media.
_MEMBERS = (
    *("image_url", "audio_url", "video_url", "source", "input_audio", "file", "file_data", "data"),
    *("signature", "encrypted_content"),
)
_INNER = ("url", "data", "file_data")
# Ollama's messages and prompts contain a list of images.
_IMAGES = "images"
# Members that may contain parts, of a request and of such a member. The `input` of a tool call is not
# included.
_REQUEST_PARTS = ("messages", "input", "system")
_PARTS = ("content", "output")
# Shorter media count as text.
MIN_CHARS = 1024


class MediaSizes(NamedTuple):
    """The number of media in a request, and the total number of their characters."""

    files: int = 0
    chars: int = 0


def media_in(body: bytes) -> MediaSizes:
    """Return the number and size of the media in a JSON request; zeros if it is not valid JSON."""
    try:
        document: Any = json_decoding.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return MediaSizes()
    if not isinstance(document, dict):
        return MediaSizes()
    request = cast("dict[str, Any]", document)
    count = chars = 0
    pending: list[Any] = [{_IMAGES: request.get(_IMAGES)}, *map(request.get, _REQUEST_PARTS)]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += cast("list[Any]", value)
        elif isinstance(value, dict):
            part = cast("dict[str, Any]", value)
            sizes = [size for text in _media_of(part) if (size := _base64_chars(text)) >= MIN_CHARS]
            count += len(sizes)
            chars += sum(sizes)
            pending += map(part.get, _PARTS)
    return MediaSizes(count, chars)


def _media_of(part: dict[str, Any]) -> list[str]:
    images = part.get(_IMAGES)
    values = list(cast("list[Any]", images)) if isinstance(images, list) else []
    if part.get("type") in _TYPES:
        for name in _MEMBERS:
            value = part.get(name)
            if isinstance(value, dict):
                source = cast("dict[str, Any]", value)
                # Anthropic's documents may have plain text in the same member.
                values += [source.get(inner) for inner in _INNER if source.get("type") != "text"]
            else:
                values.append(value)
    return [text for text in values if isinstance(text, str)]


def _base64_chars(text: str) -> int:
    """Return the number of base64 characters in a data URI, or in a string that is not a URL."""
    if text.startswith("data:"):
        return len(text) - text.find(",") - 1
    return 0 if "://" in text[:16] else len(text)
