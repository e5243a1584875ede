"""Sources of facts: a text or the messages of a conversation, in parts that a model reads one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from sixfold import errors
from sixfold.core.memory import limits
from sixfold.core.memory.facts import model_replies

MAX_CHARS, MAX_MESSAGES = 200_000, 2_000
# Maximum characters of one part: about 3,500 tokens, so that the facts fit into a reply.
PART_CHARS = 12_000
NAME_CHARS = 100
_SPEAKER_CHARS = 100
_ENDS = ("\n\n", "\n", ". ", "。", " ")


class FactSource(msgspec.Struct, frozen=True):
    """A text, the name with which its facts are cited, and its date."""

    text: str
    name: str
    date: str


def of(text: str | None, messages: Sequence[Mapping[str, Any]] | None, name: str, date: str) -> FactSource:
    """Return the source of a request; raises `InvalidInput`."""
    if (text is None) == (messages is None):
        raise errors.InvalidInput.of("text", "text and messages cannot be combined: send only one of them")
    content = text if text is not None else "\n".join(_lines(messages or ()))
    content = limits.long_text("text", content, MAX_CHARS)
    if not content.strip():
        raise errors.InvalidInput.of("text", "text must not be empty")
    # A dash with spaces would end the name on the page.
    clean_name = model_replies.line(name.replace("—", "-").replace("–", "-").replace("|", " "), NAME_CHARS)
    return FactSource(content, clean_name or "remember", limits.date(date))


def _lines(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield `speaker: content` for each message."""
    if len(messages) > MAX_MESSAGES:
        raise errors.InvalidInput.of(
            "messages", f"messages must have at most {MAX_MESSAGES} entries (got {len(messages)})"
        )
    for number, message in enumerate(messages):
        speaker, content = message.get("name") or message.get("role") or "", message.get("content")
        if not isinstance(content, str) or not isinstance(speaker, str):
            raise errors.InvalidInput.of(
                "messages", f'messages[{number}] must have text, as in {{"role": "user", "content": "…"}}'
            )
        yield f"{speaker[:_SPEAKER_CHARS]}: {content}" if speaker else content


def parts(text: str) -> Iterator[str]:
    """Yield the parts of a text, each of which ends with a paragraph, a line, a sentence or a word."""
    start = 0
    while start < len(text):
        end = min(len(text), start + PART_CHARS)
        if end < len(text):
            ends = ((text.rfind(mark, start + PART_CHARS // 2, end), mark) for mark in _ENDS)
            end = next((at + len(mark) for at, mark in ends if at >= 0), end)
        yield text[start:end]
        start = end
