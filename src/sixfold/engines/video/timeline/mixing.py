"""Streaming mix of the audio of a project, with a limiter."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import EngineError, UnusableInput
from sixfold.engines.video import decoder
from sixfold.engines.video.decoder import AudioTrack
from sixfold.engines.video.encode import AUDIO_RATE
from sixfold.engines.video.timeline.clip_timing import ClipTiming

Array = NDArray[Any]

# The maximum level: 1 dB below full scale, because an encoder may exceed it by as much.
CEILING = 0.89
# The number of samples in a limiter step of a millisecond; the peak of each step determines its gain.
_STEP = 48
# The number of steps of look-ahead over which the limiter reduces the gain.
_AHEAD = 6
# The fraction of the reduction that remains after each step of recovery.
_RELEASE = 0.985
_CHUNK = 200 * _STEP


class TimelineMix:
    """A reader of the mixed audio of clips."""

    def __init__(self, shots: list[ClipTiming], samples: int) -> None:
        self._waiting = sorted(shots, key=lambda shot: shot.clip.start)
        self._samples = samples
        self._playing: list[tuple[ClipTiming, AudioTrack]] = []
        self._limiter = Limiter()
        self._position = 0
        self._ready: Array = np.zeros((2, 0), np.float32)

    def read(self, first: int, last: int) -> Array:
        """Return the mix from sample `first` up to `last`; ranges must be requested in order."""
        while self._ready.shape[1] < last - first:
            limited = self._limiter.process(self._mix_chunk(), last=self._position >= self._samples)
            self._ready = np.concatenate([self._ready, limited], axis=1)
        result, self._ready = self._ready[:, : last - first], self._ready[:, last - first :]
        return result

    def close(self) -> None:
        """Close all files."""
        for _, track in self._playing:
            track.close()
        self._playing.clear()

    def _mix_chunk(self) -> Array:
        begin, end = self._position, self._position + _CHUNK
        out = np.zeros((2, _CHUNK), np.float32)
        while self._waiting and _sample(self._waiting[0].clip.start) < end:
            shot = self._waiting.pop(0)
            track = _open_track(shot)
            if track is not None:
                self._playing.append((shot, track))
        for shot, track in tuple(self._playing):
            first, last = max(begin, _sample(shot.clip.start)), min(end, _sample(shot.until))
            if first < last:
                gain = np.float32(shot.gain(np.arange(first, last) / AUDIO_RATE))
                out[:, first - begin : last - begin] += track.read(last - first) * gain
            if _sample(shot.until) <= end:
                track.close()
                self._playing.remove((shot, track))
        self._position = end
        return out


def _sample(second: float) -> int:
    return round(second * AUDIO_RATE)


def _open_track(shot: ClipTiming) -> AudioTrack | None:
    """Open the audio track of a clip, or return None if a video does not contain one."""
    if shot.path is None:
        return None
    try:
        return _check_start(shot, AudioTrack(shot.path, shot.clip.trim_start, shot.clip.speed))
    except decoder.NoAudioTrack:
        if shot.kind == "audio":
            raise UnusableInput(f"{shot.place}: The file has no audio track") from None
        return None
    except EngineError as error:
        raise type(error)(f"{shot.place}: {error}") from error


def _check_start(shot: ClipTiming, track: AudioTrack) -> AudioTrack:
    if shot.kind == "audio" and shot.clip.trim_start > 0 and track.at_end():
        track.close()
        raise UnusableInput(f"trim_start must be before the end of the file (got {shot.clip.trim_start:g})")
    return track


class Limiter:
    """A peak limiter with look-ahead and slow release."""

    def __init__(self) -> None:
        # The samples that are delayed for the look-ahead, and the gain at their start.
        self._pending: Array = np.zeros((2, 0), np.float32)
        self._gain = 1.0

    def process(self, samples: Array, *, last: bool = False) -> Array:
        """Return the limited audio, delayed by `_AHEAD` steps; with `last`, also all remaining samples."""
        samples = np.concatenate([self._pending, samples], axis=1)
        if last:
            samples = np.pad(samples, ((0, 0), (0, _AHEAD * _STEP)))
        steps = samples.shape[1] // _STEP
        peaks = np.abs(samples[:, : steps * _STEP]).max(0).reshape(steps, _STEP).max(1)
        limits = np.minimum(1.0, CEILING / np.maximum(peaks, 1e-9))
        count = steps - _AHEAD
        targets = np.lib.stride_tricks.sliding_window_view(limits, _AHEAD + 1).min(1)[:count]
        gains = self._step_gains(targets)
        slopes = gains[:-1, None] + (gains[1:] - gains[:-1])[:, None] * np.arange(_STEP) / _STEP
        self._pending = samples[:, count * _STEP :]
        factor = slopes.reshape(-1).astype(np.float32)
        return np.clip(samples[:, : count * _STEP] * factor, -CEILING, CEILING).astype(np.float32)

    def _step_gains(self, targets: Array) -> Array:
        """Return the gain at both ends of each step: reduced over the look-ahead, released slowly."""
        gains = np.empty(len(targets) + 1)
        gains[0] = gain = self._gain
        for number, target in enumerate(targets.tolist()):
            if target < gain:
                gain = max(target, gain - (gain - target) / 2) if gain - target > 0.02 else target
            else:
                gain = min(target, 1 - (1 - gain) * _RELEASE)
            gains[number + 1] = gain
        self._gain = gain
        return gains
