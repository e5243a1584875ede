"""Streaming readers of video frames by time and of audio samples in order.

A file is opened only with the demuxer that its first bytes identify, which may not open other files or URLs.
The sizes in a header are limited before a codec sees them.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import av.error
import av.filter
import cv2
import numpy as np
from av.video.reformatter import ColorRange, Colorspace, Interpolation, VideoReformatter
from numpy.typing import NDArray

from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines import demux
from sixfold.engines.audio.stereo import StereoSignal
from sixfold.engines.video import headers, yuv
from sixfold.engines.video.encode import AUDIO_RATE

Array = NDArray[Any]

MAX_PIXELS = 4096 * 4096
_MAX_RATE = 240
# For distances below this number of seconds, decoding is cheaper than seeking.
_MIN_SEEK = 0.3
# Frames may be late by this many seconds, because some files store times in milliseconds.
_LATE_SECONDS = 1.1e-3
# Consecutive damaged packets after which reading stops.
_MAX_DAMAGED = 64
_ALPHA_FORMATS = ("yuva", "rgba", "bgra", "argb", "abgr", "gbrap", "ya", "pal8")
# Pixel formats that convert to 4:2:0 without RGB in between.
_YUV_FORMATS = frozenset({"yuv420p", "yuv422p", "yuv444p", "yuv420p10le"})
# The short side in pixels from which an undeclared color matrix is taken as BT.709 instead of BT.601.
_HD_SIDE = 720
# The codes of BT.601 for 625 and for 525 lines, which have the same matrix.
_BT601 = frozenset({5, 6})
_QUARTER_TURNS = {90: 1, 180: 2, 270: 3}


class NoAudioTrack(Exception):
    """Raised if a file does not contain an audio track."""


def open_container(path: Path, kind: str) -> Any:
    """Open a file of the `kind` `video` or `audio`; the caller closes it. Raises `UnusableInput`."""
    form = headers.read(path, kind)
    if form.demuxer == "mov":
        demux.check_samples(path)
    try:
        return av.open(
            str(path), "r", format=form.demuxer, options={"protocol_whitelist": "file", "enable_drefs": "0"}
        )
    except (av.error.FFmpegError, ValueError, OverflowError) as error:
        raise UnusableInput("The file is damaged or truncated") from error


class VideoReader:
    """A reader of the frames of a video from `begin` on, in order of time."""

    def __init__(self, path: Path, begin: float = 0.0) -> None:
        self._container = open_container(path, "video")
        try:
            self._open(begin)
        except BaseException:
            self._container.close()
            raise

    def _open(self, begin: float) -> None:
        if not self._container.streams.video:
            raise UnusableInput("The file has no video stream")
        self._stream = stream = self._container.streams.video[0]
        if not 0 < stream.width * stream.height <= MAX_PIXELS:
            raise UnusableInput(f"A video frame must have at most {MAX_PIXELS // 10**6} megapixels")
        self.rate = Fraction(min(_MAX_RATE, stream.average_rate or stream.guessed_rate or 25))
        shape = stream.sample_aspect_ratio
        self._pixel_aspect = float(shape) if shape else 1.0
        self._decoder = _decoder(stream)
        self._reformatter = VideoReformatter()
        self._first = float((stream.start_time or 0) * stream.time_base)
        if begin > _MIN_SEEK:
            self._container.seek(round((begin + self._first) * 1_000_000), backward=True)
        self._frames = self._decoded()
        self._current: Any = None
        self._next: Any = None
        # The number of frames that have been read, which identifies the current frame.
        self.count = 0
        self.ended = False
        self._advance()
        if self._next is None:
            raise UnusableInput("The video has no readable frame")

    def close(self) -> None:
        self._container.close()

    def at(self, second: float) -> Any:
        """Return the frame at a time in seconds; after the end, the last frame is repeated."""
        while self._next is not None and (
            self._current is None or self._time(self._next) <= second + _LATE_SECONDS
        ):
            self._current = self._next
            self.count += 1
            self._advance()
        return self._current

    def each(self) -> Iterator[Any]:
        """Yield the remaining frames."""
        while self._next is not None:
            self._current = self._next
            self.count += 1
            self._advance()
            yield self._current

    def ends_before(self, second: float) -> bool:
        self.at(second)
        return self.ended and second >= self.end - _LATE_SECONDS

    @property
    def end(self) -> float:
        """The time in seconds at which the current frame ends if no frame follows."""
        lasts = float((self._current.duration or 0) * (self._current.time_base or 0))
        return self._time(self._current) + max(lasts, 1 / float(self.rate))

    def _advance(self) -> None:
        self._next = next(self._frames, None)
        self.ended = self._next is None

    def _time(self, frame: Any) -> float:
        if frame.pts is None or frame.time_base is None:
            return self.count / float(self.rate)
        return float(frame.pts * frame.time_base) - self._first

    def _decoded(self) -> Iterator[Any]:
        damaged = 0
        try:
            for packet in self._container.demux(self._stream):
                try:
                    frames = self._decoder.decode(packet)
                except (av.error.FFmpegError, ValueError):
                    damaged += 1
                    if damaged > _MAX_DAMAGED:
                        return
                    continue
                for frame in frames:
                    damaged = 0
                    if frame.width * frame.height <= MAX_PIXELS:
                        yield frame
        except (av.error.FFmpegError, ValueError):
            # The file is truncated at this position.
            return

    def size(self, frame: Any) -> tuple[int, int]:
        """Return the width and height in pixels of a frame after rotation and correction to square pixels."""
        width, height = max(1, round(frame.width * self._pixel_aspect)), frame.height
        return (height, width) if _quarter_turns(frame) % 2 else (width, height)

    def matrix(self, frame: Any) -> int:
        """Return the color matrix, BT.709 or BT.601, in which `planes` returns a frame without conversion."""
        bt601 = Colorspace.ITU601
        return int(Colorspace.ITU709 if self.planes(frame, (2, 2), bt601) is None else bt601)

    def planes(
        self, frame: Any, size: tuple[int, int], matrix: int = Colorspace.ITU709
    ) -> tuple[Array, ...] | None:
        """Return the frame's Y, U and V planes at an even size, or None if that requires a conversion."""
        if (
            _quarter_turns(frame)
            or frame.format.name not in _YUV_FORMATS
            or int(frame.color_range) == ColorRange.JPEG
        ):
            return None
        own = _color_matrix(frame) or int(frame.colorspace)
        if own != matrix and not {own, matrix} <= _BT601:
            return None
        return yuv.of_frame(self._resize(frame, size, "yuv420p", own))

    def pixels(self, frame: Any, size: tuple[int, int]) -> Array:
        """Return the upright frame at a size (width, height): RGBA if it has an alpha channel, else RGB."""
        turns = _quarter_turns(frame)
        form = "rgba" if frame.format.name.startswith(_ALPHA_FORMATS) else "rgb24"
        pixels = self._resize(frame, (size[1], size[0]) if turns % 2 else size, form).to_ndarray()
        return pixels if not turns else np.ascontiguousarray(np.rot90(pixels, turns))

    def _resize(self, frame: Any, size: tuple[int, int], form: str, color_matrix: Any = None) -> Any:
        smaller = size[0] * size[1] < frame.width * frame.height
        return self._reformatter.reformat(
            frame,
            *size,
            form,
            interpolation=Interpolation.AREA if smaller else Interpolation.BICUBIC,
            src_colorspace=_color_matrix(frame),
            dst_colorspace=color_matrix,
            threads=1,
        )


