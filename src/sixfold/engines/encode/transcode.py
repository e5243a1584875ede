"""Films out of films: transcoded frame by frame, as a picture that moves, or as one that stands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines.encode.probe import MediaStream
from sixfold.engines.video.decoder import AudioTrack, NoAudioTrack, VideoReader
from sixfold.engines.video.encode import SOUND_RATE, AudioSource, VideoEncoder, VideoKind
from sixfold.engines.video.gif import write_gif

Array = NDArray[Any]

GIF_RATE = Fraction(25, 2)  # so that a frame lasts whole hundredths, which is what a GIF counts in
GIF_WIDTH = 480
GIF_MOST_FRAMES = 600
_MOST_RATE = 60
_LOOKED_AT = (0.1, 0.3, 0.55)  # of a film's length, for a picture of it


def size_of(shape: tuple[int, int], width: int | None = None, height: int | None = None) -> tuple[int, int]:
    """A shape (width, height) brought to a width, or to a height, both sides even."""
    scale = width / shape[0] if width else height / shape[1] if height else 1.0
    return max(2, 2 * round(shape[0] * scale / 2)), max(2, 2 * round(shape[1] * scale / 2))


def transcoded(
    part: MediaStream,
    kind: VideoKind,
    target: Path,
    choose: Callable[[tuple[int, int]], tuple[int, int]],
    step: Callable[[float], None],
) -> dict[str, Any]:
    """The part as a film of `kind` at the size that `choose` makes of its own; gives the film's facts."""
    reel = _reel(part)
    try:
        rate = min(Fraction(_MOST_RATE), reel.rate)
        size = choose(reel.size(reel.at(part.begin)))
        frames = max(1, round(part.seconds * rate))
        voice = _voice(part)
        sound = None
        if voice is not None:
            samples = round(frames / rate * SOUND_RATE)
            sound = AudioSource(samples, lambda first, last: voice.read(last - first))
        with VideoEncoder(target, size, rate, sound, kind) as film:
            for index in range(frames):
                film.add(_flat(reel.pixels(reel.at(part.begin + float(index / rate)), size)))
                step((index + 1) / frames)
        if voice is not None:
            voice.close()
    finally:
        reel.close()
    shown = int(rate) if rate.denominator == 1 else round(float(rate), 3)
    return {"width": size[0], "height": size[1], "duration": round(float(frames / rate), 3), "fps": shown}


def shape_of(part: MediaStream) -> tuple[int, int]:
    """A film's width and height, upright and in square pixels."""
    reel = _reel(part)
    try:
        return reel.size(reel.at(part.begin))
    finally:
        reel.close()


def _reel(part: MediaStream) -> VideoReader:
    if not part.filmed:
        raise UnusableInput("There is no picture in this file.")
    return VideoReader(part.path, part.begin)


def _voice(part: MediaStream) -> AudioTrack | None:
    try:
        return AudioTrack(part.path, part.begin) if part.heard else None
    except NoAudioTrack:
        return None


def _flat(pixels: Array) -> Array:
    """What is transparent lies on white."""
    if pixels.shape[2] == 3:
        return pixels
    cover = pixels[..., 3:].astype(np.float32) / 255
    return np.ascontiguousarray((pixels[..., :3] * cover + 255 * (1 - cover)).astype(np.uint8))


def animated(
    part: MediaStream, target: Path, width: int | None, step: Callable[[float], None]
) -> dict[str, Any]:
    """Write the part as a GIF; return its facts."""
    count = max(1, round(part.seconds * GIF_RATE))
    if count > GIF_MOST_FRAMES:
        raise UnusableInput(
            f"A GIF takes at most {float(GIF_MOST_FRAMES / GIF_RATE):g} seconds: give a duration"
        )
    shape = shape_of(part)
    size = size_of(shape, width or min(GIF_WIDTH, shape[0]))
    read = 0

    def frames() -> Iterator[Array]:
        nonlocal read
        for pixels in _pictures(part, size, count):
            yield pixels
            read += 1
            step(read / (2 * count))

    write_gif(target, size, GIF_RATE, frames)
    return {"width": size[0], "height": size[1], "duration": float(count / GIF_RATE), "fps": float(GIF_RATE)}


def _pictures(part: MediaStream, size: tuple[int, int], count: int) -> Iterator[Array]:
    reel = _reel(part)
    try:
        for index in range(count):
            yield _flat(reel.pixels(reel.at(part.begin + float(index / GIF_RATE)), size))
    finally:
        reel.close()


def still(part: MediaStream, at: float | None, width: int) -> Array:
    """One picture of a film, RGB: at a second, or where there is most to see; no wider than it is."""
    moments = [at] if at is not None else [part.seconds * share for share in _LOOKED_AT]
    found: list[Array] = []
    for moment in moments:
        reel = _reel(MediaStream(part.path, moment, part.seconds, part.filmed, part.heard))
        try:
            frame = reel.at(moment)
            found.append(_flat(reel.pixels(frame, size_of(reel.size(frame), width))))
        finally:
            reel.close()
    return max(found, key=lambda picture: float(picture.std()))
