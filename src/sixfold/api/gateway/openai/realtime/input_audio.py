"""The user's audio: the events of its buffer, and the turns that speech detection finds."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Protocol

from sixfold.api.gateway.openai.errors import InvalidRequest
from sixfold.api.gateway.openai.realtime import items
from sixfold.api.gateway.openai.realtime.configuration import AudioInput
from sixfold.api.gateway.openai.realtime.output import EventSender
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.gateway.realtime.audio import KINDS
from sixfold.core.gateway.realtime.input_audio import InputAudioBuffer
from sixfold.core.gateway.realtime.memory import RealtimeMemory
from sixfold.core.gateway.realtime.voice_activity import SpeechChange, VoiceDetector

# The shortest audio that can be committed, as at OpenAI.
MIN_COMMIT_MS = 100
# Silence that stays in the buffer besides the prefix: speech is detected after its beginning.
_DETECTION_MS = 200


class BufferTooSmall(InvalidRequest):
    """The buffer has too little audio to commit."""

    code = "input_audio_buffer_commit_empty"


class TurnListener(Protocol):
    """A listener that is notified of the user's turns."""

    async def interrupt(self) -> None:
        """Cancel the response in progress because the user has started to speak."""
        ...

    async def add_turn(self, item_id: str, pcm: bytes, rate: int) -> None:
        """Add audio to the conversation as an item."""
        ...

    async def respond(self) -> None:
        """Create a response to a turn."""
        ...


class InputAudio:
    """Handles `input_audio_buffer` events of one session."""

    def __init__(
        self, settings: AudioInput, memory: RealtimeMemory, send: EventSender, listener: TurnListener
    ) -> None:
        self._memory = memory
        self._send = send
        self._listener = listener
        self._settings = settings
        self._buffer = InputAudioBuffer(settings.format.type, memory)
        self._detector = self._new_detector()
        # The id of the item that the current speech will become.
        self._item_id = items.new_id()

    @property
    def end_ms(self) -> int:
        """The end of the received audio in milliseconds since the beginning of the session."""
        return self._buffer.milliseconds(self._buffer.end)

    def configure(self, settings: AudioInput) -> None:
        """Apply the settings of an update; another format clears the buffer."""
        old, self._settings = self._settings, settings
        if settings.format != old.format:
            self._buffer.clear()
            self._buffer = InputAudioBuffer(settings.format.type, self._memory)
        if (settings.format, settings.turn_detection) != (old.format, old.turn_detection):
            self._detector = self._new_detector()

    async def append(self, event: Mapping[str, Any]) -> None:
        """Add audio, and report the changes between speech and silence."""
        value = event.get("audio")
        size = len(value) if isinstance(value, str) else 0
        data = await PARSER.run_large(size, _decoded, value)
        if len(data) % KINDS[self._buffer.encoding].sample_bytes:
            raise InvalidRequest("audio must consist of whole 16-bit samples", param="audio")
        pcm = self._buffer.append(data)
        detector = self._detector
        if detector is None:
            return
        # 98 s of G.711 fit into an event.
        for change in await PARSER.run_large(size, detector.feed, pcm):
            await self._on_change(change)
        if not detector.is_speaking:
            self._buffer.drop_before(self._buffer.end - self._samples(self._prefix_ms + _DETECTION_MS))

    async def commit(self, _event: Mapping[str, Any]) -> None:
        """Make an item of the audio in the buffer."""
        if self._buffer.duration_ms < MIN_COMMIT_MS:
            raise BufferTooSmall(
                f"Error committing input audio buffer: buffer too small. Expected at least {MIN_COMMIT_MS}ms "
                f"of audio, but buffer only has {self._buffer.duration_ms}ms of audio."
            )
        if self._detector is not None:
            self._detector.stop()
        await self._add_turn(self._buffer.end)

    async def clear(self, _event: Mapping[str, Any]) -> None:
        """Remove the audio in the buffer."""
        self.close()
        await self._send("input_audio_buffer.cleared")

    def close(self) -> None:
        """Remove the audio in the buffer, without an event."""
        self._buffer.clear()
        if self._detector is not None:
            self._detector.stop()

    def _new_detector(self) -> VoiceDetector | None:
        turns = self._settings.turn_detection
        if turns is None:
            return None
        buffer = self._buffer
        return VoiceDetector(turns.threshold, turns.silence_duration_ms, buffer.rate, buffer.end)

    @property
    def _prefix_ms(self) -> int:
        turns = self._settings.turn_detection
        return 0 if turns is None else turns.prefix_padding_ms

    def _samples(self, milliseconds: int) -> int:
        return milliseconds * self._buffer.rate // 1000

    async def _on_change(self, change: SpeechChange) -> None:
        turns = self._settings.turn_detection
        if change.is_start:
            start = self._buffer.drop_before(change.position - self._samples(self._prefix_ms))
            self._item_id = items.new_id()
            await self._send(
                "input_audio_buffer.speech_started",
                audio_start_ms=self._buffer.milliseconds(start),
                item_id=self._item_id,
            )
            if turns is not None and turns.interrupt_response:
                await self._listener.interrupt()
            return
        await self._send(
            "input_audio_buffer.speech_stopped",
            audio_end_ms=self._buffer.milliseconds(change.position),
            item_id=self._item_id,
        )
        await self._add_turn(change.position)
        if turns is not None and turns.create_response:
            await self._listener.respond()

    async def _add_turn(self, end: int) -> None:
        item_id, self._item_id = self._item_id, items.new_id()
        await self._listener.add_turn(item_id, self._buffer.take(end), self._buffer.rate)


def _decoded(value: Any) -> bytes:
    if not isinstance(value, str):
        raise InvalidRequest("audio is required and must be a base64 string", param="audio")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest("audio must be valid base64", param="audio") from error
