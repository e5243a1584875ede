"""Every sound of a project as one, mixed as the film is written and never louder than it may be."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import EngineError, UnusableInput
from sixfold.engines.video import decoder
from sixfold.engines.video.decoder import AudioTrack
from sixfold.engines.video.encode import SOUND_RATE
from sixfold.engines.video.timeline.clip_timing import ClipTiming

Array = NDArray[Any]

CEILING = 0.89  # of full scale: 1 dB below it, as an encoder may add as much
_STEP = 48  # samples whose loudest one counts: a millisecond
_AHEAD = 6  # steps that the limiter looks ahead, over which it goes down
_RELEASE = 0.985  # of the distance that is left after a step, on the way up
_CHUNK = 200 * _STEP


class TimelineMix:
    """Reads the sounds of `shots` in step with the film."""

    def __init__(self, shots: list[ClipTiming], samples: int) -> None:
        self._waiting = sorted(shots, key=lambda shot: shot.clip.start)
        self._samples = samples
        self._playing: list[tuple[ClipTiming, AudioTrack]] = []
        self._limiter = Limiter()
        self._at = 0
        self._ready: Array = np.zeros((2, 0), np.float32)

    def read(self, first: int, last: int) -> Array:
        """The mix from one sample to another, asked for in order."""
        while self._ready.shape[1] < last - first:
            made = self._limiter.limited(self._mixed(), ends=self._at >= self._samples)
            self._ready = np.concatenate([self._ready, made], axis=1)
        found, self._ready = self._ready[:, : last - first], self._ready[:, last - first :]
        return found

    def close(self) -> None:
        """Let go of every file."""
        for _, voice in self._playing:
            voice.close()
        self._playing.clear()

    def _mixed(self) -> Array:
        begin, end = self._at, self._at + _CHUNK
        out = np.zeros((2, _CHUNK), np.float32)
        while self._waiting and _sample(self._waiting[0].clip.start) < end:
            shot = self._waiting.pop(0)
            voice = _voice(shot)
            if voice is not None:
                self._playing.append((shot, voice))
        for shot, voice in tuple(self._playing):
            first, last = max(begin, _sample(shot.clip.start)), min(end, _sample(shot.until))
            if first < last:
                loud = np.float32(shot.loudness(np.arange(first, last) / SOUND_RATE))
                out[:, first - begin : last - begin] += voice.read(last - first) * loud
            if _sample(shot.until) <= end:
                voice.close()
                self._playing.remove((shot, voice))
        self._at = end
        return out


def _sample(second: float) -> int:
    return round(second * SOUND_RATE)


def _voice(shot: ClipTiming) -> AudioTrack | None:
    """The sound of a clip; None for a film without any."""
    if shot.path is None:
        return None
    try:
        return _begun(shot, AudioTrack(shot.path, shot.clip.trim_start, shot.clip.speed))
    except decoder.NoAudioTrack:
        if shot.kind == "audio":
            raise UnusableInput(f"{shot.place}: The file has no sound in it") from None
        return None
    except EngineError as error:
        raise type(error)(f"{shot.place}: {error}") from error


def _begun(shot: ClipTiming, voice: AudioTrack) -> AudioTrack:
    if shot.kind == "audio" and shot.clip.trim_start > 0 and voice.over():
        voice.close()
        raise UnusableInput("trim_start is beyond its end")
    return voice


class Limiter:
    """Turns the whole down for as long as it would be too loud, a little before, and slowly up again."""

    def __init__(self) -> None:
        self._kept: Array = np.zeros((2, 0), np.float32)  # what came and waits for what is ahead of it
        self._edge = 1.0  # the factor where what waits begins
        self._held = 1.0  # the factor that the step before it may have

    def limited(self, sound: Array, *, ends: bool = False) -> Array:
        """The sound so far, `_AHEAD` steps late; all of it where it `ends`."""
        whole = np.concatenate([self._kept, sound], axis=1)
        if ends:
            whole = np.pad(whole, ((0, 0), (0, _AHEAD * _STEP)))
        steps = whole.shape[1] // _STEP
        peaks = np.abs(whole[:, : steps * _STEP]).max(0).reshape(steps, _STEP).max(1)
        may = np.minimum(1.0, CEILING / np.maximum(peaks, 1e-9))
        out = steps - _AHEAD
        ahead = np.lib.stride_tricks.sliding_window_view(may, _AHEAD + 1).min(1)[:out]
        edges = self._edges(ahead)
        slopes = edges[:-1, None] + (edges[1:] - edges[:-1])[:, None] * np.arange(_STEP) / _STEP
        self._kept = whole[:, out * _STEP :]
        factor = slopes.reshape(-1).astype(np.float32)
        return np.clip(whole[:, : out * _STEP] * factor, -CEILING, CEILING).astype(np.float32)

    def _edges(self, ahead: Array) -> Array:
        """The factor at both ends of each step: down over the steps ahead, up as slowly as is not heard."""
        edges = np.empty(len(ahead) + 1)
        edges[0] = at = self._edge
        for number, goal in enumerate(ahead.tolist()):
            if goal < at:
                at = max(goal, at - (at - goal) / 2) if at - goal > 0.02 else goal
            else:
                at = min(goal, 1 - (1 - at) * _RELEASE)
            edges[number + 1] = at
        self._edge = at
        return edges
