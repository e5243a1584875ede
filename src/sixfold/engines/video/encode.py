"""Streaming encoder of video files; memory use does not grow with the length.

The default kind plays everywhere: H.264 4:2:0 and AAC in MP4, with the index at the start. `KINDS` lists all
kinds; the kinds with "cover" in their name preserve the alpha channel.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import av
import msgspec
import numpy as np
from av.video.reformatter import ColorRange, Colorspace
from numpy.typing import NDArray

from sixfold.engines.video import yuv
from sixfold.engines.video.yuv import YuvPlanes

Array = NDArray[Any]
# A tuple contains the Y, U and V planes in 4:2:0; an array is RGB or RGBA.
Frame = YuvPlanes | tuple[Array, ...] | Array

AV1 = "libsvtav1"
_BT709, _VIDEO_RANGE = 1, 1
_THREADS = Path("/proc/self/task")

AUDIO_RATE = 48_000
# The encoder runs in its own thread; the caller waits once this many frames are queued.
_MAX_PENDING = 3
# Equal frames must give equal bytes, so mbtree, which depends on uninitialized memory, is off, and the number
# of threads does not depend on the machine.
_OPTIONS = {"preset": "veryfast", "crf": "19", "profile": "high", "x264-params": "mbtree=0"}
# Omits the random identifier that WebM files contain by default.
_BITEXACT = {"fflags": "+bitexact"}
_VP9 = {"deadline": "realtime", "cpu-used": "6", "crf": "30", "b": "0", "row-mt": "0"}


class VideoKind(msgspec.Struct, frozen=True):
    """A kind of video file: container, codecs and options; `audio_samples` is the size of an audio frame.

    Keyframes are at most `keyframe_seconds` apart; `audio_bit_rate` is in bits per second. `matrix` is the
    code of the color matrix of added planes and of the file: BT.709 or BT.601.
    """

    content_type: str
    container: str
    codec: str
    options: Mapping[str, str]
    pixel_format: str
    audio_codec: str
    audio_samples: int
    audio_format: str = "fltp"
    mux_options: Mapping[str, str] = {}
    keyframe_seconds: float = 2
    audio_bit_rate: int = 160_000
    matrix: int = _BT709


MP4 = VideoKind(
    "video/mp4", "mp4", "libx264", _OPTIONS, "yuv420p", "aac", 1024, mux_options={"movflags": "+faststart"}
)
KINDS: Mapping[str, VideoKind] = {
    "mp4": MP4,
    "webm": VideoKind("video/webm", "webm", "libvpx-vp9", _VP9, "yuv420p", "libopus", 960, "flt", _BITEXACT),
    "webm-cover": VideoKind(
        "video/webm",
        "webm",
        "libvpx-vp9",
        {**_VP9, "auto-alt-ref": "0"},
        "yuva420p",
        "libopus",
        960,
        "flt",
        _BITEXACT,
    ),
    "mov-cover": VideoKind(
        "video/quicktime",
        "mov",
        "prores_ks",
        {"profile": "4444", "vendor": "apl0"},
        "yuva444p10le",
        "aac",
        1024,
        mux_options={"movflags": "+faststart"},
    ),
}


class AudioSource(msgspec.Struct, frozen=True):
    """An audio track: `read(first, last)` returns float32 (2, last - first) at 48 kHz.

    Calls must be in order of time.
    """

    samples: int
    read: Callable[[int, int], Array]

    @classmethod
    def of(cls, wave: Array) -> AudioSource:
        """Return a track of a complete signal: float32 (2, samples) in -1..1."""
        return cls(wave.shape[1], lambda first, last: wave[:, first:last])


class VideoEncoder:
    """Encodes a video file frame by frame; a context manager."""

    def __init__(
        self,
        path: Path,
        size: tuple[int, int],
        rate: Fraction,
        audio: AudioSource | None = None,
        kind: VideoKind = MP4,
        threads: int = 1,
    ) -> None:
        self._container = av.open(str(path), "w", format=kind.container, options=dict(kind.mux_options))
        self._rate = rate
        self._kind = kind
        stream: Any = self._container.add_stream(kind.codec, rate=rate, options=dict(kind.options))
        stream.pix_fmt = kind.pixel_format
        stream.codec_context.thread_count = threads
        open_stream(stream, size, rate, 1 / rate, kind.keyframe_seconds, kind.matrix)
        self._stream = stream
        self._audio = audio
        self._audio_stream: Any = None
        if audio:
            self._audio_stream = self._container.add_stream(kind.audio_codec, rate=AUDIO_RATE)
            self._audio_stream.layout = "stereo"
            self._audio_stream.bit_rate = kind.audio_bit_rate
        self._frames = 0
        self._samples = 0
        self._encoder = ThreadPoolExecutor(1, "video-encoder")
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

    def add(self, pixels: Frame) -> None:
        """Queue the next frame, as planes, RGB or RGBA; raises the encoding error of an earlier frame."""
        self._pending.append(self._encoder.submit(self._encode, pixels))
        while len(self._pending) > _MAX_PENDING:
            self._pending.popleft().result()

    def _encode(self, pixels: Frame) -> None:
        frame = _video_frame(pixels, self._kind.pixel_format, self._kind.matrix)
        set_colors(frame, self._kind.matrix)
        frame.pts = self._frames
        frame.time_base = 1 / self._rate
        self._container.mux(self._stream.encode(frame))
        self._frames += 1
        self._encode_audio(int(self._frames / self._rate * AUDIO_RATE))

    def _encode_audio(self, sample: int) -> None:
        if self._audio is None or self._audio_stream is None:
            return
        until, step = min(sample, self._audio.samples), self._kind.audio_samples
        while self._samples + step <= until or self._samples < until == self._audio.samples:
            part = self._audio.read(self._samples, min(self._samples + step, self._audio.samples))
            frame = _audio_frame(part, self._kind.audio_format)
            frame.sample_rate = AUDIO_RATE
            frame.pts = self._samples
            frame.time_base = Fraction(1, AUDIO_RATE)
            self._container.mux(self._audio_stream.encode(frame))
            self._samples += part.shape[1]

    def _finish(self) -> None:
        if self._audio is not None and self._audio_stream is not None:
            self._encode_audio(self._audio.samples)
            self._container.mux(self._audio_stream.encode(None))
        self._container.mux(self._stream.encode(None))


def yuv_planes(rgb: Array) -> tuple[Array, ...]:
    """Convert RGB with even sides to Y, U and V planes in 4:2:0."""
    return yuv.of_frame(_frame_of_rgb(rgb, "yuv420p"))


def _video_frame(pixels: Frame, pixel_format: str, matrix: int) -> av.VideoFrame:
    match pixels:
        case YuvPlanes(y, uv):
            return frame_of_planes((y, uv[..., 0], uv[..., 1]))
        case tuple():
            return frame_of_planes(pixels)
        case _:
            return _frame_of_rgb(pixels, pixel_format, matrix)


def frame_of_planes(planes: tuple[Array, ...]) -> av.VideoFrame:
    """Return a 4:2:0 frame with a copy of the Y, U and V planes."""
    frame = av.VideoFrame(planes[0].shape[1], planes[0].shape[0], "yuv420p")
    for plane, pixels in zip(frame.planes, planes, strict=True):
        _fill(plane, pixels)
    return frame


def _frame_of_rgb(pixels: Array, pixel_format: str, matrix: int = _BT709) -> av.VideoFrame:
    frame = av.VideoFrame.from_ndarray(pixels, format="rgb24" if pixels.shape[2] == 3 else "rgba")
    return frame.reformat(
        format=pixel_format,
        src_color_range=ColorRange.JPEG,
        dst_colorspace=Colorspace(matrix),
        dst_color_range=ColorRange.MPEG,
        # With several threads, columns at their borders are wrong if the width is not a multiple of 16.
        threads=1,
    )


def _audio_frame(part: Array, sample_format: str) -> av.AudioFrame:
    packed = part.T.reshape(1, -1) if sample_format == "flt" else part
    return av.AudioFrame.from_ndarray(np.ascontiguousarray(packed), format=sample_format, layout="stereo")


def _fill(plane: Any, pixels: Array) -> None:
    """Copy pixels into a frame's plane, whose lines may be padded."""
    height, width = pixels.shape
    buffer = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
    buffer[:height, :width] = pixels


