"""Engine that posterizes a video: each color channel in `num_levels` steps, with the audio unchanged."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any, Self

import av
import av.error
import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task, UnusableInput
from sixfold.engines.video import encode, probe, yuv

Array = NDArray[Any]

_LEVELS = 25
_MAX_SIDE = 3840
_FALLBACK_RATE = Fraction(25)


class Codec(msgspec.Struct, frozen=True):
    """The software encoder for an `output_codec` of the API; `label` is its name in logs."""

    name: str
    label: str
    options: dict[str, str]


CODECS = {
    "h264_hw": Codec(
        "libx264", "x264", {"preset": "veryfast", "crf": "17", "profile": "high", "x264-params": "mbtree=0"}
    ),
    "av1_hw": Codec(encode.AV1, "SVT-AV1", {"preset": "10", "crf": "28", "svtav1-params": "lp=1"}),
}


class VideoFxEngine:
    """Posterizes `video` to `num_levels` steps and encodes it with `output_codec`."""

    name = "video-fx"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Return an MP4 with the same frames, times and audio."""
        path = task.files.get("video") or task.files.get("video_url")
        if path is None:
            raise EngineError("`video` is required.")
        try:
            video = probe.read(path)
        except probe.NotAVideo as error:
            raise UnusableInput(f"The video cannot be read: {error}.") from error
        if max(video.width, video.height) > _MAX_SIDE:
            raise UnusableInput(f"The video must be at most {_MAX_SIDE} pixels wide and high.")
        codec = CODECS.get(str(task.inputs.get("output_codec")), CODECS["h264_hw"])
        context.log(f"encoded in software by {codec.label}")
        target = context.scratch / "video.mp4"
        levels = int(task.inputs.get("num_levels") or _LEVELS)
        try:
            with _PosterizeJob(path, target, codec) as job:
                frames = job.run(_table(levels), video.seconds, context)
        except (av.error.FFmpegError, ValueError) as error:
            raise UnusableInput("The video is damaged: it cannot be read to its end.") from error
        info = {**video.info(), "width": video.width & ~1, "height": video.height & ~1}
        data = {"frames": frames, "encoder": codec.label}
        return Result((Artifact("video/mp4", b"", info, target),), data, "full")


def _table(levels: int) -> Array:
    """Return the table that maps bytes to the nearest of `levels` even steps from 0 to 255."""
    steps = np.rint(np.arange(256) / 255 * (levels - 1)) / (levels - 1)
    return np.rint(steps * 255).astype(np.uint8)


class _PosterizeJob:
    """A video to read and a video to write."""

    def __init__(self, source: Path, target: Path, codec: Codec) -> None:
        demuxer = "mp4" if probe.read(source).content_type == "video/mp4" else "matroska"
        self._source = av.open(str(source), "r", format=demuxer)
        self._video_in = self._source.streams.video[0]
        self._target = av.open(str(target), "w", format="mp4", options={"movflags": "+faststart"})
        rate = self._video_in.average_rate or self._video_in.guessed_rate or _FALLBACK_RATE
        self._video_out: Any = self._target.add_stream(codec.name, rate=rate, options=codec.options)
        self._video_out.pix_fmt = "yuv420p"
        self._video_out.codec_context.thread_count = 1
        self._time_base = self._video_in.time_base or 1 / rate
        encode.open_stream(
            self._video_out, (self._video_in.width & ~1, self._video_in.height & ~1), rate, self._time_base
        )
        self._audio_in = next(iter(self._source.streams.audio), None)
        self._audio_out: Any = None
        if self._audio_in is not None:
            self._audio_out = self._target.add_stream("aac", rate=self._audio_in.rate)
            self._audio_out.layout = "stereo" if self._audio_in.channels > 1 else "mono"
            self._audio_out.bit_rate = encode.MP4.audio_bit_rate

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._target.close()
        self._source.close()

    def run(self, table: Array, seconds: float, context: Context) -> int:
        """Convert all frames and copy the audio; return the number of frames."""
        streams = [stream for stream in (self._video_in, self._audio_in) if stream is not None]
        frames, first = 0, None
        for packet in self._source.demux(streams):
            for frame in packet.decode():
                if isinstance(frame, av.AudioFrame):
                    self._target.mux(self._audio_out.encode(frame))
                elif isinstance(frame, av.VideoFrame):
                    first = (frame.pts or 0) if first is None else first
                    self._target.mux(self._video_out.encode(_posterize(frame, table, first, self._time_base)))
                    frames += 1
                    context.progress(min(0.98, float((frame.pts or 0) * self._time_base) / seconds))
        if not frames:
            raise ValueError("no frames")
        for stream in filter(None, (self._video_out, self._audio_out)):
            self._target.mux(stream.encode(None))
        return frames


def _posterize(frame: Any, table: Array, first: int, time_base: Fraction) -> Any:
    """Return the posterized frame; `first` is the time of the first frame, which becomes zero."""
    planes = yuv.of_rgb(cv2.LUT(frame.to_ndarray(format="rgb24", threads=1), table))
    out: Any = encode.frame_of_planes((planes.y, planes.uv[..., 0], planes.uv[..., 1]))
    encode.set_colors(out)
    out.pts = (frame.pts or 0) - first
    out.time_base = time_base
    return out
