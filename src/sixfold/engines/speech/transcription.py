"""What every listener shares: the sound of a task, where in it somebody speaks, and the answer's shape."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Quality, Result, Task, UnusableInput
from sixfold.engines.speech import files

Wave = NDArray[np.float32]

RATE = 16_000
_NAMES = ("audio_url", "audio", "audio_path")
_PEAK = 0.7
_FRAME = 0.02
_QUIET_DB = 22.0  # below what is loud in a recording, nobody speaks
_FLOOR_DB = 5.0  # above what is quiet in it, somebody may
_PAUSE, _SHORTEST, _LONGEST, _MARGIN = 0.45, 0.15, 25.0, 0.2
_BREATH = 5  # frames
_WINDOW = 1024  # samples of which the tones are told apart, 64 ms
_BESIDE = 3  # bins on each side of the strongest that are the same tone
_PURE, _MOSTLY = 0.97, 0.7  # one tone has so much of a window's power, in so many of the windows


@dataclass(frozen=True, slots=True)
class TimedWord:
    """A word, its seconds in the recording, and how sure it is from 0 to 1."""

    word: str
    start: float
    end: float
    confidence: float

    def told(self) -> dict[str, Any]:
        """The word as the interface tells it."""
        return {
            "word": self.word,
            "start": round(self.start, 2),
            "end": round(self.end, 2),
            "confidence": round(self.confidence, 3),
        }


@dataclass(frozen=True, slots=True)
class TimedSegment:
    """What was said without a pause."""

    text: str
    start: float
    end: float
    words: Sequence[TimedWord]

    @property
    def confidence(self) -> float:
        """The mean of its words, by their length."""
        weights = [max(0.01, word.end - word.start) for word in self.words]
        sure = sum(word.confidence * weight for word, weight in zip(self.words, weights, strict=True))
        return sure / sum(weights) if weights else 0.0

    def told(self, *, timed: bool) -> dict[str, Any]:
        """The segment as the interface tells it, with its words where they are wanted."""
        plain = {
            "text": self.text,
            "start": round(self.start, 2),
            "end": round(self.end, 2),
            "confidence": round(self.confidence, 3),
        }
        return plain | ({"words": [word.told() for word in self.words]} if timed else {})


def sound(task: Task) -> Wave:
    """The task's recording, mono at 16 kHz and loud enough; raises `UnusableInput`."""
    path = next((task.files[name] for name in _NAMES if name in task.files), None)
    if path is None:
        raise UnusableInput("There is no recording to listen to.")
    wave = files.read(path, RATE)
    peak = float(np.abs(wave).max())
    return wave * np.float32(_PEAK / peak) if peak > 1e-4 else wave


def spoken(wave: Wave) -> list[tuple[int, int]]:
    """Where somebody may be speaking: samples from and to, parted at pauses, none over 25 s, none a beep."""
    frame = round(_FRAME * RATE)
    count = wave.size // frame
    if not count:
        return []
    power = (wave[: count * frame].reshape(count, frame) ** 2).mean(1)
    level = 10 * np.log10(power + 1e-9)
    loud = float(np.percentile(level, 95))
    if loud < -65:  # silence
        return []
    least = max(loud - _QUIET_DB, min(float(np.percentile(level, 10)) + _FLOOR_DB, loud - 6))
    found: list[tuple[int, int]] = []
    for start, end in _stretches(np.flatnonzero(level > least) * _FRAME):
        if _is_whistle(wave[round(start * RATE) : round(end * RATE)]):
            continue
        edges = [start - _MARGIN, *_cuts(start, end, level), end + _MARGIN]
        samples = [min(wave.size, max(0, round(edge * RATE))) for edge in edges]
        found += itertools.pairwise(samples)
    return found


def _is_whistle(stretch: Wave) -> bool:
    """Whether one pure tone is all that there is, as of a whistle or a beep: a voice has overtones."""
    count = stretch.size // _WINDOW
    if not count:
        return False
    windows = stretch[: count * _WINDOW].reshape(count, _WINDOW) * np.hanning(_WINDOW)
    power = np.abs(np.fft.rfft(windows)) ** 2
    bins = np.abs(np.arange(power.shape[1]) - power.argmax(1)[:, None]) <= _BESIDE
    pure = (power * bins).sum(1) > _PURE * power.sum(1)
    return bool(pure.mean() > _MOSTLY)


def _stretches(times: NDArray[Any]) -> list[tuple[float, float]]:
    found: list[list[float]] = []
    for time in map(float, times):
        if found and time - found[-1][1] < _PAUSE:
            found[-1][1] = time
        else:
            found.append([time, time])
    return [(start, end) for start, end in found if end - start >= _SHORTEST]


def _cuts(start: float, end: float, level: NDArray[Any]) -> Iterator[float]:
    """Where a stretch that is too long is parted: where it is quietest, for a breath."""
    while end - start > _LONGEST:
        first, last = (round((start + share * _LONGEST) / _FRAME) for share in (0.6, 1.0))
        quiet = np.convolve(level[first:last], np.ones(_BREATH), "same")
        start = (first + int(quiet[_BREATH:-_BREATH].argmin()) + _BREATH + 0.5) * _FRAME
        yield start


def told(segments: Sequence[TimedSegment], wave: Wave, task: Task, quality: Quality, language: str) -> Result:
    """The answer: the text, its segments, and how sure all of it is; billed by the minute."""
    seconds = wave.size / RATE
    timed = bool(task.inputs.get("timestamps", True))
    weights = [max(0.01, segment.end - segment.start) for segment in segments]
    sure = sum(segment.confidence * weight for segment, weight in zip(segments, weights, strict=True))
    data: dict[str, Any] = {
        "text": " ".join(segment.text for segment in segments),
        "segments": [segment.told(timed=timed) for segment in segments],
        "language": language,
        "confidence": round(sure / sum(weights), 3) if weights else 0.0,
        "duration": round(seconds, 3),
    }
    return Result(data=data, quality=quality, billed=seconds / 60)
