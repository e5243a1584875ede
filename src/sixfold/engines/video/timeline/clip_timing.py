"""When each clip is on: its own time, the handing over from one to the next, and its fades."""

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
    """One clip in its place: `before` hands over to it, and it hands over from `hands_over` on."""

    clip: Clip
    kind: Kind
    name: str
    path: Path | None
    before: ClipTiming | None = None
    hands_over: float | None = None
    until: float = field(init=False)

    def __post_init__(self) -> None:
        self.until = self.clip.end

    @property
    def place(self) -> str:
        """The clip as people name it: `tracks[1].clips[0]`."""
        return timeline.clip_path(self.name)

    def on(self, second: float) -> bool:
        """Whether it is seen or heard at a second."""
        return self.clip.start <= second < self.until

    def coming(self, second: float) -> float | None:
        """How far it has come, 0 to 1, while it takes over; None when it does not."""
        change = self.clip.transition
        if change is None or not 0 <= second - self.clip.start < change.duration:
            return None
        return (second - self.clip.start) / change.duration

    def source_second(self, second: float) -> float:
        """The second of its file that is shown."""
        return self.clip.trim_start + (second - self.clip.start) * self.clip.speed

    def faded(self, second: Any) -> Any:
        """How much its fades leave at a second (or at many): 0 to 1."""
        clip, left = self.clip, 1.0
        if clip.fade_in > 0:
            left = left * np.clip((second - clip.start) / clip.fade_in, 0, 1)
        if clip.fade_out > 0:
            left = left * np.clip((clip.end - second) / clip.fade_out, 0, 1)
        return left

    def loudness(self, second: Any) -> Any:
        """The factor of its sound at many seconds: volume, fades, and both sides of a handing over."""
        loud = self.clip.volume * self.faded(second)
        change = self.clip.transition
        if change is not None:
            loud = loud * np.sin(np.clip((second - self.clip.start) / change.duration, 0, 1) * np.pi / 2)
        if self.hands_over is not None:
            share = (second - self.hands_over) / max(1e-6, self.until - self.hands_over)
            loud = loud * np.cos(np.clip(share, 0, 1) * np.pi / 2)
        return loud


def has_sound(shot: ClipTiming) -> bool:
    """Whether there is something to hear in a clip's file."""
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
    """The shots of each track, in the order in which they begin."""
    return tuple(_track(track, at, files) for at, track in enumerate(project.tracks))


def _track(track: Track, at: int, files: Mapping[str, Path]) -> tuple[ClipTiming, ...]:
    names = [timeline.file_name(at, number) for number in range(len(track.clips))]
    shots = {
        id(clip): ClipTiming(clip, track.type, name, files.get(name))
        for name, clip in zip(names, track.clips, strict=True)
    }
    for shot in shots.values():
        change = shot.clip.transition
        earlier = timeline.previous_clip(track, shot.clip) if change is not None else None
        if change is not None and earlier is not None:
            shot.before = shots[id(earlier)]
            shot.before.hands_over = shot.clip.start
            shot.before.until = shot.clip.start + change.duration
    return tuple(sorted(shots.values(), key=lambda shot: shot.clip.start))
