"""A film in few tones: every colour of every frame in `num_levels` steps, its sound kept."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

import av
import av.error
import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task, UnusableInput
from sixfold.engines.video import encode, probe, yuv

Array = NDArray[Any]

_LEVELS = 25
_MOST_SIDE = 3840
_FALLBACK_RATE = Fraction(25)


@dataclass(frozen=True, slots=True)
class Codec:
    """A codec of the interface, and the encoder in software that stands in for the hardware's."""

    name: str
    told: str
    options: dict[str, str]


CODECS = {
    "h264_hw": Codec(
        "libx264", "x264", {"preset": "veryfast", "crf": "17", "profile": "high", "x264-params": "mbtree=0"}
    ),
    "av1_hw": Codec(encode.AV1, "SVT-AV1", {"preset": "10", "crf": "28", "svtav1-params": "lp=1"}),
}


class VideoFxEngine:
    """Posterises `video` in `num_levels` steps and encodes it with `output_codec`."""

    name = "video-fx"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """An MP4 with as many frames, at their own times, and the same sound."""
        path = task.files.get("video") or task.files.get("video_url")
        if path is None:
            raise EngineError("This effect needs a film.")
        try:
            film = probe.read(path)
        except probe.NotAVideo as error:
            raise UnusableInput(f"The film cannot be read: {error}.") from error
        if max(film.width, film.height) > _MOST_SIDE:
            raise UnusableInput(f"The film may be at most {_MOST_SIDE} pixels wide and high.")
        codec = CODECS.get(str(task.inputs.get("output_codec")), CODECS["h264_hw"])
        context.log(f"encoded in software by {codec.told}")
        target = context.scratch / "film.mp4"
        levels = int(task.inputs.get("num_levels") or _LEVELS)
        try:
            with _PosterizeJob(path, target, codec) as work:
                frames = work.through(_table(levels), film.seconds, context)
        except (av.error.FFmpegError, ValueError) as error:
            raise UnusableInput("The film is damaged: it cannot be read to its end.") from error
        info = {**film.info(), "width": film.width & ~1, "height": film.height & ~1}
        data = {"frames": frames, "encoder": codec.told}
        return Result((Artifact("video/mp4", b"", info, target),), data, "full")


def _table(levels: int) -> Array:
    """Every byte to the nearest of `levels` even steps from 0 to 255."""
    steps = np.rint(np.arange(256) / 255 * (levels - 1)) / (levels - 1)
    return np.rint(steps * 255).astype(np.uint8)


class _PosterizeJob:
    """A film being read and the one being written."""

    def __init__(self, source: Path, target: Path, codec: Codec) -> None:
        demuxer = "mp4" if probe.read(source).content_type == "video/mp4" else "matroska"
        self._source = av.open(str(source), "r", format=demuxer)
        self._seen = self._source.streams.video[0]
        self._target = av.open(str(target), "w", format="mp4", options={"movflags": "+faststart"})
        rate = self._seen.average_rate or self._seen.guessed_rate or _FALLBACK_RATE
        self._shown: Any = self._target.add_stream(codec.name, rate=rate, options=codec.options)
        self._shown.pix_fmt = "yuv420p"
        self._shown.codec_context.thread_count = 1
        self._time_base = self._seen.time_base or 1 / rate
        encode.open_stream(
            self._shown, (self._seen.width & ~1, self._seen.height & ~1), rate, self._time_base
        )
        self._heard = next(iter(self._source.streams.audio), None)
        self._voice: Any = None
        if self._heard is not None:
            self._voice = self._target.add_stream("aac", rate=self._heard.rate)
            self._voice.layout = "stereo" if self._heard.channels > 1 else "mono"
            self._voice.bit_rate = encode.SOUND_BITS

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._target.close()
        self._source.close()

    def through(self, table: Array, seconds: float, context: Context) -> int:
        """Every frame from one to the other; how many there were."""
        streams = [stream for stream in (self._seen, self._heard) if stream is not None]
        frames, first = 0, None
        for packet in self._source.demux(streams):
            for frame in packet.decode():
                if isinstance(frame, av.AudioFrame):
                    self._target.mux(self._voice.encode(frame))
                elif isinstance(frame, av.VideoFrame):
                    first = (frame.pts or 0) if first is None else first
                    self._target.mux(self._shown.encode(_posterised(frame, table, first, self._time_base)))
                    frames += 1
                    context.progress(min(0.98, float((frame.pts or 0) * self._time_base) / seconds))
        if not frames:
            raise ValueError("no frames")
        for stream in filter(None, (self._shown, self._voice)):
            self._target.mux(stream.encode(None))
        return frames


def _posterised(frame: Any, table: Array, first: int, time_base: Fraction) -> Any:
    """A frame with its colours in steps, at its own time from the first one on."""
    made = yuv.of_rgb(cv2.LUT(frame.to_ndarray(format="rgb24", threads=1), table))
    out: Any = av.VideoFrame(*made.size, "yuv420p")
    for plane, pixels in zip(out.planes, (made.y, made.uv[..., 0], made.uv[..., 1]), strict=True):
        height, width = pixels.shape
        np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[:height, :width] = pixels
    encode.set_colors(out)
    out.pts = (frame.pts or 0) - first
    out.time_base = time_base
    return out
