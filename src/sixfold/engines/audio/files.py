"""Reading and writing of audio files; signals are float32 (2, samples) at 48 kHz."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Artifact, UnusableInput
from sixfold.engines import demux
from sixfold.engines.audio.stereo import StereoSignal

Array = NDArray[Any]  # float32

RATE = 48_000
_CHUNK = 4096
_NO_AUDIO = "The file has no audio track."


class AudioKind(msgspec.Struct, frozen=True):
    """The container and codec of a format; `bits` per second is 0 for lossless codecs."""

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
    """A streaming writer of an audio file; memory use does not grow with the length."""

    def __init__(self, path: Path, format_: str) -> None:
        kind = KINDS[format_]
        self._container = av.open(str(path), "w", format=kind.container)
        self._stream: Any = self._container.add_stream(kind.codec, rate=RATE)
        self._stream.layout = "stereo"
        self._stream.format = kind.samples
        if kind.bits:
            self._stream.bit_rate = kind.bits
        self._stream.codec_context.open()
        self._frame_size = self._stream.codec_context.frame_size or _CHUNK
        self._samples = kind.samples
        self._pending = np.zeros((2, 0), np.float32)
        self.written = 0

    def add(self, signal: Array) -> None:
        """Write the next part of the signal."""
        ready = np.concatenate([self._pending, signal], axis=1)
        complete = ready.shape[1] // self._frame_size * self._frame_size
        for begin in range(0, complete, self._frame_size):
            self._encode(ready[:, begin : begin + self._frame_size])
        self._pending = ready[:, complete:]

    def close(self) -> None:
        """Write the remaining samples and close the file."""
        if self._pending.shape[1]:
            self._encode(self._pending)
        self._container.mux(self._stream.encode(None))
        self._container.close()

    def _encode(self, part: Array) -> None:
        if self._samples == "s16":
            samples = np.rint(np.clip(part, -1, 1) * 32767).astype(np.int16).T.reshape(1, -1)
        else:
            samples = part
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(samples), self._samples, "stereo")
        frame.sample_rate = RATE
        frame.pts = self.written
        frame.time_base = Fraction(1, RATE)
        self._container.mux(self._stream.encode(frame))
        self.written += part.shape[1]


def write(signal: Array, format_: str, path: Path, **info: Any) -> Artifact:
    """Write a signal to a file at `path`; the artifact's info contains the duration and `info`."""
    writer = AudioBuffer(path, format_)
    for begin in range(0, signal.shape[1], RATE):
        writer.add(signal[:, begin : begin + RATE])
    writer.close()
    properties = {"duration": round(signal.shape[1] / RATE, 3), **info}
    return Artifact(KINDS[format_].content_type, info=properties, path=path)


def pieces(container: Any, start: float = 0.0, seconds: float | None = None) -> Iterator[Array]:
    """Yield the first audio track of an open file from `start` seconds on, as arrays (2, samples).

    Raises `UnusableInput` if the file does not contain audio.
    """
    if not container.streams.audio:
        raise UnusableInput(_NO_AUDIO)
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
        for piece in _clip(stereo, frame):
            begin, position = position, position + piece.shape[1]
            selected = piece[:, max(0, first - begin) : int(max(0, min(last, position) - begin))]
            if selected.shape[1]:
                yield selected
        if position >= last:
            return


def _clip(stereo: StereoSignal, frame: Any) -> Iterator[Array]:
    for piece in stereo.pieces(frame):
        yield np.clip(np.nan_to_num(piece), -4, 4).astype(np.float32)


def read(path: Path, max_seconds: float) -> Array:
    """Return the first audio track of a file.

    Raises `UnusableInput` if the file does not contain audio or is longer than `max_seconds`.
    """
    parts: list[Array] = []
    samples = 0
    with demux.open_media(path) as container:
        for piece in pieces(container):
            parts.append(piece)
            samples += piece.shape[1]
            if samples > max_seconds * RATE:
                raise UnusableInput(f"The audio must be at most {max_seconds / 60:g} minutes long.")
    if not samples:
        raise UnusableInput(_NO_AUDIO)
    return np.concatenate(parts, axis=1)


def resample(signal: Array, rate: int, to: int) -> Array:
    """Convert a signal from `rate` to another sample rate."""
    resampler = av.AudioResampler("fltp", "stereo", to)
    parts: list[Array] = []
    for begin in range(0, signal.shape[1], rate):
        part = np.ascontiguousarray(signal[:, begin : begin + rate], np.float32)
        frame = av.AudioFrame.from_ndarray(part, "fltp", "stereo")
        frame.sample_rate, frame.pts, frame.time_base = rate, begin, Fraction(1, rate)
        parts += [resampled.to_ndarray() for resampled in resampler.resample(frame)]
    parts += [resampled.to_ndarray() for resampled in resampler.resample(None)]
    return np.concatenate(parts, axis=1)
