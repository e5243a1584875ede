"""Nodes on sound: in and out, cut, joined, made louder."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np

from sixfold.core.catalog.engines import UnusableInput
from sixfold.core.workflows.ports import NodeArtifact, NodeContext, NodeFile, NodeInputs, Run
from sixfold.engines.audio import files
from sixfold.engines.workflow_nodes.values import AudioValue

_MOST_SECONDS = 3600.0


def sound(value: Any) -> AudioValue:
    """The sound of an AUDIO."""
    if not isinstance(value, AudioValue):
        raise UnusableInput("this input takes sound")
    return value


def load(_context: NodeContext, audio: Any) -> tuple[AudioValue | None]:
    """A file's sound; nothing where no file is named."""
    if not isinstance(audio, NodeFile):
        return (None,)
    return (AudioValue(files.read(audio.path, _MOST_SECONDS), files.RATE),)


def save_flac(context: NodeContext, audio: Any, filename_prefix: str) -> NodeInputs:
    """Sound as FLAC."""
    return NodeInputs(made=(_made(context, audio, "flac", filename_prefix),))


def save_mp3(context: NodeContext, audio: Any, filename_prefix: str, **_: Any) -> NodeInputs:
    """Sound as MP3."""
    return NodeInputs(made=(_made(context, audio, "mp3", filename_prefix),))


def preview(context: NodeContext, audio: Any) -> NodeInputs:
    """Sound, to be heard for a while."""
    return NodeInputs(made=(_made(context, audio, "mp3", "ComfyUI_temp", temporary=True),))


def _made(
    context: NodeContext, audio: Any, format_: str, prefix: str, *, temporary: bool = False
) -> NodeArtifact:
    stereo = at_home(sound(audio))
    path = context.scratch / secrets.token_hex(12)
    made = files.written(stereo.wave, format_, path)
    info = dict(made.info)
    return NodeArtifact(
        made.content_type, made.data, made.path, "audio", prefix, temporary=temporary, info=info
    )


def file(context: NodeContext, audio: Any) -> NodeFile:
    """Sound as a file for one of the platform's models."""
    made = _made(context, audio, "wav", "")
    return context.file(made.path or made.data, made.content_type)


def at_home(given: AudioValue) -> AudioValue:
    """Sound in stereo at 48 kHz."""
    wave = np.repeat(given.wave, 2, 0) if len(given.wave) == 1 else given.wave[:2]
    if given.rate != files.RATE:
        wave = files.resampled(wave, given.rate, files.RATE)
    return AudioValue(wave, files.RATE)


def empty(_context: NodeContext, duration: float, sample_rate: int, channels: int) -> tuple[AudioValue]:
    """Silence."""
    if duration > _MOST_SECONDS:
        raise UnusableInput(f"sound of at most {_MOST_SECONDS:g} seconds can be made")
    return (AudioValue(np.zeros((channels, round(duration * sample_rate)), np.float32), sample_rate),)


def trim(_context: NodeContext, audio: Any, start_index: float, duration: float) -> tuple[AudioValue]:
    """A part, from a second on; from the end where that is below 0."""
    given = sound(audio)
    first = round(start_index * given.rate)
    first = max(0, first + given.wave.shape[1] if first < 0 else first)
    part = given.wave[:, first : first + round(duration * given.rate)]
    if not part.shape[1]:
        raise UnusableInput("nothing is left of the sound")
    return (AudioValue(part, given.rate),)


def split(_context: NodeContext, audio: Any) -> tuple[AudioValue, AudioValue]:
    """Left and right."""
    given = sound(audio)
    return AudioValue(given.wave[:1], given.rate), AudioValue(given.wave[-1:], given.rate)


def concat(_context: NodeContext, audio1: Any, audio2: Any, direction: str) -> tuple[AudioValue]:
    """One after the other."""
    one, other = at_home(sound(audio1)), at_home(sound(audio2))
    pair = (one, other) if direction == "after" else (other, one)
    return (AudioValue(np.concatenate([each.wave for each in pair], 1), files.RATE),)


def merge(_context: NodeContext, audio1: Any, audio2: Any, merge_method: str) -> tuple[AudioValue]:
    """Both at once, as long as the first."""
    one, other = at_home(sound(audio1)).wave, at_home(sound(audio2)).wave
    laid = np.zeros_like(one)
    count = min(one.shape[1], other.shape[1])
    laid[:, :count] = other[:, :count]
    mixed = {"add": one + laid, "mean": (one + laid) / 2, "subtract": one - laid, "multiply": one * laid}
    made = mixed[merge_method]
    return (AudioValue((made / max(1.0, float(np.abs(made).max(initial=0)))).astype(np.float32), files.RATE),)


def volume(_context: NodeContext, audio: Any, volume: int) -> tuple[AudioValue]:
    """Louder or softer by so many decibels."""
    given = sound(audio)
    return (AudioValue((given.wave * np.float32(10 ** (volume / 20))), given.rate),)


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
