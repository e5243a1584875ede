"""Detection of speech by the volume of audio."""

from __future__ import annotations

import array
import operator
import sys
from typing import Final, NamedTuple

_FRAME_MS: Final = 20
# Shorter sounds are clicks.
_START_FRAMES: Final = 3
# The levels of the thresholds 0 and 1, in dB below the loudest level.
_QUIETEST, _LOUDEST = -70.0, -10.0
# The volume is computed from every third sample.
_STEP: Final = 3
_SAMPLE_BYTES: Final = 2


class SpeechChange(NamedTuple):
    """The start or end of speech, at a position in samples."""

    is_start: bool
    position: int


class VoiceDetector:
    """Finds speech in 16-bit PCM, which starts with 60 ms above the threshold and ends with silence.

    The threshold 0 is -70 dBFS, 0.5 is -40 dBFS, and 1 is -10 dBFS. `position` is the position of the next
    sample.
    """

    def __init__(self, threshold: float, silence_ms: int, rate: int, position: int = 0) -> None:
        level = 32_768 * 10 ** ((_QUIETEST + (_LOUDEST - _QUIETEST) * threshold) / 20)
        self._frame = rate * _FRAME_MS // 1000
        self._power = level * level * len(range(0, self._frame, _STEP))
        self._silence_frames = max(1, silence_ms // _FRAME_MS)
        self._position = position
        self._rest = b""
        # Consecutive frames with voice, or silent frames while the user speaks.
        self._run = 0
        self.is_speaking = False

    def feed(self, pcm: bytes) -> list[SpeechChange]:
        """Return the speech changes in further audio; this takes about 0.3 ms per second of audio."""
        data = self._rest + pcm
        size = self._frame * _SAMPLE_BYTES
        whole = len(data) // size * size
        self._rest = data[whole:]
        samples = array.array("h", data[:whole])
        if sys.byteorder == "big":
            samples.byteswap()
        changes: list[SpeechChange] = []
        for start in range(0, len(samples), self._frame):
            frame = samples[start : start + self._frame : _STEP]
            self._position += self._frame
            change = self._advance(is_voiced=sum(map(operator.mul, frame, frame)) >= self._power)
            if change is not None:
                changes.append(change)
        return changes

    def stop(self) -> None:
        """Discard speech that has started, because its audio was committed or cleared."""
        self.is_speaking, self._run = False, 0

    def _advance(self, *, is_voiced: bool) -> SpeechChange | None:
        self._run = self._run + 1 if is_voiced != self.is_speaking else 0
        if self._run < (self._silence_frames if self.is_speaking else _START_FRAMES):
            return None
        began = self._position - (0 if self.is_speaking else self._run * self._frame)
        self.is_speaking, self._run = not self.is_speaking, 0
        return SpeechChange(self.is_speaking, began)