def _decoder(stream: Any) -> Any:
    """Return the stream's decoder; VP8 and VP9 with an alpha channel need libvpx."""
    has_alpha = stream.metadata.get("alpha_mode") == "1" or stream.metadata.get("ALPHA_MODE") == "1"
    names = {"vp9": "libvpx-vp9", "vp8": "libvpx"}
    name = stream.codec_context.name
    if has_alpha and name in names:
        decoder = av.CodecContext.create(names[name], "r")
        decoder.extradata = stream.codec_context.extradata
    else:
        decoder = stream.codec_context
        decoder.thread_type = "AUTO"
        decoder.thread_count = 2
    decoder.options = {"max_pixels": str(MAX_PIXELS)}
    return decoder


def _color_matrix(frame: Any) -> Any:
    """Return the color matrix that an undeclared frame's size implies, or None if it is declared."""
    if int(frame.colorspace) != 2:
        return None
    return Colorspace.ITU709 if min(frame.width, frame.height) >= _HD_SIDE else Colorspace.ITU601


def _quarter_turns(frame: Any) -> int:
    """Return the number of counterclockwise quarter turns that bring a frame upright."""
    return _QUARTER_TURNS.get(round(frame.rotation) % 360, 0)


class AudioTrack:
    """A reader of a file's audio from `begin` on: stereo at 48 kHz, at `speed` with unchanged pitch.

    Raises `NoAudioTrack` if the file does not contain audio.
    """

    def __init__(self, path: Path, begin: float = 0.0, speed: float = 1.0) -> None:
        self._container = open_container(path, "audio")
        try:
            self._open(begin)
        except BaseException:
            self._container.close()
            raise
        self._pieces = change_tempo(self._samples(begin), speed) if speed != 1 else self._samples(begin)
        self._rest: Array = np.zeros((2, 0), np.float32)

    def _open(self, begin: float) -> None:
        if not self._container.streams.audio:
            raise NoAudioTrack
        self._stream = self._container.streams.audio[0]
        if begin > _MIN_SEEK:
            first = float((self._stream.start_time or 0) * self._stream.time_base)
            self._container.seek(round((begin + first) * 1_000_000), backward=True)

    def close(self) -> None:
        self._container.close()

    def at_end(self) -> bool:
        """Return whether all samples have been read."""
        if not self._rest.shape[1]:
            self._rest = next(self._pieces, self._rest)
        return not self._rest.shape[1]

    def read(self, count: int) -> Array:
        """Return the next `count` samples, padded with silence after the end."""
        parts, length = [self._rest], self._rest.shape[1]
        while length < count:
            piece = next(self._pieces, None)
            if piece is None:
                parts.append(np.zeros((2, count - length), np.float32))
                break
            parts.append(piece)
            length += piece.shape[1]
        samples = np.concatenate(parts, axis=1)
        self._rest = samples[:, count:]
        return samples[:, :count]

    def _samples(self, begin: float) -> Iterator[Array]:
        stereo = StereoSignal(AUDIO_RATE)
        first = float((self._stream.start_time or 0) * self._stream.time_base)
        late: int | None = None
        for frame in self._decoded():
            if late is None and frame is not None:
                start = begin if frame.pts is None else float(frame.pts * frame.time_base) - first
                late = round((start - begin) * AUDIO_RATE)
                if late > 0:
                    yield np.zeros((2, late), np.float32)
            for piece in _resample(stereo, frame):
                skipped = min(piece.shape[1], max(0, -(late or 0)))
                late = (late or 0) + skipped
                if skipped < piece.shape[1]:
                    yield piece[:, skipped:]

    def _decoded(self) -> Iterator[Any]:
        damaged = 0
        try:
            for packet in self._container.demux(self._stream):
                try:
                    frames = packet.decode()
                except (av.error.FFmpegError, ValueError):
                    damaged += 1
                    if damaged > _MAX_DAMAGED:
                        break
                    continue
                yield from frames
        except (av.error.FFmpegError, ValueError):
            # The file is truncated at this position.
            pass
        yield None


