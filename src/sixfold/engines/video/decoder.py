"""Films and sounds that come in, read as they are needed: a frame at a second, so many samples more.

Only the demuxer that a file's own bytes name is let at it, and no other file or address. What a header claims
is capped before a codec sees it.
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
from sixfold.engines.audio.stereo import StereoSignal
from sixfold.engines.video import headers, yuv
from sixfold.engines.video.encode import SOUND_RATE

Array = NDArray[Any]

MOST_PIXELS = 4096 * 4096
_MOST_RATE = 240
_SEEK_FROM = 0.3  # seconds: what lies nearer is decoded through
_NEARLY = 1.1e-3  # seconds by which a frame may be late: some files count milliseconds
_MOST_BROKEN = 64  # packets in a row that give nothing
_COVERED = ("yuva", "rgba", "bgra", "argb", "abgr", "gbrap", "ya", "pal8")
_HALVED = frozenset({"yuv420p", "yuv422p", "yuv444p", "yuv420p10le"})  # what 4:2:0 is made of at once
_HIGH = 720  # pixels from which a film that says nothing of its colours has those of television today
_TURNS = {90: 1, 180: 2, 270: 3}


class NoAudioTrack(Exception):
    """The file has no sound."""


def opened(path: Path, wanted: str) -> Any:
    """A container open for reading; raises `UnusableInput`. Whoever opened it closes it."""
    kind = headers.read(path, wanted)
    try:
        return av.open(
            str(path), "r", format=kind.demuxer, options={"protocol_whitelist": "file", "enable_drefs": "0"}
        )
    except (av.error.FFmpegError, ValueError, OverflowError) as error:
        raise UnusableInput("The file is damaged or cut off") from error


class VideoReader:
    """The frames of a film from `begin` on, asked for in the order of time."""

    def __init__(self, path: Path, begin: float = 0.0) -> None:
        self._container = opened(path, "video")
        try:
            self._open(begin)
        except BaseException:
            self._container.close()
            raise

    def _open(self, begin: float) -> None:
        if not self._container.streams.video:
            raise UnusableInput("The file has no picture in it")
        self._stream = stream = self._container.streams.video[0]
        if not 0 < stream.width * stream.height <= MOST_PIXELS:
            raise UnusableInput(f"A film's frames may have at most {MOST_PIXELS // 10**6} megapixels")
        self.rate = Fraction(min(_MOST_RATE, stream.average_rate or stream.guessed_rate or 25))
        shape = stream.sample_aspect_ratio
        self._wider = float(shape) if shape else 1.0
        self._decoder = _decoder(stream)
        self._reformatter = VideoReformatter()
        self._first = float((stream.start_time or 0) * stream.time_base)
        if begin > _SEEK_FROM:
            self._container.seek(round((begin + self._first) * 1_000_000), backward=True)
        self._frames = self._decoded()
        self._shown: Any = None
        self._next: Any = None
        self.count = 0  # of frames that were shown: another number is another picture
        self.ended = False
        self._advance()
        if self._next is None:
            raise UnusableInput("The film has no frame that can be read")

    def close(self) -> None:
        """Let go of the file."""
        self._container.close()

    def at(self, second: float) -> Any:
        """The frame that is shown at a second; the last one holds still after the end."""
        while self._next is not None and (self._shown is None or self._time(self._next) <= second + _NEARLY):
            self._shown = self._next
            self.count += 1
            self._advance()
        return self._shown

    def each(self) -> Iterator[Any]:
        """Every frame from here to the end."""
        while self._next is not None:
            self._shown = self._next
            self.count += 1
            self._advance()
            yield self._shown

    def over(self, second: float) -> bool:
        """Whether the film has ended before a second."""
        self.at(second)
        return self.ended and second >= self.end - _NEARLY

    @property
    def end(self) -> float:
        """The second until which the frame that is shown lasts, where it is the last one."""
        lasts = float((self._shown.duration or 0) * (self._shown.time_base or 0))
        return self._time(self._shown) + max(lasts, 1 / float(self.rate))

    def _advance(self) -> None:
        self._next = next(self._frames, None)
        self.ended = self._next is None

    def _time(self, frame: Any) -> float:
        if frame.pts is None or frame.time_base is None:
            return self.count / float(self.rate)
        return float(frame.pts * frame.time_base) - self._first

    def _decoded(self) -> Iterator[Any]:
        broken = 0
        try:
            for packet in self._container.demux(self._stream):
                try:
                    frames = self._decoder.decode(packet)
                except (av.error.FFmpegError, ValueError):
                    broken += 1
                    if broken > _MOST_BROKEN:
                        return
                    continue
                for frame in frames:
                    broken = 0
                    if frame.width * frame.height <= MOST_PIXELS:
                        yield frame
        except (av.error.FFmpegError, ValueError):
            return  # it breaks off here

    def size(self, frame: Any) -> tuple[int, int]:
        """Width and height in square pixels, upright."""
        width, height = max(1, round(frame.width * self._wider)), frame.height
        return (height, width) if _turns(frame) % 2 else (width, height)

    def planes(self, frame: Any, size: tuple[int, int]) -> tuple[Array, ...] | None:
        """The frame's lightness and two colours at an even size, where they are those of our own films."""
        if _turns(frame) or frame.format.name not in _HALVED or int(frame.color_range) == ColorRange.JPEG:
            return None
        if (_colours(frame) or int(frame.colorspace)) != Colorspace.ITU709:
            return None
        return yuv.of_frame(self._sized(frame, size, "yuv420p", Colorspace.ITU709))

    def pixels(self, frame: Any, size: tuple[int, int]) -> Array:
        """The frame at a size (width, height), upright: RGB, or RGBA where it has a cover."""
        turns = _turns(frame)
        form = "rgba" if frame.format.name.startswith(_COVERED) else "rgb24"
        found = self._sized(frame, (size[1], size[0]) if turns % 2 else size, form).to_ndarray()
        return found if not turns else np.ascontiguousarray(np.rot90(found, turns))

    def _sized(self, frame: Any, size: tuple[int, int], form: str, colours: Any = None) -> Any:
        smaller = size[0] * size[1] < frame.width * frame.height
        return self._reformatter.reformat(
            frame,
            *size,
            form,
            interpolation=Interpolation.AREA if smaller else Interpolation.BICUBIC,
            src_colorspace=_colours(frame),
            dst_colorspace=colours,
            threads=1,
        )


