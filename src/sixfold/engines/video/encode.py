"""Frames into a film, one after the other: what lies in memory does not grow with its length.

The usual film plays anywhere: H.264 4:2:0 in MP4, its index in front, with AAC beside it. `KINDS` names the
others; those with a cover keep what is transparent.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import av
import numpy as np
from av.video.reformatter import ColorRange, Colorspace
from numpy.typing import NDArray

from sixfold.engines.video import yuv
from sixfold.engines.video.yuv import YuvPlanes

Array = NDArray[Any]
Picture = YuvPlanes | tuple[Array, ...] | Array  # a tuple: lightness and two colours, 4:2:0

AV1 = "libsvtav1"
_BT709, _VIDEO_RANGE = 1, 1
_KEY_SECONDS = 2  # from one picture that stands for itself to the next
_THREADS = Path("/proc/self/task")

SOUND_RATE = 48_000
SOUND_BITS = 160_000
_WAITING = 3  # frames that may wait for the encoder, which works beside whoever makes them
# Without mbtree, which lets what lay in memory before decide how a block is coded, and on a number of threads
# that no machine decides: only so are equal frames equal bytes.
_OPTIONS = {"preset": "veryfast", "crf": "19", "profile": "high", "x264-params": "mbtree=0"}
_UNSIGNED = {"fflags": "+bitexact"}  # without the number by chance that a WebM is given
_VP9 = {"deadline": "realtime", "cpu-used": "6", "crf": "30", "b": "0", "row-mt": "0"}


@dataclass(frozen=True, slots=True)
class VideoKind:
    """One kind of film: its container, its two codecs, and how many samples a frame of sound has."""

    content_type: str
    container: str
    codec: str
    options: Mapping[str, str]
    pixels: str
    voice: str
    voice_samples: int
    voice_format: str = "fltp"
    muxing: Mapping[str, str] = field(default_factory=dict[str, str])


MP4 = VideoKind(
    "video/mp4", "mp4", "libx264", _OPTIONS, "yuv420p", "aac", 1024, muxing={"movflags": "+faststart"}
)
KINDS: Mapping[str, VideoKind] = {
    "mp4": MP4,
    "webm": VideoKind("video/webm", "webm", "libvpx-vp9", _VP9, "yuv420p", "libopus", 960, "flt", _UNSIGNED),
    "webm-cover": VideoKind(
        "video/webm",
        "webm",
        "libvpx-vp9",
        {**_VP9, "auto-alt-ref": "0"},
        "yuva420p",
        "libopus",
        960,
        "flt",
        _UNSIGNED,
    ),
    "mov-cover": VideoKind(
        "video/quicktime",
        "mov",
        "prores_ks",
        {"profile": "4444", "vendor": "apl0"},
        "yuva444p10le",
        "aac",
        1024,
        muxing={"movflags": "+faststart"},
    ),
}


@dataclass(frozen=True, slots=True)
class AudioSource:
    """A film's sound: `read(first, last)` gives float32 (2, last - first) at 48 kHz, asked in order."""

    samples: int
    read: Callable[[int, int], Array]

    @classmethod
    def of(cls, wave: Array) -> AudioSource:
        """A whole one: float32 (2, samples) in -1..1."""
        return cls(wave.shape[1], lambda first, last: wave[:, first:last])