def _resample(stereo: StereoSignal, frame: Any) -> list[Array]:
    try:
        return [np.nan_to_num(piece) for piece in stereo.pieces(frame)]
    except (av.error.FFmpegError, ValueError):
        # The channel layout changed within the stream; the rest cannot be resampled.
        return []


def change_tempo(pieces: Iterator[Array], speed: float) -> Iterator[Array]:
    """Yield the audio at another speed with unchanged pitch."""
    graph = av.filter.Graph()
    node: Any = graph.add_abuffer(
        format="fltp", sample_rate=AUDIO_RATE, layout="stereo", time_base=Fraction(1, AUDIO_RATE)
    )
    first = node
    while speed != 1:
        step = min(2.0, max(0.5, speed))
        speed = speed / step if abs(speed / step - 1) > 1e-9 else 1
        tempo = graph.add("atempo", f"{step:.9f}")
        node.link_to(tempo)
        node = tempo
    flat, sink = graph.add("aformat", "sample_fmts=fltp"), graph.add("abuffersink")
    node.link_to(flat)
    flat.link_to(sink)
    graph.configure()
    position = 0
    for piece in pieces:
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(piece), format="fltp", layout="stereo")
        frame.sample_rate, frame.time_base, frame.pts = AUDIO_RATE, Fraction(1, AUDIO_RATE), position
        position += piece.shape[1]
        first.push(frame)
        yield from _drain(sink)
    first.push(None)
    yield from _drain(sink)


def _drain(sink: Any) -> Iterator[Array]:
    while True:
        try:
            yield sink.pull().to_ndarray()
        except (av.error.BlockingIOError, av.error.EOFError):
            return


def premultiply(pixels: Array) -> Array:
    """Multiply the colors of RGBA pixels by their alpha."""
    alpha = cv2.merge([pixels[..., 3]] * 3)
    colors = cv2.multiply(np.ascontiguousarray(pixels[..., :3]), alpha, scale=1 / 255)
    return np.dstack([colors, pixels[..., 3]])
