"""Search and replacement of the texts in requests and responses of any protocol.

A text is a string that a user or a model wrote. Identifiers and encoded data (ids, URLs, base64, signatures)
are not changed, nor are the names of members.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec

from sixfold.core.gateway.chat import (
    ChatMessage,
    ChatRequest,
    ChatResponse,
    ImagePart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCall,
    ToolResult,
)

# Returns the replacement of a text.
Change = Callable[[str], str]
# Members whose strings are never masked.
_OPAQUE = frozenset(
    {
        *("id", "type", "role", "model", "object", "status", "name", "format", "media_type", "mime_type"),
        *("call_id", "tool_call_id", "tool_use_id", "item_id", "file_id", "response_id", "container_id"),
        *("previous_response_id", "conversation", "finish_reason", "stop_reason", "service_tier"),
        *("url", "image_url", "file_url", "data", "images", "file_data", "b64_json"),
        *("signature", "encrypted_content", "system_fingerprint", "prompt_cache_key"),
    }
)
# Members whose strings are sent to hooks.
_CONTENT = frozenset(
    {
        *("content", "text", "input", "instructions", "system", "prompt", "suffix", "arguments", "output"),
        *("thinking", "reasoning", "reasoning_content", "refusal", "transcript", "summary", "query"),
        *("documents", "title", "context"),
    }
)
# Members whose objects may have any member: the arguments of a tool call.
_FREE = frozenset({"input", "arguments", "args"})
# Tokens of the text, in which matches cannot be found.
_TOKENS = "logprobs"


class TextSlot:
    """The location of a text in a decoded JSON document."""

    __slots__ = ("container", "is_content", "key")

    def __init__(self, container: Any, key: Any, *, is_content: bool) -> None:
        self.container = container
        self.key = key
        self.is_content = is_content

    @property
    def text(self) -> str:
        return self.container[self.key]

    @text.setter
    def text(self, text: str) -> None:
        self.container[self.key] = text


def slots(document: Any) -> Iterator[TextSlot]:
    """Yield the texts of a decoded JSON document in order."""
    # The member that contains a value, and whether it is part of a tool call's arguments.
    stack: list[tuple[Any, str, bool]] = [(document, "", False)]
    while stack:
        value, name, free = stack.pop()
        inner: list[tuple[Any, str, bool]] = []
        for key, item in _items(value):
            member = key if isinstance(key, str) else name
            if isinstance(item, str):
                if free or member not in _OPAQUE:
                    yield TextSlot(value, key, is_content=free or member in _CONTENT)
                elif member == "data" and _is_plain_text(value):
                    yield TextSlot(value, key, is_content=True)
            elif isinstance(item, dict):
                inner.append((cast("Any", item), member, free or (member in _FREE and isinstance(key, str))))
            elif isinstance(item, list):
                inner.append((cast("Any", item), member, free))
        stack += reversed(inner)


def _is_plain_text(source: Any) -> bool:
    # Anthropic's documents have base64 or plain text in the same member.
    return isinstance(source, dict) and cast("dict[str, Any]", source).get("type") == "text"


def _items(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(cast("dict[str, Any]", value).items())
    return list(enumerate(cast("list[Any]", value))) if isinstance(value, list) else []


def drop_tokens(document: Any) -> bool:
    """Replace the log probabilities of a response with null, because their tokens repeat the text.

    Return whether any were replaced.
    """
    is_changed, stack = False, [document]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            if members.get(_TOKENS):
                members[_TOKENS] = None
                is_changed = True
            stack += members.values()
        elif isinstance(value, list):
            stack += cast("list[Any]", value)
    return is_changed


def change_request(chat: ChatRequest, change: Change) -> ChatRequest:
    """Return a request with all of its texts replaced."""
    return msgspec.structs.replace(
        chat,
        system=change(chat.system) if chat.system else "",
        messages=tuple(
            ChatMessage(message.role, tuple(_change_part(part, change) for part in message.parts))
            for message in chat.messages
        ),
    )


def change_response(response: ChatResponse, change: Change) -> ChatResponse:
    """Return a response with all of its texts replaced."""
    parts = tuple(_change_part(part, change) for part in response.parts)
    return msgspec.structs.replace(response, parts=cast("Any", parts))


def _change_part(part: Part, change: Change) -> Part:
    match part:
        case TextPart():
            return TextPart(change(part.text))
        case ReasoningPart():
            return msgspec.structs.replace(part, text=change(part.text)) if part.text else part
        case ToolCall():
            return msgspec.structs.replace(part, arguments=change(part.arguments)) if part.arguments else part
        case ToolResult():
            inner = tuple(_change_part(each, change) for each in part.parts)
            return msgspec.structs.replace(part, parts=cast("tuple[TextPart | ImagePart, ...]", inner))
        case ImagePart():
            return part
