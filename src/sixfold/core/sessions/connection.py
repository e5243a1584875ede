"""The viewer of a session: the messages to it, in order, and how many frames it accepts."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Final

from sixfold.core.sessions.engine import Frame
from sixfold.core.sessions.states import SessionState

CREDIT: Final = 3  # frames that a new viewer accepts before it grants more
MAX_CREDIT: Final = 1000
PATIENCE_SECONDS: Final = 10.0  # the oldest word unsent for so long: the viewer is too slow
MAX_WORDS: Final = 4000

NORMAL, IDLE, REPLACED, TOO_SLOW, DRAINED, REVOKED, FAILED = 1000, 4000, 4001, 4008, 4010, 4401, 1011


@dataclass(frozen=True, slots=True)
class StateMessage:
    """How the session stands, and why."""

    state: SessionState
    reason: str | None


@dataclass(frozen=True, slots=True)
class AckMessage:
    """An input was taken in; it holds from frame or pose `seq` on."""

    input_seq: int
    seq: int


@dataclass(frozen=True, slots=True)
class FrameMessage:
    """One frame, the last input that it answers, and its time on the session's clock."""

    seq: int
    input_seq: int | None
    t: int
    frame: Frame


@dataclass(frozen=True, slots=True)
class PoseMessage:
    """One pose, a JSON object as its worker wrote it, and its time on the session's clock."""

    seq: int
    t: int
    pose: bytes


@dataclass(frozen=True, slots=True)
class StatsMessage:
    """Counts since the session became ready: shown, dropped for want of credit, and late ticks."""

    sent: int
    dropped: int
    late: int
    credit: int
    restarts: int


@dataclass(frozen=True, slots=True)
class PongMessage:
    """The answer to a ping."""

    t: Any


@dataclass(frozen=True, slots=True)
class ErrorMessage:
    """Something that the viewer said was not understood."""

    message: str


@dataclass(frozen=True, slots=True)
class EndMessage:
    """Nothing more comes; the code closes the socket."""

    code: int
    reason: str


Word = StateMessage | AckMessage | FrameMessage | PoseMessage | StatsMessage | PongMessage | ErrorMessage


class Connection:
    """One open socket as the session sees it. The newest replaces the one before it."""

    def __init__(self) -> None:
        self.credit = CREDIT
        self.greeted = False
        self.last_seq = 0  # the newest pose that was taken
        self._words: deque[tuple[float, Word]] = deque()
        self._wake = asyncio.Event()
        self._over = asyncio.Event()
        self._end: EndMessage | None = None

    @property
    def gone(self) -> bool:
        """Whether nothing can be said any more."""
        return self._end is not None

    @property
    def end_of(self) -> EndMessage | None:
        """How it ended, once it has."""
        return self._end

    async def ended(self) -> None:
        """Wait for the end."""
        await self._over.wait()

    def put(self, word: Word) -> None:
        """Queue a message, unless the viewer has gone or reads too slowly."""
        if self._end is not None:
            return
        moment = time.monotonic()
        if self._words and (moment - self._words[0][0] > PATIENCE_SECONDS or len(self._words) >= MAX_WORDS):
            self._words.clear()
            self.end(TOO_SLOW, "too slow")
            return
        self._words.append((moment, word))
        self._wake.set()

    def end(self, code: int, reason: str) -> None:
        """Close the socket after what was said before. The first reason counts."""
        if self._end is None:
            self._end = EndMessage(code, reason)
            self._wake.set()
            self._over.set()

    async def take(self) -> Word | EndMessage:
        """The next thing to send."""
        while not self._words:
            if self._end is not None:
                return self._end
            self._wake.clear()
            await self._wake.wait()
        _, word = self._words.popleft()
        if isinstance(word, PoseMessage):
            self.last_seq = word.seq
        return word