def _decoder(stream: Any) -> Any:
    """What decodes a stream: only libvpx keeps the cover of a VP8 or VP9 film."""
    covered = stream.metadata.get("alpha_mode") == "1" or stream.metadata.get("ALPHA_MODE") == "1"
    names = {"vp9": "libvpx-vp9", "vp8": "libvpx"}
    name = stream.codec_context.name
    if covered and name in names:
        decoder = av.CodecContext.create(names[name], "r")
        decoder.extradata = stream.codec_context.extradata
    else:
        decoder = stream.codec_context
        decoder.thread_type = "AUTO"
        decoder.thread_count = 2
    decoder.options = {"max_pixels": str(MOST_PIXELS)}
    return decoder


def _colours(frame: Any) -> Any:
    """Of what matrix a frame's colours are; where it does not say, that of its size."""
    if int(frame.colorspace) != 2:
        return None
    return Colorspace.ITU709 if min(frame.width, frame.height) >= _HIGH else Colorspace.ITU601


def _turns(frame: Any) -> int:
    """Quarter turns, against the clock, that bring a frame upright."""
    return _TURNS.get(round(frame.rotation) % 360, 0)


class AudioTrack:
    """The sound of a file from `begin` on, stereo at 48 kHz, `speed` times as fast at its own pitch.

    Raises `NoAudioTrack` where there is none.
    """

    def __init__(self, path: Path, begin: float = 0.0, speed: float = 1.0) -> None:
        self._container = opened(path, "audio")
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
        if begin > _SEEK_FROM:
            first = float((self._stream.start_time or 0) * self._stream.time_base)
            self._container.seek(round((begin + first) * 1_000_000), backward=True)

    def close(self) -> None:
        """Let go of the file."""
        self._container.close()

    def over(self) -> bool:
        """Whether nothing more is to be heard."""
        if not self._rest.shape[1]:
            self._rest = next(self._pieces, self._rest)
        return not self._rest.shape[1]

    def read(self, count: int) -> Array:
        """The next `count` samples; silence after the end."""
        parts, have = [self._rest], self._rest.shape[1]
        while have < count:
            piece = next(self._pieces, None)
            if piece is None:
                parts.append(np.zeros((2, count - have), np.float32))
                break
            parts.append(piece)
            have += piece.shape[1]
        whole = np.concatenate(parts, axis=1)
        self._rest = whole[:, count:]
        return whole[:, :count]

    def _samples(self, begin: float) -> Iterator[Array]:
        stereo = StereoSignal(SOUND_RATE)
        first = float((self._stream.start_time or 0) * self._stream.time_base)
        late: int | None = None
        for frame in self._decoded():
            if late is None and frame is not None:
                heard = begin if frame.pts is None else float(frame.pts * frame.time_base) - first
                late = round((heard - begin) * SOUND_RATE)
                if late > 0:
                    yield np.zeros((2, late), np.float32)
            for piece in _resampled(stereo, frame):
                skipped = min(piece.shape[1], max(0, -(late or 0)))
                late = (late or 0) + skipped
                if skipped < piece.shape[1]:
                    yield piece[:, skipped:]

    def _decoded(self) -> Iterator[Any]:
        broken = 0
        try:
            for packet in self._container.demux(self._stream):
                try:
                    frames = packet.decode()
                except (av.error.FFmpegError, ValueError):
                    broken += 1
                    if broken > _MOST_BROKEN:
                        break
                    continue
                yield from frames
        except (av.error.FFmpegError, ValueError):
            pass  # it breaks off here
        yield None


