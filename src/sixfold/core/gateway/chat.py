"""A conversation in no dialect: what every face reads its requests into, and what every server is asked from.

Only calls between two dialects pass through here; within one, bytes are passed on as they came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sixfold.core.gateway.usage import NOTHING, TokenUsage

Stop = Literal["end", "length", "tool", "filter", "sequence"]
_IMAGE_TOKENS = 1500  # what a large picture takes at most of today's servers
_CHARS_PER_TOKEN = 3.5
_MESSAGE_TOKENS = 4
THOUGHTS = ("reasoning_content", "reasoning")  # fields of chat completions; the name is the seal


@dataclass(frozen=True, slots=True)
class TextPart:
    """Some text."""

    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """A picture: base64 of a type, or an address that the server fetches itself."""

    url: str = ""
    media_type: str = ""
    data: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The model asks for a tool; `arguments` is JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gave."""

    call_id: str
    parts: tuple[TextPart | ImagePart, ...]
    failed: bool = False


@dataclass(frozen=True, slots=True)
class ReasoningPart:
    """What the model thought aloud; `seal` lets its own server check it later, or know it for its own."""

    text: str
    seal: str = ""

    @property
    def field(self) -> str:
        """Where a chat completion had it, whose server takes it back there; empty for other seals."""
        return self.seal if self.seal in THOUGHTS else ""


Part = TextPart | ImagePart | ToolCall | ToolResult | ReasoningPart


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn."""

    role: Literal["user", "assistant"]
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A function that the model may ask for; `schema` is JSON Schema of its arguments."""

    name: str
    description: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """The answer shall be JSON: any object, or what `schema` says."""

    name: str = "answer"
    schema: Mapping[str, Any] | None = None
    strict: bool = False


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request. `choice` is auto, none, required, or `=name` for one tool."""

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


@dataclass(frozen=True, slots=True)
class ChatResponse:
    """One whole answer."""

    id: str
    model: str
    parts: tuple[TextPart | ToolCall | ReasoningPart, ...]
    stop: Stop
    usage: TokenUsage = NOTHING

    @property
    def text(self) -> str:
        """All that was said."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tools that were asked for."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of a thought; `seal` comes at its end."""

    text: str
    seal: str = ""


@dataclass(frozen=True, slots=True)
class ToolCallStart:
    """The call with this number begins."""

    number: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of a call's arguments."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class MessageEnd:
    """The answer is whole."""

    stop: Stop
    usage: TokenUsage


Event = TextDelta | ReasoningDelta | ToolCallStart | ToolCallDelta | MessageEnd


def estimate(chat: ChatRequest) -> int:
    """About how many tokens a request has; rather more than fewer."""
    chars, pictures = len(chat.system), 0
    for message in chat.messages:
        for part in message.parts:
            found_chars, found_pictures = _size(part)
            chars += found_chars
            pictures += found_pictures
    chars += sum(len(tool.name) + len(tool.description) + len(str(tool.schema)) for tool in chat.tools)
    return (
        int(chars / _CHARS_PER_TOKEN) + _MESSAGE_TOKENS * (len(chat.messages) + 1) + _IMAGE_TOKENS * pictures
    )


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
    """About how many tokens so many characters are, where no server counted."""
    return -(-text_chars * 2 // 7) if text_chars else 0
