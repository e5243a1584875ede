"""The protocol-independent form of a chat, into which handlers parse requests for other protocols.

Clients build requests from it. Only calls between two protocols use this form; within one protocol, bytes are
forwarded unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from sixfold.core.gateway import media_sizes
from sixfold.core.gateway.pricing.usage import NOTHING, TokenUsage
from sixfold.core.input_limits import byte_search

Stop = Literal["end", "length", "tool", "filter", "sequence"]
# For the estimate of an unreported usage, and for the input of a hold, to which `maximum_usage` adds a
# separate maximum for each image.
_TOKENS_PER_IMAGE = 1500
_CHARS_PER_TOKEN = 3.5
_SLICE_BYTES = 256 * 1024
_BASE64 = re.compile(rb"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{%d}" % media_sizes.MIN_CHARS)
_check_json = msgspec.json.Decoder(msgspec.Raw).decode
_MESSAGE_TOKENS = 4
# The longest response that is converted between protocols, longer than any model writes. A part is a text, a
# piece of reasoning or a tool call; each becomes an item or a block with its own events.
MAX_RESPONSE_CHARS, MAX_RESPONSE_PARTS = 2 * 2**20, 2_000
# The objects of a message, and of one of its parts.
_PART_BYTES = 256
# Fields of chat completions that contain reasoning; `ReasoningPart.signature` is the name of the field.
REASONING_FIELDS = ("reasoning_content", "reasoning")
# The prefix of Gemini's signatures, which only Gemini accepts.
GEMINI_SIGNATURE = "gemini#"


class TextPart(msgspec.Struct, frozen=True):
    """A fragment of text."""

    text: str


class ImagePart(msgspec.Struct, frozen=True):
    """An image, as base64 with its media type or as a URL that the server fetches."""

    url: str = ""
    media_type: str = ""
    data: str = ""


class ToolCall(msgspec.Struct, frozen=True):
    """A tool call requested by the model; `arguments` is a JSON string."""

    id: str
    name: str
    arguments: str


class ToolResult(msgspec.Struct, frozen=True):
    """The result of a tool call."""

    call_id: str
    parts: tuple[TextPart | ImagePart, ...]
    failed: bool = False


class ReasoningPart(msgspec.Struct, frozen=True):
    """A fragment of reasoning, whose `signature` lets its server verify or recognize it."""

    text: str
    signature: str = ""

    @property
    def field(self) -> str:
        """The name of the chat completion field that contained the text; empty for other signatures."""
        return self.signature if self.signature in REASONING_FIELDS else ""

    @property
    def signed(self) -> bool:
        """Whether an Anthropic server signed the reasoning."""
        return bool(self.signature) and not self.field and not self.signature.startswith(GEMINI_SIGNATURE)


Part = TextPart | ImagePart | ToolCall | ToolResult | ReasoningPart


class ChatMessage(msgspec.Struct, frozen=True):
    """A message with one role."""

    role: Literal["user", "assistant"]
    parts: tuple[Part, ...]


class ToolSpec(msgspec.Struct, frozen=True):
    """A function that the model may call; `schema` is the JSON Schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]


class ResponseFormat(msgspec.Struct, frozen=True):
    """Requires a JSON response: any object, or one that matches `schema`."""

    name: str = "answer"
    schema: Mapping[str, Any] | None = None
    strict: bool = False


