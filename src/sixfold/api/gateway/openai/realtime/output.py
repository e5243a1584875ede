"""The output of a realtime response: its items, and the server events that announce them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from sixfold import errors
from sixfold.api.gateway.openai.realtime import items
from sixfold.core import ids
from sixfold.core.gateway.chat import Event, TextDelta, ToolCallDelta, ToolCallStart
from sixfold.core.gateway.realtime.conversation import RealtimeConversation
from sixfold.core.gateway.realtime.items import (
    AudioContent,
    CallItem,
    MessageItem,
    RealtimeItem,
    ServerCallItem,
    TextContent,
)
from sixfold.core.gateway.tools.servers import ServerTool, ToolOutput

# Characters of the texts and arguments of one response, which each event of the chat copies.
MAX_CHARS: Final = 2**20


class EventSender(Protocol):
    """Sends a server event."""

    async def __call__(self, kind: str, /, **fields: Any) -> None: ...


class RealtimeOutput:
    """Writes the items of one response: a message, function calls, and calls of server tools.

    `conversation` is None for a response outside of the conversation. `server_tools` maps the names that the
    model sees to the tools.
    """

    def __init__(
        self, response_id: str, send: EventSender, conversation: RealtimeConversation | None, *, speaks: bool
    ) -> None:
        self.items: list[RealtimeItem] = []
        self.server_tools: Mapping[str, ServerTool] = {}
        self._response_id = response_id
        self._send = send
        self._conversation = conversation
        self._speaks = speaks
        self._message: MessageItem | None = None
        # Open calls by their number in the chat.
        self._calls: dict[int, CallItem | ServerCallItem] = {}
        # The index of each item by its id.
        self._indexes: dict[str, int] = {}
        self._chars = 0

    @property
    def open_server_calls(self) -> list[ServerCallItem]:
        """The unfinished calls of server tools."""
        return [call for call in self._calls.values() if isinstance(call, ServerCallItem)]

    @property
    def spoken_ms(self) -> int:
        """The duration of all audio in milliseconds."""
        messages = [item for item in self.items if isinstance(item, MessageItem)]
        parts = [part for message in messages for part in message.parts]
        return sum(part.duration_ms for part in parts if isinstance(part, AudioContent))

    async def write(self, event: Event) -> None:
        """Write an event of the chat; raises `TooLarge` for too much text."""
        if isinstance(event, TextDelta | ToolCallDelta):
            self._chars += len(event.text)
            if self._chars > MAX_CHARS:
                raise errors.TooLarge(f"A response can have at most {MAX_CHARS:,} characters")
        match event:
            case TextDelta() if event.text:
                await self._write_text(event.text)
            case ToolCallStart():
                await self._close_message("completed")
                call = self._calls[event.number] = self._new_call(event)
                await self._begin(call)
            case ToolCallDelta() if event.text:
                call = self._calls[event.number]
                call.arguments += event.text
                kind, names = _arguments_event(call, "delta")
                await self._send(kind, **self._place(call), **names, delta=event.text)
            case _:
                pass

    async def write_audio(self, delta: str, end_ms: int, chars: int) -> None:
        """Send base64 audio that ends at `end_ms`, after the first `chars` characters of the transcript."""
        message = self._message
        if message is not None and isinstance(part := message.parts[0], AudioContent):
            part.marks.append((end_ms, chars))
            await self._send(
                "response.output_audio.delta", **self._place(message), content_index=0, delta=delta
            )

    async def close(self, *, complete: bool) -> None:
        """End all items, as completed or incomplete."""
        status = "completed" if complete else "incomplete"
        await self._close_message(status)
        for call in tuple(self._calls.values()):
            if isinstance(call, CallItem):
                call.status = status
                await self._end_arguments(call)
            else:
                call.output, call.failed = "The response ended before the call was made", True
            await self._end(call)
        self._calls.clear()

    async def begin_server_call(self, call: ServerCallItem) -> None:
        """Announce the call of a server tool."""
        await self._close_message("completed")
        await self._end_arguments(call)
        await self._send("response.mcp_call.in_progress", **self._place(call, with_response=False))

    async def end_server_call(self, call: ServerCallItem, output: ToolOutput) -> None:
        """Add the output of a call and complete the call."""
        call.output, call.failed = output.text, output.failed
        kind = "failed" if output.failed else "completed"
        await self._send(f"response.mcp_call.{kind}", **self._place(call, with_response=False))
        await self._end(call)
        self._calls = {number: other for number, other in self._calls.items() if other is not call}

    def _new_call(self, event: ToolCallStart) -> CallItem | ServerCallItem:
        tool = self.server_tools.get(event.name)
        if tool is not None:
            return ServerCallItem(items.new_id(), tool.server, tool.spec.name, event.name)
        return CallItem(items.new_id(), event.id or ids.new("call"), event.name, status="in_progress")

    async def _end_arguments(self, call: CallItem | ServerCallItem) -> None:
        call.arguments = call.arguments or "{}"
        kind, names = _arguments_event(call, "done")
        if isinstance(call, CallItem):
            names |= {"name": call.name}
        await self._send(kind, **self._place(call), **names, arguments=call.arguments)

    async def _write_text(self, text: str) -> None:
        message = self._message
        if message is None:
            part = AudioContent("") if self._speaks else TextContent("")
            message = self._message = MessageItem(items.new_id(), "assistant", [], "in_progress")
            await self._begin(message)
            message.parts.append(part)
            await self._send(
                "response.content_part.added", **self._place(message), content_index=0, part=_part(part)
            )
        part = message.parts[0]
        if isinstance(part, AudioContent):
            part.transcript = (part.transcript or "") + text
            kind = "response.output_audio_transcript.delta"
        elif isinstance(part, TextContent):
            part.text += text
            kind = "response.output_text.delta"
        else:
            return
        await self._send(kind, **self._place(message), content_index=0, delta=text)

    async def _close_message(self, status: Any) -> None:
        message, self._message = self._message, None
        if message is None:
            return
        message.status = status
        place = {**self._place(message), "content_index": 0}
        part = message.parts[0] if message.parts else TextContent("")
        if isinstance(part, AudioContent):
            await self._send("response.output_audio.done", **place)
            await self._send("response.output_audio_transcript.done", **place, transcript=part.transcript)
        elif isinstance(part, TextContent):
            await self._send("response.output_text.done", **place, text=part.text)
        await self._send("response.content_part.done", **place, part=_part(part))
        await self._end(message)

    async def _begin(self, item: RealtimeItem) -> None:
        self._indexes[item.id] = len(self.items)
        self.items.append(item)
        await self._send("response.output_item.added", **self._position(item), item=items.render(item))
        if self._conversation is not None:
            previous = self._conversation.add(item)
            await self._send("conversation.item.added", previous_item_id=previous, item=items.render(item))

    async def _end(self, item: RealtimeItem) -> None:
        if self._conversation is not None:
            previous = self._conversation.previous_of(item.id)
            await self._send("conversation.item.done", previous_item_id=previous, item=items.render(item))
        await self._send("response.output_item.done", **self._position(item), item=items.render(item))

    def _position(self, item: RealtimeItem) -> dict[str, Any]:
        return {"response_id": self._response_id, "output_index": self._indexes[item.id]}

    def _place(self, item: RealtimeItem, *, with_response: bool = True) -> dict[str, Any]:
        place = {**self._position(item), "item_id": item.id}
        return place if with_response else {name: place[name] for name in ("output_index", "item_id")}


def _arguments_event(call: CallItem | ServerCallItem, stage: str) -> tuple[str, dict[str, Any]]:
    """Return the type of an event about the arguments of a call, and the fields that name the call."""
    if isinstance(call, CallItem):
        return f"response.function_call_arguments.{stage}", {"call_id": call.call_id}
    return f"response.mcp_call_arguments.{stage}", {}


def _part(part: Any) -> Mapping[str, Any]:
    if isinstance(part, AudioContent):
        return {"type": "audio", "transcript": part.transcript or ""}
    return {"type": "text", "text": part.text}
