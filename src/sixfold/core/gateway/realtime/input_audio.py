"""The audio that a client has sent but not committed yet."""

from __future__ import annotations

from typing import Final

from sixfold.core.gateway.realtime.audio import KINDS, Encoding, decode
from sixfold.core.gateway.realtime.memory import RealtimeMemory

_SAMPLE_BYTES: Final = 2


class InputAudioBuffer:
    """Audio in one encoding, stored as PCM.

    Positions are samples since the beginning of the session.

    The bytes count in `memory` until `clear`; the caller of `take` must release the bytes of the returned
    audio.
    """

    def __init__(self, encoding: Encoding, memory: RealtimeMemory) -> None:
        self.encoding: Encoding = encoding
        self.rate = KINDS[encoding].rate
        self._memory = memory
        self._pcm = bytearray()
        self._start = 0

    @property
    def end(self) -> int:
        """The position after the last sample."""
        return self._start + len(self._pcm) // _SAMPLE_BYTES

    def milliseconds(self, position: int) -> int:
        """Convert a position to milliseconds."""
        return position * 1000 // self.rate

    @property
    def duration_ms(self) -> int:
        """The duration of the audio in the buffer in milliseconds."""
        return self.milliseconds(self.end - self._start)

    def append(self, data: bytes) -> bytes:
        """Add audio from the wire and return it as PCM; raises `TooManyRequests` above the limit."""
        pcm = decode(data, self.encoding)
        self._memory.take(len(pcm))
        self._pcm += pcm
        return pcm

    def take(self, end: int) -> bytes:
        """Remove and return the audio up to a position; its bytes are still counted."""
        size = (end - self._start) * _SAMPLE_BYTES
        pcm = bytes(self._pcm[:size])
        del self._pcm[:size]
        self._start = end
        return pcm

    def drop_before(self, position: int) -> int:
        """Remove audio before a position; return the position of the first remaining sample."""
        if position > self._start:
            self._memory.release(len(self.take(min(position, self.end))))
        return self._start

    def clear(self) -> None:
        """Remove all audio."""
        self.drop_before(self.end)
