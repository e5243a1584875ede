"""Writing and reading of mono audio files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import msgspec
import numpy as np
from av.audio.frame import AudioFrame
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Artifact, UnusableInput
from sixfold.engines import demux

Wave = NDArray[np.float32]

RATE = 48_000
MAX_SECONDS = 1800.0
_NO_AUDIO = "The file has no audio track."
_PIECE = 1 << 16


class AudioFormat(msgspec.Struct, frozen=True):
    """The container and codec of an output format; `bits` per second is 0 for lossless codecs."""

    muxer: str
    codec: str
    content_type: str
    bits: int = 0
    rate: int = RATE


FORMATS = {
    "mp3": AudioFormat("mp3", "libmp3lame", "audio/mpeg", 96_000),
    "opus": AudioFormat("ogg", "libopus", "audio/ogg", 48_000),
    "wav": AudioFormat("wav", "pcm_s16le", "audio/wav"),
    "flac": AudioFormat("flac", "flac", "audio/flac"),
    "aac": AudioFormat("adts", "aac", "audio/aac", 96_000),
    # Raw samples without a header: 16 bits, mono.
    "pcm": AudioFormat("s16le", "pcm_s16le", "audio/pcm", rate=24_000),
}


def write(pieces: Iterator[Wave], rate: int, name: str, target: Path) -> Artifact:
    """Write consecutive mono pieces to a file of format `name`; equal pieces result in equal bytes."""
    kind = FORMATS[name]
    samples = 0
    options = {"fflags": "+bitexact"}
    with av.open(str(target), "w", format=kind.muxer, options=options) as container:
        stream: Any = container.add_stream(
            kind.codec, rate=kind.rate, layout="mono", options={"flags": "+bitexact"}
        )
        if kind.bits:
            stream.bit_rate = kind.bits
        for wave in pieces:
            for at in range(0, wave.size, _PIECE):
                frame = AudioFrame.from_ndarray(wave[None, at : at + _PIECE], format="fltp", layout="mono")
                frame.sample_rate = rate
                frame.pts = samples
                samples += frame.samples
                container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    seconds = round(samples / rate, 3)
    return Artifact(kind.content_type, info={"duration": seconds, "sample_rate": kind.rate}, path=target)


def read(path: Path, rate: int, max_seconds: float = MAX_SECONDS) -> Wave:
    """Return the first audio track of a file as mono samples at `rate`; raises `UnusableInput`."""
    return np.concatenate(list(pieces(path, rate, max_seconds)))


def pieces(path: Path, rate: int, max_seconds: float = MAX_SECONDS) -> Iterator[Wave]:
    """Yield the samples that `read` returns as they are decoded; raises `UnusableInput`."""
    length, limit = 0, round(max_seconds * rate)
    with demux.open_media(path) as container:
        if not container.streams.audio:
            raise UnusableInput(_NO_AUDIO)
        for part in _decode(container, rate):
            length += part.size
            if length > limit:
                raise UnusableInput(f"The audio must be at most {max_seconds / 60:g} minutes long.")
            yield np.clip(np.nan_to_num(part), -1, 1)
    if not length:
        raise UnusableInput(_NO_AUDIO)


def _decode(container: Any, rate: int) -> Iterator[Wave]:
    resampler = av.AudioResampler(format="fltp", layout="mono", rate=rate)
    for frame in container.decode(audio=0):
        for resampled in resampler.resample(frame):
            yield resampled.to_ndarray()[0]
    for resampled in resampler.resample(None):
        yield resampled.to_ndarray()[0]
