"""The connection of a session's viewer, with its queue of outgoing messages and its credit for frames."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final

import msgspec

from sixfold.core.catalog.prompt_words import NO_WORDS, PromptWords
from sixfold.core.sessions.engine import Frame
from sixfold.core.sessions.states import SessionState

# Frames that a new viewer receives before it grants more credit.
CREDIT: Final = 3
MAX_CREDIT: Final = 1000
# A viewer is too slow if its oldest message has waited this many seconds.
MAX_DELAY_SECONDS: Final = 10.0
MAX_QUEUED: Final = 4000
# Frames are dropped while the viewer has this many bytes of earlier ones to read.
MAX_QUEUED_BYTES: Final = 4 * 2**20

NORMAL, IDLE, REPLACED, TOO_SLOW, DRAINED, REVOKED, FAILED = 1000, 4000, 4001, 4008, 4010, 4401, 1011


class StateMessage(msgspec.Struct, frozen=True):
    """The state of the session, its reason, and the words of the prompt that the engine understood."""

    state: SessionState
    reason: str | None
    words: PromptWords = NO_WORDS


class AckMessage(msgspec.Struct, frozen=True):
    """The acknowledgement of an input, which takes effect from frame or pose `seq` on."""

    input_seq: int
    seq: int


class FrameMessage(msgspec.Struct, frozen=True):
    """One frame, the last input that it reflects, and its time on the session's clock in milliseconds."""

    seq: int
    input_seq: int | None
    t: int
    frame: Frame


class PoseMessage(msgspec.Struct, frozen=True):
    """One pose as JSON from the worker, and its time on the session's clock in milliseconds."""

    seq: int
    t: int
    pose: bytes


class StatsMessage(msgspec.Struct, frozen=True):
    """Counts since the session became ready: sent, dropped (for lack of credit), and late ticks.

    `running_us` is the time without pauses, and `cost` the charge in micro-dollars if the session ended now.
    """

    sent: int
    dropped: int
    late: int
    credit: int
    restarts: int
    running_us: int
    cost: int


class PongMessage(msgspec.Struct, frozen=True):
    """The reply to a ping."""

    t: float | str | None


class ErrorMessage(msgspec.Struct, frozen=True):
    """The reply to an invalid message."""

    message: str


class EndMessage(msgspec.Struct, frozen=True):
    """The last message, whose code closes the socket."""

    code: int
    reason: str


OutgoingMessage = (
    StateMessage | AckMessage | FrameMessage | PoseMessage | StatsMessage | PongMessage | ErrorMessage
)


class Connection:
    """An open socket of a session, which replaces the previous socket."""

    def __init__(self) -> None:
        self.credit = CREDIT
        self.resumed = False
        # The number of the newest pose that was sent.
        self.last_seq = 0
        self._queue: deque[tuple[float, OutgoingMessage]] = deque()
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self._closed = asyncio.Event()
        self._end: EndMessage | None = None

    @property
    def closed(self) -> bool:
        """Whether the connection has ended."""
        return self._end is not None

    @property
    def accepts_frames(self) -> bool:
        """Whether the viewer has credit for a frame and has read enough of the earlier ones."""
        return self.credit > 0 and self._queued_bytes < MAX_QUEUED_BYTES

    @property
    def end_message(self) -> EndMessage | None:
        """The message with which the connection ended, or None while it is open."""
        return self._end

    async def wait_closed(self) -> None:
        await self._closed.wait()

    def put(self, message: OutgoingMessage) -> None:
        """Queue a message if the connection is open; end it if the viewer reads too slowly."""
        if self._end is not None:
            return
        now = time.monotonic()
        if self._queue and (now - self._queue[0][0] > MAX_DELAY_SECONDS or len(self._queue) >= MAX_QUEUED):
            self._queue.clear()
            self._queued_bytes = 0
            self.end(TOO_SLOW, "too slow")
            return
        self._queue.append((now, message))
        self._queued_bytes += _frame_bytes(message)
        self._wake.set()

    def end(self, code: int, reason: str) -> None:
        """Close the socket after the queued messages. Only the first call has an effect."""
        if self._end is None:
            self._end = EndMessage(code, reason)
            self._wake.set()
            self._closed.set()

    async def next_message(self) -> OutgoingMessage | EndMessage:
        while not self._queue:
            if self._end is not None:
                return self._end
            self._wake.clear()
            await self._wake.wait()
        _, message = self._queue.popleft()
        self._queued_bytes -= _frame_bytes(message)
        if isinstance(message, PoseMessage):
            self.last_seq = message.seq
        return message


def _frame_bytes(message: OutgoingMessage) -> int:
    return len(message.frame.data) if isinstance(message, FrameMessage) else 0
