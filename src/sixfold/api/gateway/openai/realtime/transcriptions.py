"""Recordings of the user's speech that wait for their transcripts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from sixfold import errors
from sixfold.api.gateway.openai import errors as openai_errors
from sixfold.api.gateway.openai.realtime.configuration import InputTranscription
from sixfold.api.gateway.openai.realtime.output import EventSender
from sixfold.api.gateway.openai.realtime.services import RealtimeServices
from sixfold.core.gateway.realtime.items import AudioContent, RealtimeItem
from sixfold.core.gateway.realtime.memory import RealtimeMemory


class InputRecording(msgspec.Struct):
    """The audio of an item; `settings` is None if the client does not want events about its transcript."""

    item_id: str
    content: AudioContent
    pcm: bytes
    rate: int
    settings: InputTranscription | None
    task: asyncio.Task[None] | None = None
    error: errors.SixfoldError | None = None


class InputTranscriptions:
    """Transcribes recordings: at once if the client wants the transcripts, else for the next response.

    The bytes of a recording are counted in `memory` until it is transcribed or discarded.
    """

    def __init__(
        self,
        services: RealtimeServices,
        send: EventSender,
        memory: RealtimeMemory,
        track: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._services = services
        self._send = send
        self._memory = memory
        self._track = track
        self._waiting: dict[str, InputRecording] = {}

    def add(self, recording: InputRecording) -> None:
        """Store a recording whose bytes have already been counted."""
        self._waiting[recording.item_id] = recording
        if recording.settings is not None:
            self._start(recording)

    async def complete(self, items: Iterable[RealtimeItem]) -> None:
        """Wait for the transcripts of these items; raises the first error."""
        recordings = [self._waiting[item.id] for item in items if item.id in self._waiting]
        tasks = [self._start(recording) for recording in recordings]
        for recording, task in zip(recordings, tasks, strict=True):
            # A canceled response does not end the transcription, which a later one needs.
            await asyncio.wait({task})
            if recording.error is not None:
                raise recording.error

    def discard(self, item_id: str) -> None:
        """Remove the recording of a deleted item; its transcription is canceled and not charged."""
        recording = self._waiting.pop(item_id, None)
        if recording is not None:
            self._memory.release(len(recording.pcm))
            if recording.task is not None:
                recording.task.cancel()

    def close(self) -> None:
        """Remove all recordings."""
        for item_id in tuple(self._waiting):
            self.discard(item_id)

    def _start(self, recording: InputRecording) -> asyncio.Task[None]:
        if recording.task is None:
            recording.task = asyncio.create_task(self._transcribe(recording))
            self._track(recording.task)
        return recording.task

    async def _transcribe(self, recording: InputRecording) -> None:
        content_fields = {"item_id": recording.item_id, "content_index": 0}
        kind = "conversation.item.input_audio_transcription"
        settings = recording.settings or InputTranscription()
        try:
            transcript = await self._services.transcribe(recording.pcm, recording.rate, settings)
        except errors.SixfoldError as error:
            recording.error = error
            if recording.settings is not None:
                await self._send(
                    f"{kind}.failed", **content_fields, error=openai_errors.document(error)["error"]
                )
        else:
            recording.content.transcript = transcript.text
            if recording.settings is not None:
                # Like whisper-1 at OpenAI: the whole transcript is one delta.
                await self._send(f"{kind}.delta", **content_fields, delta=transcript.text)
                usage = {"type": "duration", "seconds": transcript.seconds}
                await self._send(
                    f"{kind}.completed", **content_fields, transcript=transcript.text, usage=usage
                )
        if self._waiting.pop(recording.item_id, None) is not None:
            self._memory.release(len(recording.pcm))
