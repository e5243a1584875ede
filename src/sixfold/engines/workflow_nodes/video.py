"""Video nodes: load, save, decode and encode videos and animated images."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.workflows.ports import NodeArtifact, NodeContext, NodeFile, NodeResult, Run
from sixfold.engines.audio import files as audio_files
from sixfold.engines.video import encode
from sixfold.engines.workflow_nodes import animations, values
from sixfold.engines.workflow_nodes.frame_split import decode_frames
from sixfold.engines.workflow_nodes.values import AudioValue, Frames, FramesValue, VideoValue, frames

_METHODS = {"default": 4, "fastest": 0, "slowest": 6}


def load(_context: NodeContext, file: NodeFile) -> tuple[VideoValue]:
    return (VideoValue(file),)


def components(_context: NodeContext, video: Any) -> tuple[Frames, AudioValue | None, float]:
    if isinstance(video, FramesValue):
        return video.frames, video.sound, video.fps
    path = _require_video(video).file.path
    series, rate = decode_frames(path)
    return series, _sound(path), rate


def _require_video(video: Any) -> VideoValue:
    if not isinstance(video, VideoValue):
        raise UnusableInput("This input must be a video.")
    return video


def _sound(path: Path) -> AudioValue | None:
    try:
        return AudioValue(audio_files.read(path, 3600), audio_files.RATE)
    except UnusableInput:
        return None


def combine(_context: NodeContext, images: Any, fps: float, audio: Any = None) -> tuple[FramesValue]:
    return (FramesValue(frames(images), fps, audio if isinstance(audio, AudioValue) else None),)


def save(context: NodeContext, video: Any, filename_prefix: str = "video/ComfyUI", **_: Any) -> NodeResult:
    """Save a video as MP4."""
    if isinstance(video, VideoValue) and video.file.content_type == "video/mp4":
        path = context.copy(video.file)
        return _output(
            NodeArtifact("video/mp4", path=path, kind="images", prefix=filename_prefix, info=video.file.info)
        )
    series, sound, rate = components(context, video)
    return _output(_encode(context, series, rate, sound, (encode.MP4, filename_prefix)))


def save_webm(context: NodeContext, images: Any, filename_prefix: str, fps: float, **_: Any) -> NodeResult:
    return _output(_encode(context, frames(images), fps, None, (encode.KINDS["webm"], filename_prefix)))


def _output(artifact: NodeArtifact) -> NodeResult:
    return NodeResult(artifacts=(artifact,), ui={"animated": (True,)})


def _encode(
    context: NodeContext,
    series: Frames,
    rate: float,
    sound: AudioValue | None,
    how: tuple[encode.VideoKind, str],
) -> NodeArtifact:
    kind, prefix = how
    path = context.scratch / secrets.token_hex(12)
    height, width = (side // 2 * 2 for side in series.shape[1:3])
    fraction = Fraction(rate).limit_denominator(1001)
    wave = None
    if sound is not None:
        stereo = np.resize(sound.wave, (2, sound.wave.shape[1])) if len(sound.wave) == 1 else sound.wave[:2]
        wave = encode.AudioSource.of(
            stereo if sound.rate == audio_files.RATE else resampled(stereo, sound.rate)
        )
    with encode.VideoEncoder(path, (width, height), fraction, wave, kind) as video_file:
        for at, frame in enumerate(series):
            video_file.add(np.ascontiguousarray(values.to_bytes(frame[:height, :width, :3])))
            context.progress(at + 1, len(series))
    seconds = round(len(series) / rate, 3)
    info = {"width": width, "height": height, "duration": seconds, "fps": float(fraction)}
    return NodeArtifact(kind.content_type, path=path, prefix=prefix, info=info)


def resampled(wave: Any, rate: int) -> Any:
    """Resample stereo audio to 48 kHz."""
    return audio_files.resample(wave, rate, audio_files.RATE)


def save_webp(
    context: NodeContext, images: Any, filename_prefix: str, fps: float, lossless: bool, **more: Any
) -> NodeResult:
    options = {
        "lossless": bool(lossless),
        "quality": int(more.get("quality", 80)),
        "method": _METHODS.get(str(more.get("method")), 4),
    }
    return _animation(context, images, fps, ("WEBP", "image/webp", filename_prefix), options)


def save_apng(
    context: NodeContext, images: Any, filename_prefix: str, fps: float, compress_level: int
) -> NodeResult:
    """Save frames as an animated PNG."""
    return _animation(
        context, images, fps, ("PNG", "image/png", filename_prefix), {"compress_level": compress_level}
    )


def _animation(
    context: NodeContext, images: Any, fps: float, how: tuple[str, str, str], options: Mapping[str, Any]
) -> NodeResult:
    format_, content_type, prefix = how
    series = values.to_bytes(frames(images))
    context.progress(0)
    data = animations.encode(series, fps, format_, options)
    height, width = series.shape[1:3]
    info = {"width": width, "height": height, "duration": round(len(series) / fps, 3), "fps": fps}
    return _output(NodeArtifact(content_type, data, prefix=prefix, info=info))


RUNS: Mapping[str, Run] = {
    "LoadVideo": load,
    "GetVideoComponents": components,
    "CreateVideo": combine,
    "SaveVideo": save,
    "SaveWEBM": save_webm,
    "SaveAnimatedWEBP": save_webp,
    "SaveAnimatedPNG": save_apng,
}
