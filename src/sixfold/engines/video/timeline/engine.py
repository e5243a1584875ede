"""The engine: a timeline's project in, one film out."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, closing
from fractions import Fraction
from pathlib import Path

from sixfold.core.catalog import timeline
from sixfold.core.catalog.engines import Artifact, Context, Result, Task
from sixfold.core.catalog.timeline import Project
from sixfold.engines.video import encode
from sixfold.engines.video.encode import SOUND_RATE, AudioSource, VideoEncoder
from sixfold.engines.video.gif import MAX_GIF_RATE, write_gif
from sixfold.engines.video.timeline import clip_timing
from sixfold.engines.video.timeline.clip_timing import ClipTiming
from sixfold.engines.video.timeline.compositing import PAPERS, Array, Sheets
from sixfold.engines.video.timeline.compositor import Compositor
from sixfold.engines.video.timeline.mixing import TimelineMix

_GIF = "gif"
_TYPES = {_GIF: "image/gif", **{name: kind.content_type for name, kind in encode.KINDS.items()}}
_NEARLY = 1e-6
_DONE = 0.99
_THREADS = 2  # of the encoder, which works longest: the bytes are those of this number


class TimelineEngine:
    """Films from projects; the same project and files give the same bytes."""

    name = "timeline"
    version = "5"

    def run(self, task: Task, context: Context) -> Result:
        """Render one project."""
        project = timeline.parse(task.inputs["project"])
        wanted = str(task.inputs.get("format", "mp4"))
        seconds = max(shot.end for track in project.tracks for shot in track.clips)
        rate = Fraction(project.fps).limit_denominator(1001)
        if wanted == _GIF:
            rate = min(rate, Fraction(MAX_GIF_RATE))
        frames = max(1, math.ceil(seconds * rate - _NEARLY))
        size = _size(project, wanted)
        target = context.scratch / f"film.{wanted}"
        _render(
            target,
            _RenderPlan(project, clip_timing.of(project, task.files), size, rate, frames, wanted),
            context,
        )
        shown = int(rate) if rate.denominator == 1 else round(float(rate), 3)
        info = {
            "width": size[0],
            "height": size[1],
            "duration": round(float(frames / rate), 3),
            "fps": shown,
        }
        billed = min(seconds, float(frames / rate))
        return Result((Artifact(_TYPES[wanted], b"", info, target),), billed=billed)


class _RenderPlan:
    """All that a rendering goes by."""

    def __init__(
        self,
        project: Project,
        tracks: tuple[tuple[ClipTiming, ...], ...],
        size: tuple[int, int],
        rate: Fraction,
        frames: int,
        wanted: str,
    ) -> None:
        self.project = project
        self.tracks = tracks
        self.size = size
        self.rate = rate
        self.frames = frames
        self.wanted = wanted


def _size(project: Project, wanted: str) -> tuple[int, int]:
    """The film's sides: even ones, as colours have half as many pixels; a GIF keeps what was asked for."""
    if wanted == _GIF:
        return project.width, project.height
    return project.width + project.width % 2, project.height + project.height % 2


def _render(target: Path, plan: _RenderPlan, context: Context) -> None:
    if plan.wanted == _GIF:
        _render_gif(target, plan, context)
        return
    with ExitStack() as stack:
        film = stack.enter_context(_writer(target, plan, stack))
        for number, sheets in enumerate(_frames(plan), 1):
            film.add(sheets)
            context.progress(_DONE * number / plan.frames)


def _render_gif(target: Path, plan: _RenderPlan, context: Context) -> None:
    painted = 0

    def frames() -> Iterator[Array]:
        nonlocal painted
        for (pixels,) in _frames(plan):
            yield pixels
            painted += 1
            context.progress(_DONE * painted / (2 * plan.frames))

    write_gif(target, plan.size, plan.rate, frames)


def _frames(plan: _RenderPlan) -> Iterator[Sheets]:
    with closing(Compositor(plan.project, plan.tracks, plan.size, PAPERS[plan.wanted])) as stage:
        for number in range(plan.frames):
            yield stage.picture(float(number / plan.rate))


def _writer(target: Path, plan: _RenderPlan, stack: ExitStack) -> VideoEncoder:
    heard = [shot for track in plan.tracks for shot in track if shot.kind in timeline.TIMED_KINDS]
    heard = [shot for shot in heard if shot.clip.volume > 0]
    sound = None
    if any(shot.kind == "audio" or clip_timing.has_sound(shot) for shot in heard):
        samples = round(plan.frames / plan.rate * SOUND_RATE)
        mix = stack.enter_context(closing(TimelineMix(heard, samples)))
        sound = AudioSource(samples, mix.read)
    return VideoEncoder(target, plan.size, plan.rate, sound, encode.KINDS[plan.wanted], _THREADS)
