"""Timing of clips: visible range, transitions to the next clip, and fades."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sixfold.core.catalog import timeline
from sixfold.core.catalog.engines import EngineError
from sixfold.core.catalog.timeline import Clip, Kind, Project, Track
from sixfold.engines.video.decoder import AudioTrack, NoAudioTrack


@dataclass(eq=False, slots=True)
class ClipTiming:
    """A clip on its track, with transitions from `before` and to the next clip, at `next_start`."""

    clip: Clip
    kind: Kind
    name: str
    path: Path | None
    before: ClipTiming | None = None
    next_start: float | None = None
    until: float = field(init=False)

    def __post_init__(self) -> None:
        self.until = self.clip.end

    @property
    def place(self) -> str:
        """The clip's path in the project, such as `tracks[1].clips[0]`."""
        return timeline.clip_path(self.name)

    def active(self, second: float) -> bool:
        """Return whether the clip is visible or audible at `second` of the project."""
        return self.clip.start <= second < self.until

    def transition_progress(self, second: float) -> float | None:
        """Return the progress of the transition to this clip, 0 to 1, or None outside the transition."""
        change = self.clip.transition
        if change is None or not 0 <= second - self.clip.start < change.duration:
            return None
        return (second - self.clip.start) / change.duration

    def source_second(self, second: float) -> float:
        """Return the second in the clip's file that corresponds to a second of the project."""
        return self.clip.trim_start + (second - self.clip.start) * self.clip.speed

    def fade(self, second: Any) -> Any:
        """Return the factor of the fades, 0 to 1, at a time or at an array of times, in seconds."""
        clip, factor = self.clip, 1.0
        if clip.fade_in > 0:
            factor = factor * np.clip((second - clip.start) / clip.fade_in, 0, 1)
        if clip.fade_out > 0:
            factor = factor * np.clip((clip.end - second) / clip.fade_out, 0, 1)
        return factor

    def gain(self, second: Any) -> Any:
        """Return the audio gain at an array of times in seconds: volume, fades and cross-fades."""
        gain = self.clip.volume * self.fade(second)
        change = self.clip.transition
        if change is not None:
            gain = gain * np.sin(np.clip((second - self.clip.start) / change.duration, 0, 1) * np.pi / 2)
        if self.next_start is not None:
            share = (second - self.next_start) / max(1e-6, self.until - self.next_start)
            gain = gain * np.cos(np.clip(share, 0, 1) * np.pi / 2)
        return gain


def has_audio(shot: ClipTiming) -> bool:
    """Return whether a clip's file contains an audio track."""
    if shot.path is None:
        return False
    try:
        AudioTrack(shot.path).close()
    except NoAudioTrack:
        return False
    except EngineError as error:
        raise type(error)(f"{shot.place}: {error}") from error
    return True


def of(project: Project, files: Mapping[str, Path]) -> tuple[tuple[ClipTiming, ...], ...]:
    """Return the clips of each track in order of their start."""
    return tuple(_track(track, at, files) for at, track in enumerate(project.tracks))


def _track(track: Track, index: int, files: Mapping[str, Path]) -> tuple[ClipTiming, ...]:
    names = [timeline.file_name(index, number) for number in range(len(track.clips))]
    shots = {
        id(clip): ClipTiming(clip, track.type, name, files.get(name))
        for name, clip in zip(names, track.clips, strict=True)
    }
    for shot in shots.values():
        change = shot.clip.transition
        previous = timeline.previous_clip(track, shot.clip) if change is not None else None
        if change is not None and previous is not None:
            shot.before = shots[id(previous)]
            shot.before.next_start = shot.clip.start
            shot.before.until = shot.clip.start + change.duration
    return tuple(sorted(shots.values(), key=lambda shot: shot.clip.start))
