"""Spoken sound: mono into a file as it is made, and out of what people send."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.audio.frame import AudioFrame
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Artifact, UnusableInput
from sixfold.engines import demux

Wave = NDArray[np.float32]

RATE = 48_000
MOST_SECONDS = 1800.0
_SILENT = "There is no sound in this file."
_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """How a file of one name is written."""

    muxer: str
    codec: str
    content_type: str
    bits: int = 0  # a second; 0 for what loses nothing
    rate: int = RATE


FORMATS = {
    "mp3": AudioFormat("mp3", "libmp3lame", "audio/mpeg", 96_000),
    "opus": AudioFormat("ogg", "libopus", "audio/ogg", 48_000),
    "wav": AudioFormat("wav", "pcm_s16le", "audio/wav"),
    "flac": AudioFormat("flac", "flac", "audio/flac"),
    "aac": AudioFormat("adts", "aac", "audio/aac", 96_000),
    "pcm": AudioFormat("s16le", "pcm_s16le", "audio/pcm", rate=24_000),  # no header: 16 bits, mono
}


def write(pieces: Iterator[Wave], rate: int, name: str, target: Path) -> Artifact:
    """Mono pieces, one after the other, as a file of format `name`; equal pieces give equal bytes."""
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


def read(path: Path, rate: int, most_seconds: float = MOST_SECONDS) -> Wave:
    """The first sound of a file as mono samples at `rate`; raises `UnusableInput`."""
    parts: list[Wave] = []
    kept, most = 0, round(most_seconds * rate)
    with demux.open_media(path) as container:
        if not container.streams.audio:
            raise UnusableInput(_SILENT)
        for part in _heard(container, rate):
            parts.append(part)
            kept += part.size
            if kept > most:
                raise UnusableInput(f"The sound is longer than {most_seconds / 60:g} minutes.")
    if not kept:
        raise UnusableInput(_SILENT)
    return np.clip(np.nan_to_num(np.concatenate(parts)), -1, 1)


def _heard(container: Any, rate: int) -> Iterator[Wave]:
    resampler = av.AudioResampler(format="fltp", layout="mono", rate=rate)
    for frame in container.decode(audio=0):
        for even in resampler.resample(frame):
            yield even.to_ndarray()[0]
    for even in resampler.resample(None):
        yield even.to_ndarray()[0]
