"""The audio of a realtime response: its sentences are spoken while the model writes the next ones."""

from __future__ import annotations

import asyncio
import base64
from collections import deque

from sixfold.api.gateway.openai.realtime.configuration import AudioOutput
from sixfold.api.gateway.openai.realtime.output import RealtimeOutput
from sixfold.api.gateway.openai.realtime.services import RealtimeServices
from sixfold.core.concurrency.single_thread import PARSER
from sixfold.core.gateway.realtime import audio
from sixfold.core.gateway.realtime.audio import Encoding
from sixfold.core.gateway.realtime.sentences import SentenceSplitter

# The first sentence is spoken alone, so that its audio comes early. While it is spoken, sentences accumulate,
# and those of up to so many characters are one request, because speech is charged by the request.
_BATCH_CHARS = 600
# Sentences that wait to be spoken, before the model's text is no longer read.
_MAX_WAITING = 64
_DELTA_MS = 250
# Deltas that are encoded at once: 14 ms of processor time.
_SLICE_DELTAS = 8


class SpeechWriter:
    """Speaks the text of one message at a time."""

    def __init__(self, services: RealtimeServices, output: RealtimeOutput, settings: AudioOutput) -> None:
        self._services = services
        self._output = output
        self._settings = settings
        self._encoding: Encoding = settings.format.type
        self._format = audio.KINDS[self._encoding]
        self._splitter = SentenceSplitter()
        self._waiting: deque[str] = deque()
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._ended = False
        # The duration of the audio so far, in samples, and the characters that it speaks.
        self._samples = 0
        self._chars = 0

    async def feed(self, text: str) -> None:
        """Add text from the model; wait while too much text is unspoken.

        Raises the errors of `RealtimeServices.speak`.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._speak())
        await self._put(self._splitter.feed(text))
        self._raise_failure()

    async def finish(self) -> None:
        """Wait until the whole message is spoken. Raises the errors of `RealtimeServices.speak`."""
        if self._task is None:
            return
        rest = self._splitter.rest()
        await self._put([rest] if rest else [])
        async with self._changed:
            self._ended = True
            self._changed.notify_all()
        await self._task
        self._task, self._ended, self._samples, self._chars = None, False, 0, 0

    async def abandon(self) -> None:
        """Stop speaking; what is being synthesized is canceled and not charged."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _put(self, sentences: list[str]) -> None:
        task = self._task
        assert task is not None  # noqa: S101 - feed() has started it
        if not sentences:
            return
        async with self._changed:
            self._waiting.extend(sentences)
            self._changed.notify_all()
            await self._changed.wait_for(lambda: len(self._waiting) < _MAX_WAITING or task.done())

    def _raise_failure(self) -> None:
        if self._task is not None and self._task.done():
            self._task.result()

    async def _speak(self) -> None:
        try:
            while text := await self._next_batch(first=not self._chars):
                await self._speak_batch(text)
        finally:
            async with self._changed:
                self._changed.notify_all()

    async def _next_batch(self, *, first: bool) -> str:
        """Return the next sentences, or an empty string at the end of the message."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._waiting or self._ended)
            text = ""
            while self._waiting and (
                not text or (not first and len(text + self._waiting[0]) <= _BATCH_CHARS)
            ):
                text += self._waiting.popleft()
            self._changed.notify_all()
        return text

    async def _speak_batch(self, text: str) -> None:
        start, self._chars = self._chars, self._chars + len(text)
        if not any(char.isalnum() for char in text):
            return
        pcm = await self._services.speak(text.strip(), self._settings)
        total = len(pcm) // 2 * self._format.rate // audio.PCM_RATE
        step = self._format.rate * _DELTA_MS // 1000
        for at in range(0, total, _SLICE_DELTAS * step):
            count = min(_SLICE_DELTAS * step, total - at)
            data = await self._encoded(pcm, at, count)
            size = self._format.sample_bytes
            for first in range(0, count, step):
                piece = data[first * size : (first + step) * size]
                chars = start + round(len(text) * min(1, (at + first + step) / total))
                await self._write(piece, chars)

    async def _encoded(self, pcm: bytes, start: int, count: int) -> bytes:
        """Return samples of a recording in the format of the session."""
        if self._encoding == "audio/pcm":
            size = self._format.sample_bytes
            return pcm[start * size : (start + count) * size]
        return await PARSER.run(audio.encode, pcm, self._encoding, start, count)

    async def _write(self, piece: bytes, chars: int) -> None:
        self._samples += len(piece) // self._format.sample_bytes
        end_ms = self._samples * 1000 // self._format.rate
        await self._output.write_audio(base64.b64encode(piece).decode(), end_ms, chars)