class VideoEncoder:
    """Writes one film frame by frame."""

    def __init__(
        self,
        path: Path,
        size: tuple[int, int],
        rate: Fraction,
        sound: AudioSource | None = None,
        kind: VideoKind = MP4,
        threads: int = 1,
    ) -> None:
        self._container = av.open(str(path), "w", format=kind.container, options=dict(kind.muxing))
        self._rate = rate
        self._kind = kind
        stream: Any = self._container.add_stream(kind.codec, rate=rate, options=dict(kind.options))
        stream.pix_fmt = kind.pixels
        stream.codec_context.thread_count = threads
        open_stream(stream, size, rate, 1 / rate)
        self._stream = stream
        self._sound = sound
        self._voice: Any = self._container.add_stream(kind.voice, rate=SOUND_RATE) if sound else None
        if self._voice is not None:
            self._voice.layout = "stereo"
            self._voice.bit_rate = SOUND_BITS
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

    def add(self, picture: Picture) -> None:
        """The next frame, in planes, RGB or RGBA; raises what the encoder made of an earlier one."""
        self._pending.append(self._encoder.submit(self._encode, picture))
        while len(self._pending) > _WAITING:
            self._pending.popleft().result()

    def _encode(self, picture: Picture) -> None:
        frame = _frame(picture, self._kind.pixels)
        set_colors(frame)
        frame.pts = self._frames
        frame.time_base = 1 / self._rate
        self._container.mux(self._stream.encode(frame))
        self._frames += 1
        self._sound_until(int(self._frames / self._rate * SOUND_RATE))

    def _sound_until(self, sample: int) -> None:
        if self._sound is None or self._voice is None:
            return
        until, step = min(sample, self._sound.samples), self._kind.voice_samples
        while self._samples + step <= until or self._samples < until == self._sound.samples:
            part = self._sound.read(self._samples, min(self._samples + step, self._sound.samples))
            frame = _of_wave(part, self._kind.voice_format)
            frame.sample_rate = SOUND_RATE
            frame.pts = self._samples
            frame.time_base = Fraction(1, SOUND_RATE)
            self._container.mux(self._voice.encode(frame))
            self._samples += part.shape[1]

    def _finish(self) -> None:
        if self._sound is not None and self._voice is not None:
            self._sound_until(self._sound.samples)
            self._container.mux(self._voice.encode(None))
        self._container.mux(self._stream.encode(None))


def sheets(rgb: Array) -> tuple[Array, ...]:
    """RGB of even sides as lightness and two colours."""
    return yuv.of_frame(_of_rgb(rgb, "yuv420p"))


def _frame(picture: Picture, wanted: str) -> av.VideoFrame:
    match picture:
        case YuvPlanes(y, uv):
            return _of_sheets((y, uv[..., 0], uv[..., 1]))
        case tuple():
            return _of_sheets(picture)
        case _:
            return _of_rgb(picture, wanted)


def _of_sheets(found: tuple[Array, ...]) -> av.VideoFrame:
    frame = av.VideoFrame(found[0].shape[1], found[0].shape[0], "yuv420p")
    for plane, pixels in zip(frame.planes, found, strict=True):
        _fill(plane, pixels)
    return frame


def _of_rgb(pixels: Array, wanted: str) -> av.VideoFrame:
    frame = av.VideoFrame.from_ndarray(pixels, format="rgb24" if pixels.shape[2] == 3 else "rgba")
    return frame.reformat(
        format=wanted,
        src_color_range=ColorRange.JPEG,
        dst_colorspace=Colorspace.ITU709,
        dst_color_range=ColorRange.MPEG,
        threads=1,  # more of them spoil the columns at which they meet, at widths that are no multiple of 16
    )


def _of_wave(part: Array, layout: str) -> av.AudioFrame:
    packed = part.T.reshape(1, -1) if layout == "flt" else part
    return av.AudioFrame.from_ndarray(np.ascontiguousarray(packed), format=layout, layout="stereo")


def _fill(plane: Any, pixels: Array) -> None:
    """Copy bytes into a frame's plane, whose lines may be longer than the picture's."""
    height, width = pixels.shape
    buffer = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
    buffer[:height, :width] = pixels


def open_stream(stream: Any, size: tuple[int, int], rate: Fraction, tick: Fraction) -> None:
    """Tell a new stream its pictures' size (width, height), rate, tick and colours, and open its encoder."""
    stream.width, stream.height = size
    codec = stream.codec_context
    codec.gop_size = max(1, round(_KEY_SECONDS * rate))
    codec.color_primaries = codec.color_trc = codec.colorspace = _BT709
    codec.color_range = _VIDEO_RANGE
    codec.time_base = tick
    _open_encoder(stream)


def set_colors(frame: Any) -> None:
    """Say of a frame in which colours it is: as its stream does."""
    frame.color_range, frame.colorspace = _VIDEO_RANGE, _BT709


def _open_encoder(stream: Any) -> None:
    """Open the encoder of a fully described stream now, where opening it affects the whole process.

    As root, SVT-AV1 gives the thread that opens it the highest real-time priority; its own threads and every
    program that is started later inherit that, and starve everything else on the machine.
    """
    if stream.codec_context.name != AV1:
        return
    before = set(_hurried())
    stream.codec_context.open()
    for thread in set(_hurried()) - before:
        with suppress(ProcessLookupError):
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def _hurried() -> Iterator[int]:
    """The threads of this process with a real-time priority."""
    for path in _THREADS.iterdir() if sys.platform == "linux" else ():
        with suppress(ProcessLookupError):
            if os.sched_getscheduler(int(path.name)) == os.SCHED_FIFO:
                yield int(path.name)
