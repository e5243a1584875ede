"""Frames into an animated GIF, each with the 255 colours that suit it best."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import av
import av.error
import av.filter
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FASTEST = 50  # frames a second: a GIF counts hundredths, and players slow down what is faster
_RGB = av.VideoFormat("rgb24")
_TICK = Fraction(1, 100)
_PALETTE = "max_colors=255:stats_mode=single:reserve_transparent=0"
_DITHER = "new=1:dither=bayer:bayer_scale=4:diff_mode=rectangle"


class Gif:
    """Writes one GIF frame by frame; it loops for ever."""

    def __init__(self, path: Path, size: tuple[int, int], rate: Fraction) -> None:
        self._container = av.open(str(path), "w", format="gif", options={"loop": "0"})
        self._stream: Any = self._container.add_stream("gif", rate=rate)
        self._stream.width, self._stream.height = size
        self._stream.pix_fmt = "pal8"
        self._stream.codec_context.time_base = _TICK
        self._rate = rate
        self._frames = 0
        self._graph, self._source, self._sink = _painter(size)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._source.push(None)
                self._drain()
                self._container.mux(self._stream.encode(None))
        finally:
            self._container.close()

    def add(self, picture: tuple[Array, ...]) -> None:
        """The next frame, a single sheet of RGB."""
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture[0]), format="rgb24")
        frame.time_base, frame.pts = _TICK, round(self._frames / self._rate / _TICK)
        self._frames += 1
        self._source.push(frame)
        self._drain()

    def _drain(self) -> None:
        while True:
            try:
                frame = self._sink.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return
            self._container.mux(self._stream.encode(frame))


def _painter(size: tuple[int, int]) -> tuple[Any, Any, Any]:
    """A filter that gives each frame its own palette: itself, what goes in, and what comes out."""
    graph = av.filter.Graph()
    source = graph.add_buffer(width=size[0], height=size[1], format=_RGB, time_base=_TICK)
    halves, palette = graph.add("split"), graph.add("palettegen", _PALETTE)
    used, sink = graph.add("paletteuse", _DITHER), graph.add("buffersink")
    source.link_to(halves)
    halves.link_to(used, 0, 0)
    halves.link_to(palette, 1, 0)
    palette.link_to(used, 0, 1)
    used.link_to(sink)
    graph.configure()
    return graph, source, sink
