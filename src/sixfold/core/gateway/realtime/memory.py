"""The memory that realtime sessions use for audio, items and responses, limited for each account."""

from __future__ import annotations

from typing import Final
from weakref import WeakValueDictionary

from sixfold import errors

# Maximum PCM bytes of one session: its buffer, and recordings that are not transcribed yet.
MAX_SESSION_BYTES: Final = 15 * 2**20
# Maximum bytes of all sessions of one account, and of all sessions of a server.
MAX_ACCOUNT_BYTES: Final = 64 * 2**20
MAX_SERVER_BYTES: Final = 512 * 2**20


class RealtimeMemory:
    """Counts bytes against a limit, and against the shared limit of `parent`."""

    def __init__(self, max_bytes: int, message: str, parent: RealtimeMemory | None = None) -> None:
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

    def audio(self) -> RealtimeMemory:
        """Return the memory for the audio of one session, whose account has this memory."""
        text = (
            f"A session can store at most {MAX_SESSION_BYTES // 2**20} MiB of audio: commit or clear the "
            "buffer"
        )
        return RealtimeMemory(MAX_SESSION_BYTES, text, self)


class RealtimeServerMemory:
    """The memory of all sessions of a server, and of those of each account that has sessions."""

    def __init__(self) -> None:
        self._total = RealtimeMemory(
            MAX_SERVER_BYTES,
            "The realtime sessions of all accounts have reached the limit of this server: commit or clear "
            "the audio buffer, or retry when other sessions have ended",
        )
        self._accounts: WeakValueDictionary[str, RealtimeMemory] = WeakValueDictionary()

    def of(self, account_id: str) -> RealtimeMemory:
        """Return the memory that all sessions of an account share."""
        text = (
            f"The realtime sessions of an account can store at most {MAX_ACCOUNT_BYTES // 2**20} MiB of "
            "audio, items and responses in progress: clear an audio buffer, delete items or close a session"
        )
        memory = self._accounts.get(account_id) or RealtimeMemory(MAX_ACCOUNT_BYTES, text, self._total)
        self._accounts[account_id] = memory
        return memory
