"""Frames into a film that plays anywhere: H.264 4:2:0 in MP4, its index in front, with AAC beside it."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import av
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.video.planes import Planes

Array = NDArray[Any]

SOUND_RATE = 48_000
_SOUND_FRAME = 1024  # samples of one AAC frame
_SOUND_BITS = 160_000
_WAITING = 3  # frames that may wait for the encoder, which works beside whoever makes them
_BT709 = 1
_VIDEO_RANGE = 1
# Without mbtree, which lets what lay in memory before decide how a block is coded, and on one thread: only
# so are equal frames equal bytes.
_OPTIONS = {"preset": "veryfast", "crf": "19", "profile": "high", "x264-params": "mbtree=0"}


class Film:
    """Writes one film frame by frame; what lies in memory does not grow with its length.

    `sound` is float32 (2, samples) at 48 kHz in -1..1, as long as the film, or None.
    """

    def __init__(self, path: Path, size: tuple[int, int], rate: Fraction, sound: Array | None = None) -> None:
        self._container = av.open(str(path), "w", format="mp4", options={"movflags": "+faststart"})
        self._rate = rate
        stream = self._container.add_stream("libx264", rate=rate, options=_OPTIONS)
        stream.width, stream.height = size
        stream.pix_fmt = "yuv420p"
        codec = stream.codec_context
        codec.thread_count = 1
        codec.gop_size = max(1, round(2 * rate))
        codec.color_primaries = codec.color_trc = codec.colorspace = _BT709
        codec.color_range = _VIDEO_RANGE
        codec.time_base = 1 / rate
        self._stream = stream
        self._sound = sound
        self._voice = self._container.add_stream("aac", rate=SOUND_RATE) if sound is not None else None
        if self._voice is not None:
            self._voice.layout = "stereo"
            self._voice.bit_rate = _SOUND_BITS
        self._frames = 0
        self._samples = 0
        self._encoder = ThreadPoolExecutor(1, "film")
        self._pending: deque[Future[None]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                while self._pending:
                    self._pending.popleft().result()
                self._finish()
        finally:
            self._encoder.shutdown(cancel_futures=True)
            self._container.close()

    def add(self, planes: Planes) -> None:
        """The next frame; raises what the encoder made of an earlier one."""
        self._pending.append(self._encoder.submit(self._encode, planes))
        while len(self._pending) > _WAITING:
            self._pending.popleft().result()

    def _encode(self, planes: Planes) -> None:
        frame = av.VideoFrame(planes.y.shape[1], planes.y.shape[0], "yuv420p")
        for plane, pixels in zip(frame.planes, (planes.y, planes.uv[..., 0], planes.uv[..., 1]), strict=True):
            _fill(plane, pixels)
        frame.color_range, frame.colorspace = _VIDEO_RANGE, _BT709
        frame.pts = self._frames
        frame.time_base = 1 / self._rate
        self._container.mux(self._stream.encode(frame))
        self._frames += 1
        self._sound_until(int(self._frames / self._rate * SOUND_RATE))

    def _sound_until(self, sample: int) -> None:
        if self._sound is None or self._voice is None:
            return
        until = min(sample, self._sound.shape[1])
        while self._samples + _SOUND_FRAME <= until or self._samples < until == self._sound.shape[1]:
            part = self._sound[:, self._samples : self._samples + _SOUND_FRAME]
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(part), format="fltp", layout="stereo")
            frame.sample_rate = SOUND_RATE
            frame.pts = self._samples
            frame.time_base = Fraction(1, SOUND_RATE)
            self._container.mux(self._voice.encode(frame))
            self._samples += part.shape[1]

    def _finish(self) -> None:
        if self._sound is not None and self._voice is not None:
            self._sound_until(self._sound.shape[1])
            self._container.mux(self._voice.encode(None))
        self._container.mux(self._stream.encode(None))


def _fill(plane: Any, pixels: Array) -> None:
    """Copy bytes into a frame's plane, whose lines may be longer than the picture's."""
    height, width = pixels.shape
    buffer = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
    buffer[:height, :width] = pixels
