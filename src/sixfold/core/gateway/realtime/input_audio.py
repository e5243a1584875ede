"""The audio that a client has sent but not committed yet, and the memory for such audio."""

from __future__ import annotations

from typing import Final

from sixfold import errors
from sixfold.core.gateway.realtime.audio import KINDS, Encoding, decode

# Maximum PCM bytes of one session: its buffer, and recordings that are not transcribed yet.
MAX_SESSION_BYTES: Final = 15 * 2**20
MAX_SERVER_BYTES: Final = 512 * 2**20
_SAMPLE_BYTES: Final = 2


class AudioMemory:
    """Counts bytes of audio against a limit, and against the shared limit of `parent`."""

    def __init__(self, max_bytes: int, message: str, parent: AudioMemory | None = None) -> None:
        self._max_bytes = max_bytes
        self._message = message
        self._parent = parent
        self.size = 0

    def take(self, size: int) -> None:
        """Count bytes before they are stored; raises `TooManyRequests` above a limit."""
        if self.size + size > self._max_bytes:
            raise errors.TooManyRequests(self._message)
        if self._parent is not None:
            self._parent.take(size)
        self.size += size

    def release(self, size: int) -> None:
        self.size -= size
        if self._parent is not None:
            self._parent.release(size)


def server_memory() -> AudioMemory:
    """Return the memory for the audio of all sessions of a server."""
    text = (
        "The audio buffers of all sessions have reached the limit of this server: commit or clear the "
        "buffer, and retry"
    )
    return AudioMemory(MAX_SERVER_BYTES, text)


def session_memory(server: AudioMemory) -> AudioMemory:
    """Return the memory for the audio of one session."""
    text = (
        f"A session can store at most {MAX_SESSION_BYTES // 2**20} MiB of audio: commit or clear the buffer"
    )
    return AudioMemory(MAX_SESSION_BYTES, text, server)


class InputAudioBuffer:
    """Audio in one encoding, stored as PCM.

    Positions are samples since the beginning of the session.

    The bytes count in `memory` until `clear`; the caller of `take` must release the bytes of the returned
    audio.
    """

    def __init__(self, encoding: Encoding, memory: AudioMemory) -> None:
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
