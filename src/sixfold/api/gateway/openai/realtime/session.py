"""A realtime session: its configuration, its conversation, and the events of its client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from sixfold import errors
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai import parsing
from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.realtime import configuration, items, tool_lists
from sixfold.api.gateway.openai.realtime.configuration import ServerTools, SessionConfiguration
from sixfold.api.gateway.openai.realtime.input_audio import InputAudio
from sixfold.api.gateway.openai.realtime.output import EventSender
from sixfold.api.gateway.openai.realtime.responses import ResponseRequest, ResponseRun
from sixfold.api.gateway.openai.realtime.services import RealtimeServices
from sixfold.api.gateway.openai.realtime.transcriptions import InputRecording, InputTranscriptions
from sixfold.core import ids
from sixfold.core.gateway.realtime.conversation import RealtimeConversation
from sixfold.core.gateway.realtime.items import AudioContent, MessageItem, stored_bytes

# Responses at once, of which one may be in the conversation.
MAX_RESPONSES = 4
_MAX_METADATA, _MAX_KEY, _MAX_VALUE = 16, 64, 512
Event = Mapping[str, Any]


class ActiveResponse(InvalidRequest):
    """The conversation has an active response."""

    code = "conversation_already_has_active_response"


class NoActiveResponse(InvalidRequest):
    """There is no response to cancel."""

    code = "response_cancel_not_active"


class RealtimeSession:
    """Handles the events of a client; `track` watches a task of the session.

    The session ends at `expires_at`, in seconds since the epoch.
    """

    def __init__(
        self,
        initial: SessionConfiguration,
        services: RealtimeServices,
        send: EventSender,
        track: Callable[[asyncio.Task[None]], None],
        expires_at: int,
    ) -> None:
        self.id = ids.new("sess")
        self._expires_at = expires_at
        self._configuration = initial
        self._services = services
        self._send = send
        self._track = track
        self._conversation = RealtimeConversation(services.memory)
        self._transcriptions = InputTranscriptions(services, send, services.audio_memory, track)
        self._audio = InputAudio(initial.audio.input, services.audio_memory, send, self)
        self._idle: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._conversation_id = ids.new("conv")
        self._runs: dict[str, ResponseRun] = {}
        self._handlers: dict[str, Callable[[Event], Awaitable[None]]] = {
            "session.update": self._update,
            "input_audio_buffer.append": self._audio.append,
            "input_audio_buffer.commit": self._audio.commit,
            "input_audio_buffer.clear": self._audio.clear,
        }
        if not initial.only_transcribes:
            self._handlers |= {
                "conversation.item.create": self._create_item,
                "conversation.item.retrieve": self._retrieve_item,
                "conversation.item.delete": self._delete_item,
                "conversation.item.truncate": self._truncate_item,
                "response.create": self._create_response,
                "response.cancel": self._cancel_response,
            }

    async def begin(self) -> None:
        """Send `session.created`, and start listing the tools of MCP servers."""
        await self._send("session.created", session=self._document())
        self._list_tools(())

    async def handle(self, event: Event) -> None:
        """Handle one event of the client; raises `SixfoldError`."""
        kind = event.get("type")
        handler = self._handlers.get(kind) if isinstance(kind, str) else None
        if handler is None:
            names = ", ".join(self._handlers)
            raise InvalidRequest(f"type must be one of {names} (got {str(kind)[:60]!r})", param="type")
        await handler(event)

    def close(self) -> None:
        """Release the audio of the session, and stop responding to silence."""
        self._is_closed = True
        self._stop_idle()
        self._audio.close()
        self._transcriptions.close()

    def discard_items(self) -> None:
        """Delete all items, whose texts would stay in memory until Python has found the session's cycles."""
        self._conversation.clear()

    def _document(self) -> dict[str, Any]:
        settings = self._configuration
        shared = {"id": self.id, "object": settings.object_type, "expires_at": self._expires_at}
        return {**shared, **configuration.document(settings)}

    async def _update(self, event: Event) -> None:
        changes = parsing.mapping(event.get("session"), "session")
        changed = configuration.updated(self._configuration, changes)
        self._services.check_voice(changed.audio.output)
        self._services.check_transcription(changed.audio.input.transcription)
        await self._services.check_tools(changed)
        previous_tools = self._configuration.server_tools
        self._configuration = changed
        self._audio.configure(changed.audio.input)
        await self._send("session.updated", session=self._document())
        self._list_tools(previous_tools)

    def _list_tools(self, previous_tools: Sequence[ServerTools]) -> None:
        """Announce the tools of servers that are not listed yet, in separate tasks."""
        for tools in self._configuration.server_tools:
            if tools not in previous_tools:
                settings = msgspec.structs.replace(self._configuration, tools=[tools])
                listing = tool_lists.announce(self._services, self._send, self._conversation, settings)
                self._track(asyncio.create_task(listing))

    # -- items -----------------------------------------------------------------------------------

    async def _create_item(self, event: Event) -> None:
        item = items.parse(event.get("item"))
        previous = self._conversation.add(item, _optional_text(event, "previous_item_id"))
        document = items.render(item)
        await self._send("conversation.item.added", previous_item_id=previous, item=document)
        await self._send("conversation.item.done", previous_item_id=previous, item=document)

    async def _retrieve_item(self, event: Event) -> None:
        item = self._conversation.find(_text(event, "item_id"))
        await self._send("conversation.item.retrieved", item=items.render(item))

    async def _delete_item(self, event: Event) -> None:
        item_id = _text(event, "item_id")
        self._conversation.remove(item_id)
        self._transcriptions.discard(item_id)
        await self._send("conversation.item.deleted", item_id=item_id)

    async def _truncate_item(self, event: Event) -> None:
        item_id, index = _text(event, "item_id"), _integer(event, "content_index")
        end_ms = _integer(event, "audio_end_ms")
        self._conversation.truncate(item_id, index, end_ms)
        place = {"item_id": item_id, "content_index": index, "audio_end_ms": end_ms}
        await self._send("conversation.item.truncated", **place)

    # -- responses -------------------------------------------------------------------------------

    async def _create_response(self, event: Event) -> None:
        fields = dict(configuration.mapping(event, "response"))
        metadata = _metadata(fields.pop("metadata", None))
        kind = fields.pop("conversation", None) or "auto"
        if kind not in ("auto", "none"):
            raise InvalidRequest("response.conversation must be auto or none", param="response.conversation")
        input_items = fields.pop("input", None)
        is_in_conversation = kind == "auto"
        settings = configuration.for_response(self._configuration, fields)
        self._services.check_voice(settings.audio.output)
        request = ResponseRequest(
            configuration=settings,
            history=self._conversation,
            conversation=self._conversation if is_in_conversation else None,
            conversation_id=self._conversation_id if is_in_conversation else None,
            transcriptions=self._transcriptions,
            input=None if input_items is None else tuple(items.parse_input(input_items, self._conversation)),
            metadata=metadata,
            event_id=event_id(event),
        )
        await self._respond(request)

    async def _respond(self, request: ResponseRequest) -> None:
        active = self._active()
        if request.conversation is not None and active is not None:
            raise ActiveResponse(
                f"Conversation already has an active response in progress: {active.id}. Wait until the "
                "response is finished before creating a new one."
            )
        if len(self._runs) >= MAX_RESPONSES:
            raise errors.TooManyRequests(
                f"A session can have at most {MAX_RESPONSES} responses at a time: wait until one has ended"
            )
        # The request of a model server contains these texts until the response has begun.
        size = stored_bytes(self._conversation.items if request.input is None else request.input)
        self._services.memory.take(size)
        self._stop_idle()
        run = ResponseRun(request, self._services, self._send)
        self._runs[run.id] = run
        try:
            task = await run.start()
        except BaseException:
            self._services.memory.release(size)
            raise
        task.add_done_callback(lambda _task: self._services.memory.release(size))
        task.add_done_callback(lambda _task: self._on_end(run))
        self._track(task)

    async def _continue(self, request: ResponseRequest) -> None:
        """Begin the response to the outputs of tools, unless the client or a turn has begun a response."""
        try:
            await self._respond(request)
        except ActiveResponse:
            return
        except errors.SixfoldError as error:
            await self._send("error", error={**openai_errors.document(error)["error"], "event_id": None})

    async def _cancel_response(self, event: Event) -> None:
        response_id = _optional_text(event, "response_id")
        run = self._active() if response_id is None else self._runs.get(response_id)
        if run is None:
            raise NoActiveResponse("Cancellation failed: no active response found")
        await run.cancel("client_cancelled")

    def _on_end(self, run: ResponseRun) -> None:
        self._runs.pop(run.id, None)
        if self._is_closed:
            # The responses that the end of the websocket cancels end after it.
            return
        following = run.next_request
        if following is not None:
            self._track(asyncio.create_task(self._continue(following)))
            return
        turns = self._configuration.audio.input.turn_detection
        if run.is_in_conversation and turns is not None and turns.idle_timeout_ms is not None:
            milliseconds = run.spoken_ms + turns.idle_timeout_ms
            self._idle = asyncio.get_running_loop().call_later(
                milliseconds / 1000, self._start_idle_turn, turns.idle_timeout_ms
            )

    def _active(self) -> ResponseRun | None:
        return next((run for run in self._runs.values() if run.is_in_conversation), None)

    # -- turns of the user -----------------------------------------------------------------------

    async def interrupt(self) -> None:
        """Cancel the response in the conversation, because the user speaks."""
        self._stop_idle()
        active = self._active()
        if active is not None:
            await active.cancel("turn_detected")

    async def add_turn(self, item_id: str, pcm: bytes, rate: int) -> None:
        """Add audio of the user to the conversation."""
        self._stop_idle()
        content = AudioContent()
        try:
            await self._add_audio(item_id, content)
        except errors.SixfoldError:
            self._services.audio_memory.release(len(pcm))
            raise
        settings = self._configuration.audio.input.transcription
        self._transcriptions.add(InputRecording(item_id, content, pcm, rate, settings))

    async def respond(self) -> None:
        """Create a response to the conversation, unless the session only transcribes."""
        if self._configuration.only_transcribes:
            return
        await self._respond(
            ResponseRequest(
                configuration=self._configuration,
                history=self._conversation,
                conversation=self._conversation,
                conversation_id=self._conversation_id,
                transcriptions=self._transcriptions,
            )
        )

    async def _add_audio(self, item_id: str, content: AudioContent) -> None:
        item = MessageItem(item_id, "user", [content])
        previous = self._conversation.add(item)
        if previous is not None and self._configuration.only_transcribes:
            # No response reads it again.
            self._conversation.remove(previous)
        document = items.render(item)
        await self._send("input_audio_buffer.committed", previous_item_id=previous, item_id=item_id)
        await self._send("conversation.item.added", previous_item_id=previous, item=document)
        await self._send("conversation.item.done", previous_item_id=previous, item=document)

    def _start_idle_turn(self, idle_ms: int) -> None:
        self._track(asyncio.create_task(self._take_idle_turn(idle_ms)))

    async def _take_idle_turn(self, idle_ms: int) -> None:
        """Respond to a silence that has lasted for the idle timeout."""
        item_id, end_ms = items.new_id(), self._audio.end_ms
        place = {"audio_start_ms": max(0, end_ms - idle_ms), "audio_end_ms": end_ms, "item_id": item_id}
        try:
            await self._send("input_audio_buffer.timeout_triggered", **place)
            await self._add_audio(item_id, AudioContent(""))
            await self.respond()
        except errors.SixfoldError as error:
            await self._send("error", error={**openai_errors.document(error)["error"], "event_id": None})

    def _stop_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None


def event_id(event: Event) -> str | None:
    """Return the id of a client event, truncated to 512 characters, or None."""
    value = event.get("event_id")
    return value[:512] if isinstance(value, str) else None


def _text(event: Event, name: str) -> str:
    value = event.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidRequest(f"{name} is required and must be a string", param=name)
    return value


def _optional_text(event: Event, name: str) -> str | None:
    return None if event.get(name) is None else _text(event, name)


def _integer(event: Event, name: str) -> int:
    value = event.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise InvalidRequest(f"{name} is required and must be a non-negative integer", param=name)
    return value


def _metadata(value: Any) -> Mapping[str, str] | None:
    if value is None:
        return None
    rows = parsing.mapping(value, "response.metadata")
    valid = len(rows) <= _MAX_METADATA and all(
        len(name) <= _MAX_KEY and isinstance(text, str) and len(text) <= _MAX_VALUE
        for name, text in rows.items()
    )
    if not valid:
        raise InvalidRequest(
            f"response.metadata must have at most {_MAX_METADATA} keys of at most {_MAX_KEY} characters, and "
            f"its values must be strings of at most {_MAX_VALUE} characters",
            param="response.metadata",
        )
    return rows
