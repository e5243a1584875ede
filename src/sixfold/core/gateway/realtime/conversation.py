"""A realtime conversation: its ordered items, and their conversion to the messages of a chat."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sixfold import errors
from sixfold.core.gateway.chat import ChatMessage, Part, TextPart, ToolCall, ToolResult
from sixfold.core.gateway.realtime.items import (
    AudioContent,
    CallItem,
    CallOutputItem,
    ContentPart,
    ImageContent,
    MessageItem,
    RealtimeItem,
    ServerCallItem,
    TextContent,
    stored_bytes,
)
from sixfold.core.gateway.realtime.memory import RealtimeMemory

MAX_ITEMS: Final = 1_000
# Maximum number of parts of all messages, which are counted with each new item.
MAX_PARTS: Final = 2_000
# Maximum number of characters of texts, arguments, results and images in base64.
MAX_CHARS: Final = 4 * 2**20
# The position before the first item.
ROOT: Final = "root"


class RealtimeConversation:
    """The items of one connection, whose texts count in the memory of the account."""

    def __init__(self, memory: RealtimeMemory) -> None:
        self._items: list[RealtimeItem] = []
        self._memory = memory
        self._counted = 0

    def __len__(self) -> int:
        return len(self._items)

    @property
    def items(self) -> Sequence[RealtimeItem]:
        """The items in order."""
        return tuple(self._items)

    def add(self, item: RealtimeItem, previous_id: str | None = None) -> str | None:
        """Insert an item after another item, by default at the end; return the id of the preceding item.

        Raises `InvalidInput` if the id is in use, `TooLarge` if the conversation is full, and
        `TooManyRequests` if the account has no more memory.
        """
        if any(item.id == other.id for other in self._items):
            raise errors.InvalidInput.of("item.id", f"The conversation already has an item {item.id[:64]!r}")
        check_size((*self._items, item))
        position = len(self._items)
        if previous_id is not None:
            position = 0 if previous_id == ROOT else self._position(previous_id, "previous_item_id") + 1
        self._count((*self._items, item))
        self._items.insert(position, item)
        return self._items[position - 1].id if position else None

    def find(self, item_id: str) -> RealtimeItem:
        """Return an item; raises `InvalidInput`."""
        return self._items[self._position(item_id, "item_id")]

    def by_id(self) -> dict[str, RealtimeItem]:
        """Return the items by id."""
        return {item.id: item for item in self._items}

    def previous_of(self, item_id: str) -> str | None:
        """Return the id of the preceding item; None for the first item and for a deleted item."""
        ids = [item.id for item in self._items]
        position = ids.index(item_id) if item_id in ids else 0
        return ids[position - 1] if position else None

    def remove(self, item_id: str) -> None:
        """Delete an item; raises `InvalidInput`."""
        del self._items[self._position(item_id, "item_id")]
        self._release(stored_bytes(self._items))

    def clear(self) -> None:
        """Delete all items."""
        self._items.clear()
        self._release(0)

    def truncate(self, item_id: str, content_index: int, end_ms: int) -> None:
        """Truncate the audio of a model's message at `end_ms`.

        Raises `InvalidInput` if the part is not audio from the model or is shorter.
        """
        item = self.find(item_id)
        part = None
        if isinstance(item, MessageItem) and item.role == "assistant" and content_index < len(item.parts):
            part = item.parts[content_index]
        if not isinstance(part, AudioContent):
            raise errors.InvalidInput.of(
                "item_id", f"Part {content_index} of the item {item_id[:64]!r} is not audio from the model"
            )
        if not 0 <= end_ms <= part.duration_ms:
            raise errors.InvalidInput.of(
                "audio_end_ms", f"audio_end_ms must be from 0 to {part.duration_ms}, the length of this audio"
            )
        part.truncate(end_ms)

    def _count(self, items: Sequence[RealtimeItem]) -> None:
        """Count the current texts of these items, which responses may have extended."""
        size = stored_bytes(items)
        if size > self._counted:
            self._memory.take(size - self._counted)
            self._counted = size
        else:
            self._release(size)

    def _release(self, size: int) -> None:
        """Release the memory beyond `size` bytes."""
        self._memory.release(max(0, self._counted - size))
        self._counted = min(self._counted, size)

    def _position(self, item_id: str, name: str) -> int:
        for position, item in enumerate(self._items):
            if item.id == item_id:
                return position
        raise errors.InvalidInput.of(name, f"The conversation has no item {item_id[:64]!r}")


def check_size(items: Sequence[RealtimeItem]) -> None:
    """Raise `TooLarge` if these items are too many or too long for one conversation."""
    totals = (
        ("items", len(items), MAX_ITEMS),
        ("message parts", sum(item.size for item in items), MAX_PARTS),
        ("characters", sum(item.chars for item in items), MAX_CHARS),
    )
    for noun, total, limit in totals:
        if total > limit:
            raise errors.TooLarge(
                f"A conversation can have at most {limit:,} {noun} (got {total:,}): delete some items"
            )


def system_text(items: Iterable[RealtimeItem], instructions: str) -> str:
    """Return the instructions and the system messages."""
    texts = [instructions]
    for item in items:
        if isinstance(item, MessageItem) and item.role == "system":
            texts += [part.text for part in item.parts if isinstance(part, TextContent)]
    return "\n\n".join(text for text in texts if text)


def chat_messages(items: Iterable[RealtimeItem]) -> tuple[ChatMessage, ...]:
    """Return the items as messages; a call belongs to the model's message before it.

    Calls without a result are left out, and results without a call, because model servers reject them.
    """
    items = tuple(items)
    calls = {item.call_id for item in items if isinstance(item, CallItem)}
    answered = calls & {item.call_id for item in items if isinstance(item, CallOutputItem)}
    messages: list[ChatMessage] = []
    for item in items:
        parts = _parts(item, answered)
        if not parts:
            continue
        is_call = isinstance(item, CallItem | ServerCallItem)
        is_model = is_call or (isinstance(item, MessageItem) and item.role == "assistant")
        if is_call and messages and messages[-1].role == "assistant":
            parts = (*messages.pop().parts, *parts)
        messages.append(ChatMessage("assistant" if is_model else "user", parts))
        if isinstance(item, ServerCallItem):
            output = (TextPart(item.output or ""),)
            messages.append(ChatMessage("user", (ToolResult(item.id, output, item.failed),)))
    return tuple(messages)


def _parts(item: RealtimeItem, answered: set[str]) -> tuple[Part, ...]:
    match item:
        case MessageItem(role="system"):
            return ()
        case MessageItem():
            return tuple(part for part in map(_part, item.parts) if part is not None)
        case CallItem() if item.call_id in answered:
            return (ToolCall(item.call_id, item.name, item.arguments or "{}"),)
        case CallOutputItem() if item.call_id in answered:
            return (ToolResult(item.call_id, (TextPart(item.output),)),)
        case ServerCallItem() if item.output is not None:
            return (ToolCall(item.id, item.shown_name, item.arguments or "{}"),)
        case _:
            return ()


def _part(part: ContentPart) -> Part | None:
    if isinstance(part, ImageContent):
        return part.image
    text = part.text if isinstance(part, TextContent) else part.transcript or ""
    return TextPart(text) if text.strip() else None
