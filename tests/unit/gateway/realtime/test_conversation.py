"""Items of a realtime conversation as the messages of a chat."""

from __future__ import annotations

import pytest

from sixfold import errors
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.realtime.items import parse_input
from sixfold.core.gateway.chat import ChatMessage, ImagePart, TextPart, ToolCall, ToolResult
from sixfold.core.gateway.realtime import conversation
from sixfold.core.gateway.realtime.conversation import RealtimeConversation, chat_messages, system_text
from sixfold.core.gateway.realtime.items import (
    AudioContent,
    CallItem,
    CallOutputItem,
    ImageContent,
    MessageItem,
    MessageRole,
    TextContent,
)
from sixfold.core.gateway.realtime.memory import RealtimeMemory
from tests import loop_time


def message(item_id: str, text: str, role: MessageRole = "user") -> MessageItem:
    return MessageItem(item_id, role, [TextContent(text)])


def test_tool_calls_belong_to_the_preceding_message() -> None:
    items = (
        message("a", "Weather?"),
        message("b", "I look.", "assistant"),
        CallItem("c", "call_1", "weather", '{"city": "Oslo"}'),
        CallItem("d", "call_2", "time"),
        CallOutputItem("e", "call_1", "4 degrees"),
        CallOutputItem("f", "call_2", "noon"),
    )
    assert chat_messages(items) == (
        ChatMessage("user", (TextPart("Weather?"),)),
        ChatMessage(
            "assistant",
            (
                TextPart("I look."),
                ToolCall("call_1", "weather", '{"city": "Oslo"}'),
                ToolCall("call_2", "time", "{}"),
            ),
        ),
        ChatMessage("user", (ToolResult("call_1", (TextPart("4 degrees"),)),)),
        ChatMessage("user", (ToolResult("call_2", (TextPart("noon"),)),)),
    )


def test_calls_without_a_result_and_empty_texts_are_omitted() -> None:
    image = ImagePart(url="https://example.com/a.png")
    items = (
        CallItem("a", "call_1", "weather"),
        CallOutputItem("b", "call_2", "noon"),
        MessageItem(
            "c", "user", [AudioContent(None), AudioContent(" "), ImageContent(image), AudioContent("Hello")]
        ),
        message("d", "Be kind", "system"),
    )
    assert chat_messages(items) == (ChatMessage("user", (image, TextPart("Hello"))),)
    assert system_text(items, "Be short") == "Be short\n\nBe kind"


def test_truncation_keeps_the_played_text() -> None:
    spoken = AudioContent("One two three. Four five six.", [(1000, 14), (2000, 29)])
    items = RealtimeConversation(RealtimeMemory(2**30, "full"))
    items.add(MessageItem("a", "assistant", [spoken]))
    with pytest.raises(errors.InvalidInput, match="from 0 to 2000"):
        items.truncate("a", 0, 2001)
    items.truncate("a", 0, 1600)
    assert (spoken.transcript, spoken.duration_ms) == ("One two three. Four", 1600)
    items.truncate("a", 0, 0)
    assert (spoken.transcript, spoken.duration_ms) == ("", 0)
    for item_id, index in (("a", 1), ("b", 0)):
        with pytest.raises(errors.InvalidInput):
            items.truncate(item_id, index, 0)


def test_a_conversation_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MAX_ITEMS", 2)
    monkeypatch.setattr(conversation, "MAX_CHARS", 10)
    items = RealtimeConversation(RealtimeMemory(2**30, "full"))
    items.add(message("a", "12345"))
    with pytest.raises(errors.TooLarge, match="10 characters"):
        items.add(message("b", "123456"))
    with pytest.raises(errors.InvalidInput, match="already"):
        items.add(message("a", ""))
    assert items.add(message("b", "12345")) == "a"
    with pytest.raises(errors.TooLarge, match="2 items"):
        items.add(message("c", ""))
    items.remove("a")
    assert items.add(message("c", ""), conversation.ROOT) is None
    assert [item.id for item in items.items] == ["c", "b"]


def test_parts_of_a_conversation_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MAX_PARTS", 3)
    items = RealtimeConversation(RealtimeMemory(2**30, "full"))
    items.add(MessageItem("a", "user", [TextContent(""), TextContent("")]))
    items.add(CallItem("b", "call_1", "f"))
    with pytest.raises(errors.TooLarge, match="3 message parts"):
        items.add(message("c", ""))


def references(*ids: str) -> list[dict[str, str]]:
    return [{"type": "item_reference", "id": item_id} for item_id in ids]


def test_input_of_a_response_is_as_large_as_a_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MAX_CHARS", 12)
    items = RealtimeConversation(RealtimeMemory(2**30, "full"))
    items.add(message("a", "12345"))
    items.add(message("b", "123"))
    assert [item.id for item in parse_input(references("a", "b", "b"), items)] == ["a", "b", "b"]
    with pytest.raises(errors.TooLarge, match="12 characters"):
        parse_input(references("a", "a", "a"), items)
    with pytest.raises(errors.InvalidInput, match="no item 'c'"):
        parse_input(references("c"), items)


def test_references_to_the_last_of_many_items_take_linear_time() -> None:
    items = RealtimeConversation(RealtimeMemory(2**30, "full"))
    for number in range(conversation.MAX_ITEMS):
        items.add(CallItem(f"item_{number}", "call_1", "f"))
    last = f"item_{conversation.MAX_ITEMS - 1}"

    def parse() -> None:
        assert len(parse_input(references(*[last] * 1_000), items)) == 1_000
        with pytest.raises(InvalidRequest, match="at most 1,000 items"):
            parse_input(references(*[last] * 20_000), items)

    assert loop_time.cpu_seconds(parse, 0.02) < 0.05
