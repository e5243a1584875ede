"""Common parts of the transcription engines: audio loading, speech detection and the result."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import (
    Context,
    EngineError,
    PreviewContext,
    Quality,
    Result,
    Task,
    UnusableInput,
)
from sixfold.engines.speech import files

Wave = NDArray[np.float32]

RATE = 16_000
_NAMES = ("audio_url", "audio", "audio_path")
_PEAK = 0.7
_FRAME = 0.02
# Speech is at most this far below the loud parts and at least this far above the quiet parts of a recording.
_QUIET_DB, _FLOOR_DB = 22.0, 5.0
_PAUSE, _SHORTEST, _LONGEST, _MARGIN = 0.45, 0.15, 25.0, 0.2
_BREATH = 5  # frames
# Samples of a spectrum, 64 ms, and the bins on each side of its peak that belong to the same tone.
_WINDOW, _TONE_BINS = 1024, 3
# A single tone has this fraction of the power of a window, in this fraction of the windows.
_TONE_POWER, _TONE_WINDOWS = 0.97, 0.7


class TimedWord(msgspec.Struct, frozen=True):
    """A word with its start and end in seconds and its confidence from 0 to 1."""

    word: str
    start: float
    end: float
    confidence: float

    def to_dict(self) -> dict[str, Any]:
        """Return the word in the format of the API."""
        return {
            "word": self.word,
            "start": round(self.start, 2),
            "end": round(self.end, 2),
            "confidence": round(self.confidence, 3),
        }


class TimedSegment(msgspec.Struct, frozen=True):
    """A range of speech without a pause."""

    text: str
    start: float
    end: float
    words: Sequence[TimedWord]

    @property
    def confidence(self) -> float:
        """The mean confidence of the words, weighted by their duration."""
        weights = [max(0.01, word.end - word.start) for word in self.words]
        total = sum(word.confidence * weight for word, weight in zip(self.words, weights, strict=True))
        return total / sum(weights) if weights else 0.0

    def to_dict(self, *, with_words: bool) -> dict[str, Any]:
        """Return the segment in the format of the API, optionally with its words."""
        data = {
            "text": self.text,
            "start": round(self.start, 2),
            "end": round(self.end, 2),
            "confidence": round(self.confidence, 3),
        }
        return data | ({"words": [word.to_dict() for word in self.words]} if with_words else {})


def model_folder(path: Path, file: str) -> Path:
    """Return `path` or the first folder below it that contains the model's file; raises `EngineError`."""
    places = [path, *sorted(path.glob("[!.]*/"))]
    folder = next((place for place in places if (place / file).is_file()), None)
    if folder is None:
        raise EngineError(f"{path} is not the folder of a transcription model: {file} is missing.")
    return folder


def load_audio(task: Task) -> Wave:
    """Return the task's recording, mono at 16 kHz with normalized peak; raises `UnusableInput`."""
    wave = files.read(recording(task), RATE)
    return wave * peak_factor([wave])


def recording(task: Task) -> Path:
    """Return the task's recording; raises `UnusableInput`."""
    path = next((task.files[name] for name in _NAMES if name in task.files), None)
    if path is None:
        raise UnusableInput("`audio_url` is required.")
    return path


def peak_factor(pieces: Iterable[Wave]) -> np.float32:
    """Return the factor that normalizes the peak of a recording."""
    peak = max(float(np.abs(piece).max()) for piece in pieces if piece.size)
    return np.float32(_PEAK / peak if peak > 1e-4 else 1)


def speech_ranges(wave: Wave) -> list[tuple[int, int]]:
    """Return the sample ranges that may contain speech, split at pauses, of at most 25 s, without beeps."""
    frame = round(_FRAME * RATE)
    count = wave.size // frame
    if not count:
        return []
    power = (wave[: count * frame].reshape(count, frame) ** 2).mean(1)
    level = 10 * np.log10(power + 1e-9)
    loud = float(np.percentile(level, 95))
    # The recording is silent.
    if loud < -65:
        return []
    threshold = max(loud - _QUIET_DB, min(float(np.percentile(level, 10)) + _FLOOR_DB, loud - 6))
    ranges: list[tuple[int, int]] = []
    for start, end in _merge(np.flatnonzero(level > threshold) * _FRAME):
        if _is_tone(wave[round(start * RATE) : round(end * RATE)]):
            continue
        edges = [start - _MARGIN, *_split_points(start, end, level), end + _MARGIN]
        samples = [min(wave.size, max(0, round(edge * RATE))) for edge in edges]
        ranges += itertools.pairwise(samples)
    return ranges


def group_ranges(ranges: Sequence[tuple[int, int]], seconds: float) -> Iterator[list[tuple[int, int]]]:
    """Yield groups of consecutive ranges that extend over at most `seconds`, or consist of one range."""
    group: list[tuple[int, int]] = []
    for start, end in ranges:
        if group and end - group[0][0] > seconds * RATE:
            yield group
            group = []
        group.append((start, end))
    if group:
        yield group


def _is_tone(samples: Wave) -> bool:
    """Return whether the audio is a single pure tone such as a beep; a voice has overtones."""
    count = samples.size // _WINDOW
    if not count:
        return False
    windows = samples[: count * _WINDOW].reshape(count, _WINDOW) * np.hanning(_WINDOW)
    power = np.abs(np.fft.rfft(windows)) ** 2
    bins = np.abs(np.arange(power.shape[1]) - power.argmax(1)[:, None]) <= _TONE_BINS
    pure = (power * bins).sum(1) > _TONE_POWER * power.sum(1)
    return bool(pure.mean() > _TONE_WINDOWS)


def _merge(times: NDArray[Any]) -> list[tuple[float, float]]:
    """Merge times closer than a pause into ranges, and drop ranges that are too short."""
    ranges: list[list[float]] = []
    for time in map(float, times):
        if ranges and time - ranges[-1][1] < _PAUSE:
            ranges[-1][1] = time
        else:
            ranges.append([time, time])
    return [(start, end) for start, end in ranges if end - start >= _SHORTEST]


def _split_points(start: float, end: float, level: NDArray[Any]) -> Iterator[float]:
    """Yield the quietest positions in a long range, in seconds, at which it is split."""
    while end - start > _LONGEST:
        first, last = (round((start + share * _LONGEST) / _FRAME) for share in (0.6, 1.0))
        quiet = np.convolve(level[first:last], np.ones(_BREATH), "same")
        start = (first + int(quiet[_BREATH:-_BREATH].argmin()) + _BREATH + 0.5) * _FRAME
        yield start


def show(task: Task, context: Context, number: int, text: str) -> None:
    """Show the segment with an index to the caller, if the task's `partial_text` requests it."""
    if task.inputs.get("partial_text") and isinstance(context, PreviewContext):
        context.preview(msgspec.json.encode((number, text)))


def result(
    segments: Sequence[TimedSegment], seconds: float, task: Task, quality: Quality, language: str
) -> Result:
    """Return the result with text, segments and mean confidence, billed by the minute."""
    with_words = bool(task.inputs.get("timestamps", True))
    weights = [max(0.01, segment.end - segment.start) for segment in segments]
    total = sum(segment.confidence * weight for segment, weight in zip(segments, weights, strict=True))
    data: dict[str, Any] = {
        "text": " ".join(segment.text for segment in segments),
        "segments": [segment.to_dict(with_words=with_words) for segment in segments],
        "language": language,
        "confidence": round(total / sum(weights), 3) if weights else 0.0,
        "duration": round(seconds, 3),
    }
    return Result(data=data, quality=quality, billed=seconds / 60)