def _resampled(stereo: StereoSignal, frame: Any) -> list[Array]:
    try:
        return [np.nan_to_num(piece) for piece in stereo.pieces(frame)]
    except (av.error.FFmpegError, ValueError):
        return []  # the layout changed on the way: what follows is another sound


def change_tempo(pieces: Iterator[Array], speed: float) -> Iterator[Array]:
    """The sound at another speed and its own pitch."""
    graph = av.filter.Graph()
    node: Any = graph.add_abuffer(
        format="fltp", sample_rate=SOUND_RATE, layout="stereo", time_base=Fraction(1, SOUND_RATE)
    )
    first = node
    while speed != 1:
        step = min(2.0, max(0.5, speed))
        speed = speed / step if abs(speed / step - 1) > 1e-9 else 1
        after = graph.add("atempo", f"{step:.9f}")
        node.link_to(after)
        node = after
    flat, sink = graph.add("aformat", "sample_fmts=fltp"), graph.add("abuffersink")
    node.link_to(flat)
    flat.link_to(sink)
    graph.configure()
    at = 0
    for piece in pieces:
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(piece), format="fltp", layout="stereo")
        frame.sample_rate, frame.time_base, frame.pts = SOUND_RATE, Fraction(1, SOUND_RATE), at
        at += piece.shape[1]
        first.push(frame)
        yield from _pulled(sink)
    first.push(None)
    yield from _pulled(sink)


def _pulled(sink: Any) -> Iterator[Array]:
    while True:
        try:
            yield sink.pull().to_ndarray()
        except (av.error.BlockingIOError, av.error.EOFError):
            return


def premultiplied(pixels: Array) -> Array:
    """RGBA with its colours weighed by its cover."""
    cover = cv2.merge([pixels[..., 3]] * 3)
    colours = cv2.multiply(np.ascontiguousarray(pixels[..., :3]), cover, scale=1 / 255)
    return np.dstack([colours, pixels[..., 3]])
