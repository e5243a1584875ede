"""Masking of the texts of a stream: an item is forwarded as soon as all of its text is decided.

An item is a line of an event stream, or a protocol-independent event. Texts of one channel, such as the
content of one choice, continue each other. Text that cannot belong to a match is never delayed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    AsyncGenerator,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, suppress
from typing import Any, Generic, NoReturn, Protocol, TypeVar, cast

import msgspec
from msgspec.structs import replace

from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.gateway.chat import (
    Event,
    MessageEnd,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)
from sixfold.core.gateway.guardrails import masking, texts
from sixfold.core.gateway.guardrails.masking import Span, TextMasker
from sixfold.core.gateway.ports import UpstreamFailure
from sixfold.core.input_limits import json_decoding
from sixfold.errors import EngineFailed, SixfoldError

T = TypeVar("T")
Item = TypeVar("Item", covariant=True)
_encode = msgspec.json.Encoder().encode
_DELTA_FIELDS = ("content", "reasoning_content", "reasoning", "refusal")
# The tool calls of a choice, whose texts are identified by their `index`.
_DELTA_CALLS = "tool_calls"
_BLOCK_FIELDS = ("text", "thinking", "partial_json")
MAX_CHANNELS = 4_000
# Items that wait until the text of an earlier item of another channel is decided; each takes up to 2 KB.
_MAX_DELAYED = 5_000
# Bytes of these items, and of an incomplete line.
_MAX_DELAYED_BYTES = 8 * 2**20
# Longer names of channels are cut.
_MAX_NAME = 200
# Lines that are masked in one iteration of the event loop, about 10 ms.
_TURN_LINES = 100
_DATA = b"data:"


class StreamItem(Protocol[Item]):
    """An item of a stream with its texts.

    `ends` contains the groups of channels that end with the item, except for the channels of its texts.
    """

    ends: tuple[Hashable, ...]

    @property
    def size(self) -> int:
        """The bytes of a line, or the characters of an event."""
        ...

    @property
    def pieces(self) -> Sequence[tuple[Channel, str]]:
        """The texts that continue a channel."""
        ...

    def changed(self, pieces: Sequence[str]) -> Item: ...


# A group of channels, such as one choice, and the channel in it.
Channel = tuple[Hashable, Hashable]


class _ChannelState(msgspec.Struct):
    """The masked parts of a channel that are not forwarded yet, and the number of its characters."""

    masker: TextMasker
    length: int = 0
    # The position at which the current masker begins.
    began: int = 0
    ended: bool = False
    spans: list[Span] = []

    @property
    def decided(self) -> int:
        return self.length if self.ended else self.began + self.masker.decided

    def add(self, spans: Iterable[Span]) -> None:
        """Add spans, whose offsets are relative to the beginning of their masker."""
        began = self.began
        self.spans += [Span(span.start + began, span.end + began, span.text) for span in spans]


class _Held(msgspec.Struct, Generic[T], frozen=True):
    """A delayed item, with the channel, the beginning and the content of each of its texts."""

    item: StreamItem[T]
    pieces: tuple[tuple[_ChannelState, int, str], ...]

    @property
    def is_decided(self) -> bool:
        return all(start + len(text) <= state.decided for state, start, text in self.pieces)

    def masked(self) -> T:
        outputs: list[str] = []
        for state, start, text in self.pieces:
            outputs.append(masking.apply(text, state.spans, start) if state.spans else text)
            end = start + len(text)
            if state.spans and state.spans[0].end <= end:
                state.spans[:] = [span for span in state.spans if span.end > end]
        return self.item.changed(outputs)


class StreamMasker(Generic[T]):
    """Masks the items of one stream."""

    def __init__(self, kinds: Collection[str]) -> None:
        self._kinds = kinds
        self._channels: dict[Channel, _ChannelState] = {}
        # The open channels, by group.
        self._open: dict[Hashable, dict[Channel, _ChannelState]] = {}
        self._queue: deque[_Held[T]] = deque()
        self._delayed_bytes = 0

    def add(self, item: StreamItem[T]) -> Iterator[T]:
        """Add an item, and yield the items that can be forwarded now."""
        own = {channel for channel, _ in item.pieces}
        for group in item.ends:
            self._end(group, own)
        pieces = tuple(self._piece(channel, text) for channel, text in item.pieces)
        self._queue.append(_Held(item, pieces))
        self._delayed_bytes += item.size
        yield from self._release()
        if len(self._queue) > _MAX_DELAYED or self._delayed_bytes > _MAX_DELAYED_BYTES:
            raise UpstreamFailure("sent a stream that cannot be masked: it interleaves too many texts")

    def end(self) -> Iterator[T]:
        """Yield the remaining items."""
        for group in tuple(self._open):
            self._end(group)
        return self._release()

    def _piece(self, channel: Channel, text: str) -> tuple[_ChannelState, int, str]:
        state = self._channels.get(channel)
        if state is None:
            if len(self._channels) >= MAX_CHANNELS:
                raise UpstreamFailure(f"sent a stream with more than {MAX_CHANNELS:,} text channels")
            state = self._channels[channel] = _ChannelState(TextMasker(self._kinds))
        elif state.ended:
            state.masker, state.began, state.ended = TextMasker(self._kinds), state.length, False
        self._open.setdefault(channel[0], {})[channel] = state
        start = state.length
        state.length += len(text)
        for at in range(0, len(text), masking.SLICE):
            state.add(state.masker.feed(text[at : at + masking.SLICE]))
        return state, start, text

    def _end(self, group: Hashable, but: Collection[Channel] = ()) -> None:
        """End the open channels of a group, except those in `but`."""
        channels = self._open.pop(group, {})
        open_channels = {channel: channels.pop(channel) for channel in but if channel in channels}
        if open_channels:
            self._open[group] = open_channels
        for state in channels.values():
            state.add(state.masker.end())
            state.ended = True

    def _release(self) -> Iterator[T]:
        while self._queue and self._queue[0].is_decided:
            held = self._queue.popleft()
            self._delayed_bytes -= held.item.size
            yield held.masked()


class EventLine:
    """A line of an event stream in OpenAI's or Anthropic's protocol; only JSON data contains texts."""

    def __init__(self, line: bytes, kinds: Collection[str]) -> None:
        self._line = line
        self._document: Any = None
        self.is_changed = False
        self._slots: list[Any] = []
        self.pieces: list[tuple[Channel, str]] = []
        self.ends: tuple[Hashable, ...] = ()
        self.size = len(line)
        if line.startswith(b"data:") and line[5:].lstrip()[:1] == b"{":
            try:
                self._document = json_decoding.decode_whole(line[5:])
            except (msgspec.MsgspecError, UnicodeError, RecursionError):
                return
            self._read(kinds)

    def _read(self, kinds: Collection[str]) -> None:
        document = self._document
        if texts.drop_tokens(document):
            self.is_changed = True
        kind = document.get("type")
        if not isinstance(kind, str):
            self._read_choices(document.get("choices"))
            return
        if kind == "ping":
            return
        self.ends = (0,)
        delta = document.get("delta")
        if kind == "content_block_delta" and isinstance(delta, dict):
            for name in _BLOCK_FIELDS:
                self._add((0, (_name(document.get("index")), name)), delta, name)
            if not self.pieces:
                self._mask_whole(kinds)
        elif kind.endswith(".delta") and isinstance(delta, str):
            place = [_name(document.get(name)) for name in ("item_id", "content_index", "summary_index")]
            self._add((0, (kind, *place)), document, "delta")
        else:
            # The event repeats the whole text, or begins a block.
            self._mask_whole(kinds)

    def _mask_whole(self, kinds: Collection[str]) -> None:
        for slot in texts.slots(self._document):
            masked = masking.mask(slot.text, kinds)
            if masked != slot.text:
                slot.text = masked
                self.is_changed = True

    def _read_choices(self, choices: Any) -> None:
        for choice in cast("list[Any]", choices) if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                continue
            members = cast("dict[str, Any]", choice)
            group = ("choice", _name(members.get("index")))
            count = len(self.pieces)
            self._add((group, "text"), members, "text")
            delta = members.get("delta")
            if isinstance(delta, dict):
                self._read_delta(group, cast("dict[str, Any]", delta))
            if len(self.pieces) > count or members.get("finish_reason"):
                self.ends += (group,)

    def _read_delta(self, group: Hashable, delta: dict[str, Any]) -> None:
        for name, value in delta.items():
            if name in _DELTA_FIELDS and isinstance(value, str):
                self._add((group, name), delta, name)
            elif name != _DELTA_CALLS and isinstance(value, dict | list):
                # Fields of other servers, such as `reasoning_details`: texts of one kind continue each other.
                for slot in texts.slots(cast("Any", value)):
                    self._add((group, (name, slot.key)), slot.container, slot.key)
        calls = delta.get(_DELTA_CALLS)
        for call in cast("list[Any]", calls) if isinstance(calls, list) else ():
            fields = cast("dict[str, Any]", call) if isinstance(call, dict) else {}
            function = fields.get("function")
            if isinstance(function, dict):
                self._add((group, ("tool", _name(fields.get("index")))), function, "arguments")

    def _add(self, channel: Channel, container: Any, name: str | int) -> None:
        text = container[name] if isinstance(name, int) else container.get(name)
        if isinstance(text, str) and text:
            self.pieces.append((channel, text))
            self._slots.append((container, name))

    def replace_whole(self, changes: Mapping[str, str]) -> None:
        """Replace texts that repeat the whole text of a channel."""
        if self._document is None or self.pieces:
            return
        for slot in texts.slots(self._document):
            if slot.text in changes:
                slot.text = changes[slot.text]
                self.is_changed = True

    def changed(self, pieces: Sequence[str]) -> bytes:
        """Return the line with its texts replaced, or the same bytes if nothing changes."""
        for (container, name), (_, before), text in zip(self._slots, self.pieces, pieces, strict=True):
            if text != before:
                container[name] = text
                self.is_changed = True
        if not self.is_changed:
            return self._line
        return b"data: " + _encode(self._document) + self._line[len(self._line.rstrip(b"\r\n")) :]


def _name(value: Any) -> str | int | None:
    """Return the index or id of a channel; values of other types name the same channel."""
    return value[:_MAX_NAME] if isinstance(value, str) else value if isinstance(value, int) else None


class PlainEvent:
    """A protocol-independent event."""

    __slots__ = ("_event", "ends", "pieces")

    def __init__(self, event: Event) -> None:
        self._event = event
        self.pieces: list[tuple[Channel, str]] = []
        self.ends: tuple[Hashable, ...] = (0,)
        match event:
            case TextDelta():
                self.pieces.append(((0, "text"), event.text))
            case ReasoningDelta():
                self.pieces.append(((0, "reasoning"), event.text))
            case ToolCallDelta():
                self.pieces.append(((0, ("tool", event.number)), event.text))
            case ToolCallStart() | MessageEnd():
                pass

    @property
    def size(self) -> int:
        return sum(len(text) for _, text in self.pieces)

    def changed(self, pieces: Sequence[str]) -> Event:
        """Return the event with its texts replaced."""
        return replace(cast("TextDelta", self._event), text=pieces[0]) if pieces else self._event


async def mask_blocks(source: AsyncGenerator[bytes], kinds: Collection[str]) -> AsyncGenerator[bytes]:
    """Yield the bytes of an event stream with its texts masked."""
    masker = StreamMasker[bytes](kinds)
    partial_line = b""
    async with aclosing(source):
        try:
            async for block in source:
                lines = (partial_line + block).split(b"\n")
                partial_line = lines.pop()
                _check_line(partial_line)
                output: list[bytes] = []
                for number, line in enumerate(lines, 1):
                    output += await PARSER.run_large(
                        len(line) * masking.COST, _masked_line, masker, line + b"\n", kinds
                    )
                    if not number % _TURN_LINES:
                        await asyncio.sleep(0)
                if output:
                    yield b"".join(output)
            last: list[bytes] = []
            if partial_line:
                size = len(partial_line) * masking.COST
                last = await PARSER.run_large(size, _masked_line, masker, partial_line, kinds)
        except SixfoldError:
            yield b"".join(masker.end())
            raise
        except UpstreamFailure as failure:
            await _end_failed(source, failure)
        yield b"".join([*last, *masker.end()])


def _check_line(line: bytes) -> None:
    if len(line) > _MAX_DELAYED_BYTES:
        raise UpstreamFailure("sent a line that is too long to be masked")


def _masked_line(masker: StreamMasker[bytes], line: bytes, kinds: Collection[str]) -> list[bytes]:
    return list(masker.add(EventLine(line, kinds)))


async def mask_events(source: AsyncGenerator[Event], kinds: Collection[str]) -> AsyncGenerator[Event]:
    """Yield events with their texts masked."""
    masker = StreamMasker[Event](kinds)
    async with aclosing(source):
        try:
            async for event in source:
                item = PlainEvent(event)
                size = item.size * masking.COST
                for output in await PARSER.run_large(size, _masked_event, masker, item):
                    yield output
        except SixfoldError:
            for output in masker.end():
                yield output
            raise
        except UpstreamFailure as failure:
            await _end_failed(source, failure)
        for output in masker.end():
            yield output


def _masked_event(masker: StreamMasker[Event], event: PlainEvent) -> list[Event]:
    return list(masker.add(event))


async def _end_failed(source: AsyncGenerator[Any], failure: UpstreamFailure) -> NoReturn:
    """End a stream as failed, so that it is not charged as one whose caller left; raises `EngineFailed`."""
    with suppress(UpstreamFailure):
        await source.athrow(failure)
    raise EngineFailed(f"The model server {failure}")


class CollectedStream(Generic[T]):
    """The items of a complete stream, whose texts can be replaced as a whole."""

    def __init__(self, items: Sequence[StreamItem[T]]) -> None:
        self._items = items
        self._places: dict[Channel, list[tuple[int, int]]] = {}
        parts: dict[Channel, list[str]] = {}
        for number, item in enumerate(items):
            for index, (channel, text) in enumerate(item.pieces):
                self._places.setdefault(channel, []).append((number, index))
                parts.setdefault(channel, []).append(text)
        self.texts = ["".join(part) for part in parts.values()]

    def output(self, replacements: Sequence[str]) -> list[T]:
        """Return the items with their texts replaced; the first item of a channel contains all its text."""
        pieces = [[text for _, text in item.pieces] for item in self._items]
        changes: dict[str, str] = {}
        for places, before, after in zip(self._places.values(), self.texts, replacements, strict=True):
            if before == after:
                continue
            changes[before] = after
            for number, index in places:
                pieces[number][index] = ""
            first, index = places[0]
            pieces[first][index] = after
        for item in self._items if changes else ():
            if isinstance(item, _CollectedLine):
                item.replace_whole(changes)
        return [item.changed(own) for item, own in zip(self._items, pieces, strict=True)]


class _CollectedLine:
    """A data line with the lines before it; its document is decoded again if something is replaced."""

    __slots__ = ("_before", "_changes", "_drops_tokens", "_line", "ends", "pieces")

    def __init__(self, before: bytes, line: bytes) -> None:
        self._before = before
        self._line = line
        self._changes: Mapping[str, str] = {}
        event = EventLine(line, ())
        self.pieces, self._drops_tokens = event.pieces, event.is_changed
        self.ends: tuple[Hashable, ...] = ()

    @property
    def size(self) -> int:
        return len(self._before) + len(self._line)

    def replace_whole(self, changes: Mapping[str, str]) -> None:
        """Replace texts that repeat the whole text of a channel."""
        self._changes = changes

    def changed(self, pieces: Sequence[str]) -> bytes:
        is_same = all(new == old for new, (_, old) in zip(pieces, self.pieces, strict=True))
        if is_same and not self._changes and not self._drops_tokens:
            return self._before + self._line
        line = EventLine(self._line, ())
        if self._changes:
            line.replace_whole(self._changes)
        return self._before + line.changed(pieces)


def lines_of(data: bytes) -> Iterator[StreamItem[bytes]]:
    """Yield the data lines of a stream of events, each with the other lines before it."""
    at = 0
    while at < len(data):
        start = at if data.startswith(_DATA, at) else data.find(b"\n" + _DATA, at) + 1 or len(data)
        end = data.find(b"\n", start) + 1 or len(data)
        yield _CollectedLine(data[at:start], data[start:end])
        at = end