class ChatRequest(msgspec.Struct, frozen=True):
    """A chat request; `choice` is auto, none, required, or `=name` for one tool."""

    messages: tuple[ChatMessage, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    choice: str = "auto"
    parallel: bool | None = None
    shape: ResponseFormat | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    effort: str = ""
    user: str = ""
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


class ChatResponse(msgspec.Struct, frozen=True):
    """A complete response."""

    id: str
    model: str
    parts: tuple[TextPart | ToolCall | ReasoningPart, ...]
    stop: Stop
    usage: TokenUsage = NOTHING

    @property
    def text(self) -> str:
        """The text parts, concatenated."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


class TextDelta(msgspec.Struct, frozen=True):
    """The next fragment of text."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    """The next fragment of reasoning; the last one contains the `signature`."""

    text: str
    signature: str = ""


class ToolCallStart(msgspec.Struct, frozen=True):
    """The start of a tool call."""

    number: int
    id: str
    name: str


class ToolCallDelta(msgspec.Struct, frozen=True):
    """The next fragment of a tool call's arguments."""

    number: int
    text: str


class MessageEnd(msgspec.Struct, frozen=True):
    """The end of the response."""

    stop: Stop
    usage: TokenUsage


Event = TextDelta | ReasoningDelta | ToolCallStart | ToolCallDelta | MessageEnd


def estimate(chat: ChatRequest) -> int:
    """Estimate the input tokens of a request, with a tendency to overestimate."""
    chars, images = len(chat.system), 0
    for message in chat.messages:
        for part in message.parts:
            part_chars, part_images = _size(part)
            chars += part_chars
            images += part_images
    chars += sum(len(tool.name) + len(tool.description) + len(str(tool.schema)) for tool in chat.tools)
    return (
        int(chars / _CHARS_PER_TOKEN)
        + _MESSAGE_TOKENS * (len(chat.messages) + 1)
        + _TOKENS_PER_IMAGE * images
    )


def as_json(text: str) -> msgspec.Raw | None:
    """Return the arguments of a call as JSON on one line, or None if they are invalid.

    The arguments are not decoded, because they may contain millions of values.
    """
    try:
        _check_json(text.encode())
        return msgspec.Raw(msgspec.json.format(text, indent=-1).encode())
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def approximate_bytes(chat: ChatRequest) -> int:
    """Return the approximate bytes of a request's objects and instructions, without its message texts."""
    return len(chat.system) + _PART_BYTES * sum(1 + len(message.parts) for message in chat.messages)


def content_bytes(chat: ChatRequest) -> int:
    """Return the approximate bytes of a request with its message texts and media."""
    parts = [part for message in chat.messages for part in message.parts]
    media = sum(len(part.data) + len(part.url) for part in parts if isinstance(part, ImagePart))
    return approximate_bytes(chat) + media + sum(_size(part)[0] for part in parts)


class ResponseSize:
    """Counts the parts and the characters of a response, including its ids, names and signatures."""

    def __init__(self) -> None:
        self.chars = self.parts = 0
        # Bytes of the texts in memory, where a character beyond ASCII may take four.
        self.memory = 0
        # The type of the events that continue the latest part.
        self._open: type[Event] | None = None

    @classmethod
    def of(cls, response: ChatResponse) -> ResponseSize:
        """Return the size of a complete response."""
        size = cls()
        size.chars = (
            len(response.id) + len(response.model) + sum(_response_chars(each) for each in response.parts)
        )
        size.parts = len(response.parts)
        return size

    @property
    def bytes(self) -> int:
        """The approximate bytes of the response with its objects."""
        return self.chars + _PART_BYTES * self.parts

    @property
    def excess(self) -> str:
        """The limit that the response exceeds, which completes the sentence "The model server …"; or ""."""
        if self.chars > MAX_RESPONSE_CHARS:
            return f"sent more than {MAX_RESPONSE_CHARS:,} characters of text"
        if self.parts > MAX_RESPONSE_PARTS:
            return f"sent more than {MAX_RESPONSE_PARTS:,} texts, pieces of reasoning and tool calls"
        return ""

    def add(self, event: Event) -> None:
        """Count an event of a stream."""
        kind = type(event)
        match event:
            case TextDelta():
                self._add_text(event.text)
                self.parts += kind is not self._open
                self._open = kind
            case ReasoningDelta():
                self._add_text(event.text)
                self._add_text(event.signature)
                # A signature ends its piece of reasoning.
                self.parts += kind is not self._open
                self._open = None if event.signature else kind
            case ToolCallStart():
                self.chars += len(event.id) + len(event.name)
                self.parts += 1
                self._open = kind
            case ToolCallDelta():
                self._add_text(event.text)
            case MessageEnd():
                pass

    def _add_text(self, text: str) -> None:
        self.chars += len(text)
        self.memory += len(text) if text.isascii() else 4 * len(text)


def _response_chars(part: TextPart | ToolCall | ReasoningPart) -> int:
    match part:
        case TextPart():
            return len(part.text)
        case ReasoningPart():
            return len(part.text) + len(part.signature)
        case ToolCall():
            return len(part.id) + len(part.name) + len(part.arguments)


def _size(part: Part) -> tuple[int, int]:
    match part:
        case TextPart() | ReasoningPart():
            return len(part.text), 0
        case ImagePart():
            return 0, 1
        case ToolCall():
            return len(part.name) + len(part.arguments), 0
        case ToolResult():
            sizes = [_size(inner) for inner in part.parts]
            return sum(size[0] for size in sizes), sum(size[1] for size in sizes)


def tokens_of(text_chars: int) -> int:
    """Estimate the tokens of a text from its number of characters."""
    return -(-text_chars * 2 // 7) if text_chars else 0


def estimate_body(body: bytes) -> int:
    """Estimate the input tokens of a serialized request; media in base64 count as one image each."""
    # The regular expression holds the interpreter's lock, so other threads run between two slices.
    slices = (body[start : start + _SLICE_BYTES] for start in range(0, len(body), _SLICE_BYTES))
    if not byte_search.may_have_base64(body, media_sizes.MIN_CHARS) or not any(
        _BASE64.search(block) for block in slices
    ):
        return tokens_of(len(body))
    media = media_sizes.media_in(body)
    return tokens_of(len(body) - media.chars) + _TOKENS_PER_IMAGE * media.files
