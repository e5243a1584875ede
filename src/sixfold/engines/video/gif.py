"""Animated GIFs whose palettes are chosen over whole scenes.

The frames are read twice: once to count their colors, once to write them. A pixel counts when it changes, so
that a small moving object weighs as much as a large static background. All frames of a scene share a palette,
and dithering depends only on a pixel's position, so static regions keep their colors exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import av.error
import av.filter
import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Frames = Callable[[], Iterator[Array]]

# GIF times are in hundredths of a second, and players slow down frames shorter than two of them.
MAX_GIF_RATE = 50
MAX_COLORS = 255
_TRANSPARENT = MAX_COLORS
_RGB = av.VideoFormat("rgb24")
_BGRA = av.VideoFormat("bgra")
_TICK = Fraction(1, 100)
_DITHER = "dither=bayer:bayer_scale=4:diff_mode=rectangle"
# Changes of up to this many levels are noise of the video's encoder.
_NOISE_LEVELS = 3
_CUT_LEVELS = 12
_CUT_SHARE = 0.75
_SCENE_SECONDS = 0.5
_BIN_BITS = 6
_REFINEMENTS = 3
_CHUNK = 4096


def write_gif(target: Path, size: tuple[int, int], rate: Fraction, frames: Frames) -> None:
    """Write a GIF that loops forever.

    `frames` is called twice and must yield the same RGB frames each time.
    """
    palettes = _palettes(frames(), max(1, round(rate * _SCENE_SECONDS)))
    with closing(_GifFile(target, size, rate)) as file:
        for number, frame in enumerate(_denoised(frames())):
            if number in palettes:
                file.use(palettes.pop(number))
            file.add(frame.pixels)
        file.finish()


class _HeldFrame(msgspec.Struct, frozen=True):
    """A frame without noise, the mask of changed pixels, and the fraction of pixels with large changes."""

    pixels: Array
    changed: Array
    cut_share: float


def _denoised(frames: Iterable[Array]) -> Iterator[_HeldFrame]:
    """Yield the frames, in which each pixel changes its color only if the change exceeds noise."""
    pixels: Array | None = None
    for frame in frames:
        if pixels is None:
            pixels = frame.copy()
            yield _HeldFrame(pixels, np.ones(frame.shape[:2], np.uint8), 1.0)
            continue
        levels = cv2.absdiff(frame, pixels).max(axis=2)
        changed = (levels > _NOISE_LEVELS).astype(np.uint8)
        cv2.copyTo(frame, changed, pixels)
        yield _HeldFrame(pixels, changed, float(np.count_nonzero(levels > _CUT_LEVELS) / levels.size))


# -- palettes ------------------------------------------------------------------------------------


def _palettes(frames: Iterable[Array], shortest: int) -> dict[int, Array]:
    """Return the palette of each scene by its first frame; scenes last at least `shortest` frames."""
    palettes: dict[int, Array] = {}
    colors, first = _ColorHistogram(), 0
    for number, frame in enumerate(_denoised(frames)):
        if number - first >= shortest and frame.cut_share >= _CUT_SHARE:
            palettes[first] = colors.palette()
            colors, first = _ColorHistogram(), number
            colors.add(frame.pixels.reshape(-1, 3))
        else:
            colors.add(frame.pixels[frame.changed > 0])
    palettes[first] = colors.palette()
    return palettes


class _ColorHistogram:
    """A histogram of colors with the mean color of each bin."""

    def __init__(self) -> None:
        bins = 1 << 3 * _BIN_BITS
        self._counts = np.zeros(bins)
        self._sums = np.zeros((3, bins))

    def add(self, pixels: Array) -> None:
        """Count the colors of pixels (n, 3)."""
        if not len(pixels):
            return
        short = (pixels >> (8 - _BIN_BITS)).astype(np.int32)
        where = (short[:, 0] << 2 * _BIN_BITS) | (short[:, 1] << _BIN_BITS) | short[:, 2]
        bins = len(self._counts)
        self._counts += np.bincount(where, minlength=bins)
        for sums, channel in zip(self._sums, pixels.T, strict=True):
            sums += np.bincount(where, channel, minlength=bins)

    def palette(self) -> Array:
        """Return at most `MAX_COLORS` colors (n, 3) that best approximate the counted colors."""
        bins = np.flatnonzero(self._counts)
        weights = self._counts[bins]
        colors = (self._sums[:, bins] / weights).T
        palette = _refined(_cut(colors, weights), colors, weights) if len(bins) > MAX_COLORS else colors
        return np.clip(np.rint(palette), 0, 255).astype(np.uint8)


def _cut(colors: Array, weights: Array) -> Array:
    """Split the group with the largest error until there are `MAX_COLORS` groups; return their means."""
    groups = [_Group.of(colors, weights, np.arange(len(colors)))]
    while len(groups) < MAX_COLORS:
        worst = max(range(len(groups)), key=lambda index: groups[index].error)
        group = groups[worst]
        if group.error <= 0:
            break
        above = colors[group.members, group.axis] > group.mean[group.axis]
        groups[worst] = _Group.of(colors, weights, group.members[above])
        groups.append(_Group.of(colors, weights, group.members[~above]))
    return np.array([group.mean for group in groups])


class _Group(msgspec.Struct, frozen=True):
    """Colors that share a palette entry, their squared error, and the channel that contributes most to it."""

    members: Array
    mean: Array
    error: float
    axis: int

    @classmethod
    def of(cls, colors: Array, weights: Array, members: Array) -> _Group:
        member_colors, weight = colors[members], weights[members][:, None]
        mean = (member_colors * weight).sum(0) / weight.sum()
        errors = ((member_colors - mean) ** 2 * weight).sum(0)
        error = float(errors.sum()) if len(members) > 1 else 0.0
        return cls(members, mean, error, int(errors.argmax()))


def _refined(palette: Array, colors: Array, weights: Array) -> Array:
    """Move each palette entry repeatedly to the mean of the colors nearest to it (k-means)."""
    for _ in range(_REFINEMENTS):
        nearest = np.concatenate(
            [_nearest(palette, colors[start : start + _CHUNK]) for start in range(0, len(colors), _CHUNK)]
        )
        total = np.bincount(nearest, weights, minlength=len(palette))
        used = total > 0
        for channel in range(3):
            sums = np.bincount(nearest, weights * colors[:, channel], minlength=len(palette))
            palette[used, channel] = sums[used] / total[used]
    return palette


def _nearest(palette: Array, colors: Array) -> Array:
    distance = sum((colors[:, None, channel] - palette[None, :, channel]) ** 2 for channel in range(3))
    return np.asarray(distance).argmin(axis=1)


# -- the file ------------------------------------------------------------------------------------


class _GifFile:
    """Writes RGB frames with the current palette."""

    def __init__(self, path: Path, size: tuple[int, int], rate: Fraction) -> None:
        self._container = av.open(str(path), "w", format="gif", options={"loop": "0"})
        self._stream: Any = self._container.add_stream("gif", rate=rate)
        self._stream.width, self._stream.height = size
        self._stream.pix_fmt = "pal8"
        self._stream.codec_context.time_base = _TICK
        self._size, self._rate = size, rate
        self._frames = 0
        # The filters of a graph are only valid while the graph itself is referenced.
        self._graph: Any = None
        self._source: Any = None
        self._sink: Any = None

    def close(self) -> None:
        """Close the file, which is incomplete before `finish`."""
        self._container.close()

    def use(self, palette: Array) -> None:
        """Use another palette for the frames that follow."""
        self._flush()
        self._graph = graph = av.filter.Graph()
        self._source = graph.add_buffer(
            width=self._size[0], height=self._size[1], format=_RGB, time_base=_TICK
        )
        entries = graph.add_buffer(width=16, height=16, format=_BGRA, time_base=_TICK)
        used, self._sink = graph.add("paletteuse", _DITHER), graph.add("buffersink")
        self._source.link_to(used, 0, 0)
        entries.link_to(used, 0, 1)
        used.link_to(self._sink)
        graph.configure()
        frame = av.VideoFrame.from_ndarray(_entries(palette), format="bgra")
        frame.time_base, frame.pts = _TICK, self._moment()
        entries.push(frame)
        entries.push(None)

    def add(self, pixels: Array) -> None:
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
        frame.time_base, frame.pts = _TICK, self._moment()
        self._frames += 1
        self._source.push(frame)
        self._drain()

    def finish(self) -> None:
        """Write the frames that the encoder has buffered."""
        self._flush()
        self._container.mux(self._stream.encode(None))

    def _moment(self) -> int:
        return round(self._frames / self._rate / _TICK)

    def _flush(self) -> None:
        if self._source is not None:
            self._source.push(None)
            self._drain()

    def _drain(self) -> None:
        while True:
            try:
                frame = self._sink.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return
            self._container.mux(self._stream.encode(frame))


def _entries(palette: Array) -> Array:
    """Return a palette in the filter's format: 16 x 16 BGRA pixels, the last one transparent."""
    entries = np.zeros((256, 4), np.uint8)
    entries[: len(palette), :3] = palette[:, ::-1]
    entries[len(palette) :, :3] = palette[-1, ::-1]
    entries[:_TRANSPARENT, 3] = 255
    return entries.reshape(16, 16, 4)
