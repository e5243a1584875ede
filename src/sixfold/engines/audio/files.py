"""Sound out of files and into files: always float32 (2, samples) at 48 kHz in between."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Artifact, UnusableInput
from sixfold.engines import demux
from sixfold.engines.audio.stereo import StereoSignal

Array = NDArray[Any]  # float32

RATE = 48_000
_CHUNK = 4096


@dataclass(frozen=True, slots=True)
class AudioKind:
    """How one format is written; `bits` is its rate per second, 0 where it loses nothing."""

    content_type: str
    container: str
    codec: str
    samples: str
    bits: int = 0


KINDS = {
    "mp3": AudioKind("audio/mpeg", "mp3", "libmp3lame", "fltp", 192_000),
    "wav": AudioKind("audio/wav", "wav", "pcm_s16le", "s16"),
    "flac": AudioKind("audio/flac", "flac", "flac", "s16"),
}


class AudioBuffer:
    """Writes one sound file, piece by piece; what lies in memory does not grow with its length."""

    def __init__(self, path: Path, format_: str) -> None:
        kind = KINDS[format_]
        self._container = av.open(str(path), "w", format=kind.container)
        self._stream: Any = self._container.add_stream(kind.codec, rate=RATE)
        self._stream.layout = "stereo"
        self._stream.format = kind.samples
        if kind.bits:
            self._stream.bit_rate = kind.bits
        self._stream.codec_context.open()
        self._each = self._stream.codec_context.frame_size or _CHUNK
        self._samples = kind.samples
        self._left = np.zeros((2, 0), np.float32)
        self.written = 0

    def add(self, sound: Array) -> None:
        """The next piece."""
        ready = np.concatenate([self._left, sound], axis=1)
        whole = ready.shape[1] // self._each * self._each
        for begin in range(0, whole, self._each):
            self._encode(ready[:, begin : begin + self._each])
        self._left = ready[:, whole:]

    def close(self) -> None:
        """Write what is left, and end the file."""
        if self._left.shape[1]:
            self._encode(self._left)
        self._container.mux(self._stream.encode(None))
        self._container.close()

    def _encode(self, part: Array) -> None:
        if self._samples == "s16":
            shown = np.rint(np.clip(part, -1, 1) * 32767).astype(np.int16).T.reshape(1, -1)
        else:
            shown = part
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(shown), self._samples, "stereo")
        frame.sample_rate = RATE
        frame.pts = self.written
        frame.time_base = Fraction(1, RATE)
        self._container.mux(self._stream.encode(frame))
        self.written += part.shape[1]


def written(sound: Array, format_: str, path: Path, **info: Any) -> Artifact:
    """A sound as a file at `path`; its facts are its duration and what else is told."""
    tape = AudioBuffer(path, format_)
    for begin in range(0, sound.shape[1], RATE):
        tape.add(sound[:, begin : begin + RATE])
    tape.close()
    facts = {"duration": round(sound.shape[1] / RATE, 3), **info}
    return Artifact(KINDS[format_].content_type, info=facts, path=path)


def pieces(container: Any, start: float = 0.0, seconds: float | None = None) -> Iterator[Array]:
    """An open file's first sound from a second on, piece by piece; raises `UnusableInput` without one."""
    if not container.streams.audio:
        raise UnusableInput("There is no sound in this file.")
    stream = container.streams.audio[0]
    if start > 1:
        container.seek(int((start - 1) * av.time_base), backward=True)
    stereo = StereoSignal(RATE)
    origin = float((stream.start_time or 0) * stream.time_base)
    first, last = round(start * RATE), math.inf if seconds is None else round((start + seconds) * RATE)
    position = -1
    for frame in itertools.chain(container.decode(stream), (None,)):
        if frame is not None and position < 0:
            position = max(0, round((float(frame.time or origin) - origin) * RATE))
        for piece in _resampled(stereo, frame):
            begin, position = position, position + piece.shape[1]
            kept = piece[:, max(0, first - begin) : int(max(0, min(last, position) - begin))]
            if kept.shape[1]:
                yield kept
        if position >= last:
            return


def _resampled(stereo: StereoSignal, frame: Any) -> Iterator[Array]:
    for piece in stereo.pieces(frame):
        yield np.clip(np.nan_to_num(piece), -4, 4).astype(np.float32)


def read(path: Path, most_seconds: float) -> Array:
    """A file's whole sound; raises `UnusableInput` where there is none, or more than `most_seconds` of it."""
    found: list[Array] = []
    samples = 0
    with demux.open_media(path) as container:
        for piece in pieces(container):
            found.append(piece)
            samples += piece.shape[1]
            if samples > most_seconds * RATE:
                raise UnusableInput(f"The sound is longer than {most_seconds / 60:g} minutes.")
    if not samples:
        raise UnusableInput("There is no sound in this file.")
    return np.concatenate(found, axis=1)


def resampled(sound: Array, rate: int, to: int) -> Array:
    """A sound at another rate."""
    resampler = av.AudioResampler("fltp", "stereo", to)
    found: list[Array] = []
    for begin in range(0, sound.shape[1], rate):
        part = np.ascontiguousarray(sound[:, begin : begin + rate], np.float32)
        frame = av.AudioFrame.from_ndarray(part, "fltp", "stereo")
        frame.sample_rate, frame.pts, frame.time_base = rate, begin, Fraction(1, rate)
        found += [made.to_ndarray() for made in resampler.resample(frame)]
    found += [made.to_ndarray() for made in resampler.resample(None)]
    return np.concatenate(found, axis=1)
