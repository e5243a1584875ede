"""One realtime response: a streamed chat as server events."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from sixfold import errors
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai.realtime import items
from sixfold.api.gateway.openai.realtime.configuration import SessionConfiguration
from sixfold.api.gateway.openai.realtime.output import EventSender, RealtimeOutput
from sixfold.api.gateway.openai.realtime.services import RealtimeServices
from sixfold.api.gateway.openai.realtime.speech import SpeechWriter
from sixfold.api.gateway.openai.realtime.transcriptions import InputTranscriptions
from sixfold.core import ids
from sixfold.core.gateway.chat import (
    ChatMessage,
    ChatRequest,
    Event,
    MessageEnd,
    Stop,
    TextDelta,
    TextPart,
    ToolCallStart,
)
from sixfold.core.gateway.pricing.usage import NOTHING, TokenUsage
from sixfold.core.gateway.realtime.conversation import RealtimeConversation, chat_messages, system_text
from sixfold.core.gateway.realtime.items import CallItem, RealtimeItem, ServerCallItem
from sixfold.core.gateway.tools.servers import INSTRUCTION, MAX_ROUNDS, ToolOutput, Toolset

CancelReason = Literal["client_cancelled", "turn_detected"]
_MAX_SERVER_CALLS = 24
# Why a response is incomplete, by the end of its chat.
_INCOMPLETE: Mapping[Stop, str] = {"length": "max_output_tokens", "filter": "content_filter"}


class ResponseRequest(msgspec.Struct, frozen=True):
    """Fields of `response.create`; `input` replaces the items of the conversation.

    `conversation` is None if the output is not added to the conversation.
    """

    configuration: SessionConfiguration
    history: RealtimeConversation
    conversation: RealtimeConversation | None
    conversation_id: str | None
    transcriptions: InputTranscriptions
    input: tuple[RealtimeItem, ...] | None = None
    metadata: Mapping[str, str] | None = None
    event_id: str | None = None
    # The number of responses before this one that called tools of servers.
    rounds: int = 0


class ResponseRun:
    """A response in progress."""

    def __init__(self, request: ResponseRequest, services: RealtimeServices, send: EventSender) -> None:
        # The call log has the call under this id with the prefix `req`.
        self.request_id = ids.new("req")
        self.id = f"resp_{self.request_id.partition('_')[2]}"
        self._request = request
        self._services = services
        self._send = send
        self._output = RealtimeOutput(
            self.id, send, request.conversation, speaks=request.configuration.speaks
        )
        self._speech: SpeechWriter | None = None
        if request.configuration.speaks:
            self._speech = SpeechWriter(services, self._output, request.configuration.audio.output)
        self._usage: TokenUsage | None = None
        self._cancel_reason: CancelReason | None = None
        self._is_completed = False
        self._task: asyncio.Task[None] | None = None

    @property
    def spoken_ms(self) -> int:
        """The duration of the response's audio so far, in milliseconds."""
        return self._output.spoken_ms

    @property
    def is_in_conversation(self) -> bool:
        """Whether the output of the response is added to the conversation."""
        return self._request.conversation is not None

    @property
    def next_request(self) -> ResponseRequest | None:
        """The request for a response to the outputs of server tools, or None if a response is not due.

        The client must first return the outputs of its functions.
        """
        output, request = self._output.items, self._request
        has_outputs = any(isinstance(item, ServerCallItem) for item in output)
        is_last = not self._is_completed or request.rounds >= MAX_ROUNDS - 1
        if is_last or not has_outputs or any(isinstance(item, CallItem) for item in output):
            return None
        history = None if request.input is None else (*request.input, *output)
        return replace(request, input=history, rounds=request.rounds + 1, event_id=None)

    async def start(self) -> asyncio.Task[None]:
        """Announce the response and begin it in a separate task."""
        await self._send("response.created", response=self._document("in_progress", None))
        await self._send("rate_limits.updated", rate_limits=await self._services.rate_limits())
        self._task = asyncio.create_task(self._run(), name=self.id)
        # A task that is canceled before its first step does not run at all.
        await asyncio.sleep(0)
        return self._task

    async def cancel(self, reason: CancelReason) -> None:
        """End the response as canceled, and wait until the end has been sent."""
        if self._task is not None and not self._task.done() and self._cancel_reason is None:
            self._cancel_reason = reason
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        try:
            try:
                stop = await self._stream()
            finally:
                if self._speech is not None:
                    await self._speech.abandon()
            await self._output.close(complete=stop not in _INCOMPLETE)
            self._is_completed = stop not in _INCOMPLETE
            await self._finish(_INCOMPLETE.get(stop))
        except errors.SixfoldError as error:
            await self._fail(error)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._cancel_reason is None or task is None or task.uncancel() > 0:
                raise
            await self._output.close(complete=False)
            await self._done("cancelled", {"reason": self._cancel_reason})

    async def _stream(self) -> Stop:
        """Write the chat as output; return the reason for its end."""
        if self._speech is not None:
            # Check this first, so that a missing engine does not cause a charge for the chat.
            self._services.check_speech(self._request.configuration.audio.output)
        await self._request.transcriptions.complete(self._history)
        async with self._services.open_tools(self._request.configuration) as toolset:
            if toolset is not None:
                self._output.server_tools = toolset.tools
            stop = await self._stream_chat(toolset)
            if toolset is not None:
                await self._call_tools(toolset)
        return stop

    async def _call_tools(self, toolset: Toolset) -> None:
        """Run the calls of server tools."""
        for number, call in enumerate(self._output.open_server_calls):
            await self._output.begin_server_call(call)
            if number < _MAX_SERVER_CALLS:
                output = await toolset.call(self.request_id, call.shown_name, call.arguments)
            else:
                text = f"A response may make at most {_MAX_SERVER_CALLS} calls to tool servers."
                output = ToolOutput(text, failed=True)
            await self._output.end_server_call(call, output)

    async def _stream_chat(self, toolset: Toolset | None) -> Stop:
        end = MessageEnd("end", NOTHING)
        settings = self._request.configuration
        async with self._services.stream_chat(
            self.request_id, self._chat_request(toolset), settings.model, speaks=settings.speaks
        ) as stream:
            try:
                async with contextlib.aclosing(stream.events()) as events:
                    async for event in events:
                        if isinstance(event, MessageEnd):
                            end = event
                        else:
                            await self._write(event)
            finally:
                # A canceled or failed stream has been settled now.
                if stream.outcome is not None:
                    self._usage = stream.outcome.usage
        self._usage = end.usage
        if self._speech is not None:
            await self._speech.finish()
        return end.stop

    async def _write(self, event: Event) -> None:
        speech = self._speech
        if speech is not None and isinstance(event, ToolCallStart):
            await speech.finish()
        await self._output.write(event)
        if speech is not None and isinstance(event, TextDelta) and event.text:
            await speech.feed(event.text)

    @property
    def _history(self) -> Sequence[RealtimeItem]:
        request = self._request
        return request.history.items if request.input is None else request.input

    def _chat_request(self, toolset: Toolset | None) -> ChatRequest:
        configuration = self._request.configuration
        history = self._history
        messages, system = chat_messages(history), system_text(history, configuration.instructions)
        if not messages:
            if not system:
                raise errors.InvalidInput.of("response", "The conversation is empty: create an item first")
            # Some model servers require a message.
            messages, system = (ChatMessage("user", (TextPart(system),)),), ""
        reasoning, choice, tools = configuration.reasoning, configuration.choice, configuration.tool_specs
        if toolset is not None:
            system = f"{system}\n\n{INSTRUCTION}".strip()
            tools += toolset.specs
            # Limit the rounds, because a model that always calls tools would never end.
            choice = "none" if self._request.rounds >= MAX_ROUNDS - 1 else choice
        return ChatRequest(
            messages=messages,
            system=system,
            tools=tools,
            choice=choice,
            parallel=configuration.parallel_tool_calls,
            max_tokens=configuration.max_tokens,
            effort=(reasoning.effort or "") if reasoning is not None else "",
        )

    async def _finish(self, incomplete: str | None) -> None:
        if incomplete is None:
            await self._done("completed", {})
        else:
            await self._done("incomplete", {"reason": incomplete})

    async def _fail(self, error: errors.SixfoldError) -> None:
        body = openai_errors.document(error)["error"]
        if not self._output.items:
            await self._send("error", error={**body, "event_id": self._request.event_id})
        await self._output.close(complete=False)
        public_error = {"type": body["type"], "code": body["code"], "message": body["message"]}
        await self._done("failed", {"error": public_error})

    async def _done(self, status: str, details: Mapping[str, Any]) -> None:
        await self._send("response.done", response=self._document(status, {"type": status, **details}))

    def _document(self, status: str, details: Mapping[str, Any] | None) -> dict[str, Any]:
        configuration, request = self._request.configuration, self._request
        output = configuration.audio.output
        return {
            "id": self.id,
            "object": "realtime.response",
            "status": status,
            "status_details": None if status == "completed" else details,
            "output": [items.render(item) for item in self._output.items],
            "conversation_id": request.conversation_id,
            "output_modalities": configuration.output_modalities,
            "max_output_tokens": configuration.max_output_tokens,
            "audio": {"output": {"format": output.format, "voice": output.voice}},
            "metadata": request.metadata,
            "usage": None if self._usage is None else _usage(self._usage),
        }


def _usage(tokens: TokenUsage) -> dict[str, Any]:
    read = {
        "text_tokens": tokens.input - tokens.audio_in - tokens.image_in,
        "audio_tokens": tokens.audio_in,
        "image_tokens": tokens.image_in,
        "cached_tokens": tokens.cached,
        "cached_tokens_details": {"text_tokens": tokens.cached, "audio_tokens": 0, "image_tokens": 0},
    }
    output_details = {"text_tokens": tokens.output - tokens.audio_out, "audio_tokens": tokens.audio_out}
    return {
        "total_tokens": tokens.input + tokens.output,
        "input_tokens": tokens.input,
        "output_tokens": tokens.output,
        "input_token_details": read,
        "output_token_details": output_details,
    }
