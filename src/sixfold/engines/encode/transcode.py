"""Conversion of videos to other videos, GIFs and still images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines.encode.probe import MediaStream
from sixfold.engines.video.decoder import AudioTrack, NoAudioTrack, VideoReader
from sixfold.engines.video.encode import AUDIO_RATE, AudioSource, VideoEncoder, VideoKind
from sixfold.engines.video.gif import write_gif

Array = NDArray[Any]

# At this rate a frame lasts 8 hundredths of a second, the time unit of GIF.
GIF_RATE = Fraction(25, 2)
GIF_WIDTH = 480
GIF_MAX_FRAMES = 600
_MAX_RATE = 60
# Positions in a video at which candidates for a still image are taken.
_STILL_POSITIONS = (0.1, 0.3, 0.55)


def size_of(shape: tuple[int, int], width: int | None = None, height: int | None = None) -> tuple[int, int]:
    """Scale a shape (width, height) to a width or a height, with even sides."""
    scale = width / shape[0] if width else height / shape[1] if height else 1.0
    return max(2, 2 * round(shape[0] * scale / 2)), max(2, 2 * round(shape[1] * scale / 2))


def transcode(
    part: MediaStream,
    kind_of: Callable[[tuple[int, int], int], VideoKind],
    target: Path,
    choose: Callable[[tuple[int, int]], tuple[int, int]],
    progress: Callable[[float], None],
) -> dict[str, Any]:
    """Write the part as a video and return the properties of the file.

    `choose` maps the size of the part to the size of the video, and `kind_of` maps this size and the number
    of frames to the kind of file. A video in BT.601 is not converted to another matrix, because the
    conversion would lose detail.
    """
    reader = _reader(part)
    try:
        rate = min(Fraction(_MAX_RATE), reader.rate)
        first_frame = reader.at(part.begin)
        size, matrix = choose(reader.size(first_frame)), reader.matrix(first_frame)
        frames = max(1, round(part.seconds * rate))
        track = _audio_track(part)
        audio = None
        if track is not None:
            samples = round(frames / rate * AUDIO_RATE)
            audio = AudioSource(samples, lambda first, last: track.read(last - first))
        kind = replace(kind_of(size, frames), matrix=matrix)
        with VideoEncoder(target, size, rate, audio, kind) as video:
            for index in range(frames):
                frame = reader.at(part.begin + float(index / rate))
                planes = reader.planes(frame, size, matrix)
                video.add(_flatten(reader.pixels(frame, size)) if planes is None else planes)
                progress((index + 1) / frames)
        if track is not None:
            track.close()
    finally:
        reader.close()
    fps = int(rate) if rate.denominator == 1 else round(float(rate), 3)
    return {"width": size[0], "height": size[1], "duration": round(float(frames / rate), 3), "fps": fps}


def shape_of(part: MediaStream) -> tuple[int, int]:
    """Return the width and height of an upright frame in square pixels."""
    reader = _reader(part)
    try:
        return reader.size(reader.at(part.begin))
    finally:
        reader.close()


def _reader(part: MediaStream) -> VideoReader:
    if not part.has_video:
        raise UnusableInput("The file has no video stream.")
    return VideoReader(part.path, part.begin)


def _audio_track(part: MediaStream) -> AudioTrack | None:
    try:
        return AudioTrack(part.path, part.begin) if part.has_audio else None
    except NoAudioTrack:
        return None


def _flatten(pixels: Array) -> Array:
    if pixels.shape[2] == 3:
        return pixels
    alpha = pixels[..., 3:].astype(np.float32) / 255
    return np.ascontiguousarray((pixels[..., :3] * alpha + 255 * (1 - alpha)).astype(np.uint8))


def to_gif(
    part: MediaStream, target: Path, width: int | None, progress: Callable[[float], None]
) -> dict[str, Any]:
    """Write the part as a GIF; return its properties."""
    count = max(1, round(part.seconds * GIF_RATE))
    if count > GIF_MAX_FRAMES:
        raise UnusableInput(
            f"duration must be at most {float(GIF_MAX_FRAMES / GIF_RATE):g} seconds for a GIF."
        )
    shape = shape_of(part)
    size = size_of(shape, width or min(GIF_WIDTH, shape[0]))
    read = 0

    def frames() -> Iterator[Array]:
        nonlocal read
        for pixels in _frames(part, size, count):
            yield pixels
            read += 1
            progress(read / (2 * count))

    write_gif(target, size, GIF_RATE, frames)
    return {"width": size[0], "height": size[1], "duration": float(count / GIF_RATE), "fps": float(GIF_RATE)}


def _frames(part: MediaStream, size: tuple[int, int], count: int) -> Iterator[Array]:
    reader = _reader(part)
    try:
        for index in range(count):
            yield _flatten(reader.pixels(reader.at(part.begin + float(index / GIF_RATE)), size))
    finally:
        reader.close()


def still(part: MediaStream, at: float | None, width: int | None, max_width: int) -> Array:
    """Return the RGB frame at `at` seconds; for None, the candidate with the highest contrast.

    Without `width`, a frame that is wider than `max_width` is reduced to it.
    """
    moments = [at] if at is not None else [part.seconds * share for share in _STILL_POSITIONS]
    candidates: list[Array] = []
    for moment in moments:
        reader = _reader(MediaStream(part.path, moment, part.seconds, part.has_video, part.has_audio))
        try:
            frame = reader.at(moment)
            shape = reader.size(frame)
            size = size_of(shape, width or min(max_width, shape[0]))
            candidates.append(_flatten(reader.pixels(frame, size)))
        finally:
            reader.close()
    return max(candidates, key=lambda pixels: float(pixels.std()))
