"""Engine that renders the project of a timeline to a video."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from fractions import Fraction
from pathlib import Path
from typing import Any

from sixfold.core.catalog import timeline
from sixfold.core.catalog.engines import Artifact, Context, Result, Task, UnusableInput
from sixfold.core.catalog.timeline import Project
from sixfold.engines.video import encode
from sixfold.engines.video.encode import AUDIO_RATE, AudioSource, VideoEncoder
from sixfold.engines.video.gif import MAX_GIF_RATE, write_gif
from sixfold.engines.video.timeline import clip_timing, fonts
from sixfold.engines.video.timeline.clip_timing import ClipTiming
from sixfold.engines.video.timeline.compositing import FORMATS, Array, Planes
from sixfold.engines.video.timeline.compositor import Compositor
from sixfold.engines.video.timeline.mixing import TimelineMix
from sixfold.errors import InvalidInput

_GIF = "gif"
_TYPES = {_GIF: "image/gif", **{name: kind.content_type for name, kind in encode.KINDS.items()}}
_TOLERANCE = 1e-6
_DONE = 0.99
# The number of threads is constant because the encoder's output depends on it.
_THREADS = 2


class TimelineEngine:
    """Renders projects; the same project and files produce the same bytes."""

    name = "timeline"
    version = "6"

    def run(self, task: Task, context: Context) -> Result:
        _check_glyphs(task.inputs["project"])
        project = timeline.parse(task.inputs["project"])
        output_format = str(task.inputs.get("format", "mp4"))
        seconds = max(shot.end for track in project.tracks for shot in track.clips)
        rate = Fraction(project.fps).limit_denominator(1001)
        if output_format == _GIF:
            rate = min(rate, Fraction(MAX_GIF_RATE))
        frames = max(1, math.ceil(seconds * rate - _TOLERANCE))
        size = _size(project, output_format)
        target = context.scratch / f"video.{output_format}"
        _render(
            target,
            _RenderPlan(project, clip_timing.of(project, task.files), size, rate, frames, output_format),
            context,
        )
        fps = int(rate) if rate.denominator == 1 else round(float(rate), 3)
        info = {"width": size[0], "height": size[1], "duration": round(float(frames / rate), 3), "fps": fps}
        billed = min(seconds, float(frames / rate))
        return Result((Artifact(_TYPES[output_format], b"", info, target),), billed=billed)


def _check_glyphs(project: Mapping[str, Any]) -> None:
    """Raise `UnusableInput` for characters that all fonts here lack; the server's fonts may differ."""
    try:
        timeline.check_glyphs(project, fonts.missing_characters)
    except InvalidInput as error:
        raise UnusableInput("; ".join(problem.message for problem in error.problems)) from error


class _RenderPlan:
    def __init__(
        self,
        project: Project,
        tracks: tuple[tuple[ClipTiming, ...], ...],
        size: tuple[int, int],
        rate: Fraction,
        frames: int,
        output_format: str,
    ) -> None:
        self.project = project
        self.tracks = tracks
        self.size = size
        self.rate = rate
        self.frames = frames
        self.output_format = output_format


def _size(project: Project, output_format: str) -> tuple[int, int]:
    """Return the video's width and height, which are even for chroma subsampling except in a GIF."""
    if output_format == _GIF:
        return project.width, project.height
    return project.width + project.width % 2, project.height + project.height % 2


def _render(target: Path, plan: _RenderPlan, context: Context) -> None:
    if plan.output_format == _GIF:
        _render_gif(target, plan, context)
        return
    with ExitStack() as stack:
        writer = stack.enter_context(_writer(target, plan, stack))
        for number, planes in enumerate(_frames(plan), 1):
            writer.add(planes)
            context.progress(_DONE * number / plan.frames)


def _render_gif(target: Path, plan: _RenderPlan, context: Context) -> None:
    rendered = 0

    def frames() -> Iterator[Array]:
        nonlocal rendered
        for (pixels,) in _frames(plan):
            yield pixels
            rendered += 1
            context.progress(_DONE * rendered / (2 * plan.frames))

    write_gif(target, plan.size, plan.rate, frames)


def _frames(plan: _RenderPlan) -> Iterator[Planes]:
    with closing(Compositor(plan.project, plan.tracks, plan.size, FORMATS[plan.output_format])) as compositor:
        for number in range(plan.frames):
            yield compositor.frame(float(number / plan.rate))


def _writer(target: Path, plan: _RenderPlan, stack: ExitStack) -> VideoEncoder:
    audible = [shot for track in plan.tracks for shot in track if shot.kind in timeline.TIMED_KINDS]
    audible = [shot for shot in audible if shot.clip.volume > 0]
    audio = None
    if any(shot.kind == "audio" or clip_timing.has_audio(shot) for shot in audible):
        samples = round(plan.frames / plan.rate * AUDIO_RATE)
        mix = stack.enter_context(closing(TimelineMix(audible, samples)))
        audio = AudioSource(samples, mix.read)
    return VideoEncoder(target, plan.size, plan.rate, audio, encode.KINDS[plan.output_format], _THREADS)
