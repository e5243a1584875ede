"""Preparation of recordings for a provider, and conversion of its audio to one file.

Audio is decoded in pieces, as half an hour takes 350 MB. A large file, and a file in a container that allows
any codec, is read in another process, because its index and its codec can take any amount of memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Artifact, EngineError, UnusableInput
from sixfold.engines import demux
from sixfold.engines.limited_process import Argument, LimitedProcesses
from sixfold.engines.speech import files, transcription

Wave = NDArray[np.float32]

# The pause between the audio of two calls.
_PAUSE_SECONDS = 0.26
_SIMPLE = frozenset({"mp3", "wav", "ogg", "flac", "aac"})
_SMALL_BYTES = 2**20
# Address space of the interpreter with its libraries, and of the decoder.
_MEMORY_BYTES, _SECONDS = 3 * 2**30, 300
_PROCESSES = LimitedProcesses(2)
_UNREADABLE = "The audio cannot be read."


class RecordingFile(msgspec.Struct, frozen=True):
    """A recording that was encoded again, and its length."""

    path: Path
    seconds: float


async def prepare_recording(path: Path, folder: Path) -> RecordingFile:
    """Write a recording as an MP3 file without the metadata of its file; raises `UnusableInput`."""
    target = folder / "recording.mp3"
    seconds = float(await _call("encode_here", (path,), str(target)))
    return RecordingFile(target, seconds)


def encode_here(target: str, path: str) -> float:
    """Write a recording with a normalized peak, in this process; return its seconds."""
    factor = transcription.peak_factor(files.pieces(Path(path), transcription.RATE))
    pieces = (piece * factor for piece in files.pieces(Path(path), transcription.RATE))
    return float(files.write(pieces, transcription.RATE, "mp3", Path(target)).info["duration"])


async def join_speech(
    paths: Sequence[Path], tempo: float, format_: str, folder: Path, title: str
) -> Artifact:
    """Write one file with the audio of several at another tempo; raises `EngineError`."""
    target = folder / f"speech.{format_}"
    try:
        seconds, rate = await _call("join_here", paths, str(target), format_, tempo)
    except UnusableInput as error:
        raise EngineError(f"{title} returned audio that cannot be read: try again.") from error
    info = {"duration": seconds, "sample_rate": rate}
    return Artifact(files.FORMATS[format_].content_type, info=info, path=target)


def join_here(target: str, format_: str, tempo: float, *paths: str) -> tuple[float, int]:
    """Write the audio of several files, in this process; return the seconds and the sample rate."""

    def pieces() -> Iterator[Wave]:
        for number, path in enumerate(paths):
            if number:
                yield np.zeros(round(_PAUSE_SECONDS * files.RATE), np.float32)
            yield from _at_tempo(files.pieces(Path(path), files.RATE), tempo)

    info = files.write(pieces(), files.RATE, format_, Path(target)).info
    return info["duration"], info["sample_rate"]


def _at_tempo(pieces: Iterator[Wave], tempo: float) -> Iterator[Wave]:
    if tempo == 1:
        return pieces
    # Imported here, because only a change of tempo needs OpenCV.
    from sixfold.engines.video import decoder

    stereo = (np.stack([piece, piece]) for piece in pieces)
    return (piece[0] for piece in decoder.change_tempo(stereo, tempo))


async def _call(function: str, paths: Sequence[Path], *arguments: Argument) -> Any:
    """Call a function in a thread or, unless all files are simple, in another process."""
    words = (*arguments, *(str(path) for path in paths))
    if await asyncio.to_thread(_are_simple, paths):
        return await asyncio.to_thread(globals()[function], *words)
    target = f"{__name__}:{function}"
    return await _PROCESSES.call(target, _MEMORY_BYTES, _SECONDS, _UNREADABLE, *words)


def _are_simple(paths: Sequence[Path]) -> bool:
    return all(path.stat().st_size <= _SMALL_BYTES and demux.demuxer(path) in _SIMPLE for path in paths)