def open_stream(
    stream: Any,
    size: tuple[int, int],
    rate: Fraction,
    tick: Fraction,
    keyframe_seconds: float = 2,
    matrix: int = _BT709,
) -> None:
    """Set size (width, height), frame rate, time base (`tick`) and colors of a new stream, and open it."""
    stream.width, stream.height = size
    codec = stream.codec_context
    codec.gop_size = max(1, round(keyframe_seconds * float(rate)))
    codec.color_primaries = codec.color_trc = _BT709
    codec.colorspace = matrix
    codec.color_range = _VIDEO_RANGE
    codec.time_base = tick
    _open_encoder(stream)


def set_colors(frame: Any, matrix: int = _BT709) -> None:
    """Mark a frame with the color range and matrix of its stream."""
    frame.color_range, frame.colorspace = _VIDEO_RANGE, matrix


def _open_encoder(stream: Any) -> None:
    """Open an AV1 encoder now and undo the scheduling changes that it makes to the process.

    As root, SVT-AV1 raises the opening thread to the highest real-time priority. Its worker threads and all
    child processes started later would inherit that priority and starve other processes.
    """
    if stream.codec_context.name != AV1:
        return
    before = set(_realtime_threads())
    stream.codec_context.open()
    for thread in set(_realtime_threads()) - before:
        with suppress(ProcessLookupError):
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def _realtime_threads() -> Iterator[int]:
    """Yield the ids of this process's threads that have a real-time priority."""
    for path in _THREADS.iterdir() if sys.platform == "linux" else ():
        with suppress(ProcessLookupError):
            if os.sched_getscheduler(int(path.name)) == os.SCHED_FIFO:
                yield int(path.name)
