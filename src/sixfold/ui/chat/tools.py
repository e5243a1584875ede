"""Tools in answers: `@NAME` in a message offers the tools of the MCP server NAME to the model."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.core.gateway.chat import (
    ChatMessage,
    ChatRequest,
    Event,
    TextDelta,
    TextPart,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    ToolResult,
)
from sixfold.core.gateway.tools.servers import ToolOutput

# Maximum tool calls in all requests for one answer.
MAX_CALLS = 24
_ARGUMENT_CHARS = 100_000


def mentioned(text: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the servers that a message mentions as `@NAME`."""
    return tuple(name for name in names if _mark(name).search(text))


def without_marks(text: str, names: Sequence[str]) -> str:
    """Return a message without its mentions of servers."""
    for name in names:
        text = _mark(name).sub("", text)
    return text


def with_marks(text: str, names: Sequence[str]) -> str:
    """Return a message that mentions all servers; missing mentions are added at the beginning."""
    return " ".join([*(f"@{name}" for name in names if not _mark(name).search(text)), text])


def _mark(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\S)@{re.escape(name)}(?![\w-])[,:]?\s*", re.IGNORECASE)


class Round(msgspec.Struct):
    """One response of the model: its text and its tool calls."""

    text: str = ""
    calls: dict[int, ToolCall] = {}

    def read(self, event: Event) -> None:
        """Add an event; raises `TooLarge` for arguments that are too long."""
        match event:
            case TextDelta(text):
                self.text += text
            case ToolCallStart(number, call_id, name):
                self.calls[number] = ToolCall(call_id, name, "")
            case ToolCallDelta(number, text) if number in self.calls:
                call = self.calls[number]
                if len(call.arguments) + len(text) > _ARGUMENT_CHARS:
                    raise errors.TooLarge(
                        f"The arguments of a tool call can have at most {_ARGUMENT_CHARS:,} characters"
                    )
                self.calls[number] = replace(call, arguments=call.arguments + text)
            case _:
                pass

    def next_request(self, chat: ChatRequest, outputs: Sequence[ToolOutput]) -> ChatRequest:
        """Return the next request, with this response and the outputs of its calls."""
        calls = tuple(self.calls.values())
        texts = (TextPart(self.text),) if self.text else ()
        results = tuple(
            ToolResult(call.id, (TextPart(output.text),), output.failed)
            for call, output in zip(calls, outputs, strict=True)
        )
        messages = (ChatMessage("assistant", (*texts, *calls)), ChatMessage("user", results))
        return replace(chat, messages=(*chat.messages, *messages))
