"""Audio nodes: load, save, cut, join and change the volume."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.workflows.ports import NodeArtifact, NodeContext, NodeFile, NodeResult, Run
from sixfold.engines.audio import files
from sixfold.engines.workflow_nodes.values import AudioValue

_MAX_SECONDS = 3600.0


def require_audio(value: Any) -> AudioValue:
    """Return the value of an AUDIO input; raises `UnusableInput` for another type."""
    if not isinstance(value, AudioValue):
        raise UnusableInput("This input must be audio.")
    return value


def load(_context: NodeContext, audio: Any) -> tuple[AudioValue | None]:
    """Load an audio file; the value is None if the input is not a file."""
    if not isinstance(audio, NodeFile):
        return (None,)
    return (AudioValue(files.read(audio.path, _MAX_SECONDS), files.RATE),)


def save_flac(context: NodeContext, audio: Any, filename_prefix: str) -> NodeResult:
    return NodeResult(artifacts=(_artifact(context, audio, "flac", filename_prefix),))


def save_mp3(context: NodeContext, audio: Any, filename_prefix: str, **_: Any) -> NodeResult:
    return NodeResult(artifacts=(_artifact(context, audio, "mp3", filename_prefix),))


def preview(context: NodeContext, audio: Any) -> NodeResult:
    """Save audio as a temporary MP3."""
    return NodeResult(artifacts=(_artifact(context, audio, "mp3", "ComfyUI_temp", temporary=True),))


def _artifact(
    context: NodeContext, audio: Any, format_: str, prefix: str, *, temporary: bool = False
) -> NodeArtifact:
    stereo = standardize(require_audio(audio))
    path = context.scratch / secrets.token_hex(12)
    output = files.write(stereo.wave, format_, path)
    info = dict(output.info)
    return NodeArtifact(
        output.content_type, output.data, output.path, "audio", prefix, temporary=temporary, info=info
    )


def file(context: NodeContext, audio: Any) -> NodeFile:
    """Return audio as a WAV file for a child prediction."""
    artifact = _artifact(context, audio, "wav", "")
    return context.file(artifact.path or artifact.data, artifact.content_type)


def standardize(audio: AudioValue) -> AudioValue:
    """Convert audio to stereo at 48 kHz."""
    wave = np.repeat(audio.wave, 2, 0) if len(audio.wave) == 1 else audio.wave[:2]
    if audio.rate != files.RATE:
        wave = files.resample(wave, audio.rate, files.RATE)
    return AudioValue(wave, files.RATE)


def empty(_context: NodeContext, duration: float, sample_rate: int, channels: int) -> tuple[AudioValue]:
    """Return silence; raises `UnusableInput` above one hour."""
    if duration > _MAX_SECONDS:
        raise UnusableInput(f"The duration must be at most {_MAX_SECONDS:g} seconds (got {duration:g}).")
    return (AudioValue(np.zeros((channels, round(duration * sample_rate)), np.float32), sample_rate),)


def trim(_context: NodeContext, audio: Any, start_index: float, duration: float) -> tuple[AudioValue]:
    """Return a part of the audio; a negative start counts from the end."""
    value = require_audio(audio)
    first = round(start_index * value.rate)
    first = max(0, first + value.wave.shape[1] if first < 0 else first)
    part = value.wave[:, first : first + round(duration * value.rate)]
    if not part.shape[1]:
        raise UnusableInput("The selected part of the audio is empty.")
    return (AudioValue(part, value.rate),)


def split(_context: NodeContext, audio: Any) -> tuple[AudioValue, AudioValue]:
    """Return the left and the right channel."""
    value = require_audio(audio)
    return AudioValue(value.wave[:1], value.rate), AudioValue(value.wave[-1:], value.rate)


def concat(_context: NodeContext, audio1: Any, audio2: Any, direction: str) -> tuple[AudioValue]:
    """Join two audio inputs in sequence."""
    first, second = standardize(require_audio(audio1)), standardize(require_audio(audio2))
    pair = (first, second) if direction == "after" else (second, first)
    return (AudioValue(np.concatenate([each.wave for each in pair], 1), files.RATE),)


def merge(_context: NodeContext, audio1: Any, audio2: Any, merge_method: str) -> tuple[AudioValue]:
    """Mix two audio inputs to the length of the first."""
    first, second = standardize(require_audio(audio1)).wave, standardize(require_audio(audio2)).wave
    overlay = np.zeros_like(first)
    count = min(first.shape[1], second.shape[1])
    overlay[:, :count] = second[:, :count]
    mixed = {
        "add": first + overlay,
        "mean": (first + overlay) / 2,
        "subtract": first - overlay,
        "multiply": first * overlay,
    }
    result = mixed[merge_method]
    return (
        AudioValue((result / max(1.0, float(np.abs(result).max(initial=0)))).astype(np.float32), files.RATE),
    )


def volume(_context: NodeContext, audio: Any, volume: int) -> tuple[AudioValue]:
    """Change the volume by `volume` decibels."""
    value = require_audio(audio)
    return (AudioValue((value.wave * np.float32(10 ** (volume / 20))), value.rate),)


RUNS: Mapping[str, Run] = {
    "LoadAudio": load,
    "SaveAudio": save_flac,
    "SaveAudioMP3": save_mp3,
    "PreviewAudio": preview,
    "EmptyAudio": empty,
    "TrimAudioDuration": trim,
    "SplitAudioChannels": split,
    "AudioConcat": concat,
    "AudioMerge": merge,
    "AudioAdjustVolume": volume,
}
