"""The engine: films from words and from pictures, by a diffusion model's weights (Wan, LTX)."""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task
from sixfold.engines.audio.ambience import track
from sixfold.engines.image.diffusers import loading, options, placement
from sixfold.engines.image.diffusers.loading import LoadedPipeline
from sixfold.engines.video import dimensions, source_image, task_parser, timing
from sixfold.engines.video.diffusers import generation, profiles
from sixfold.engines.video.diffusers.generation import VideoPlan
from sixfold.engines.video.diffusers.profiles import VideoProfile
from sixfold.engines.video.task_parser import VideoTask

Array = NDArray[Any]

_PICTURES = ("image_url", "image")
_LOADED, _DENOISED = 0.02, 0.95  # progress when the pipeline is there, and when only encoding is left
_TOO_LARGE = "The film is too large for this machine's memory: ask for a shorter or a smaller one."
_WORDLESS = "the scene comes to life with gentle, natural movement"


class VideoDiffusersEngine:
    """Serves the models that make films; options are those of the picture engine."""

    name = "weights-film"
    version = "2"

    def __init__(self, **given: Any) -> None:
        self._options = options.parse(given)
        self._shelf = loading.PipelineCache(self._options)
        with suppress(EngineError):  # whoever asks for them will be told, in these very words
            self.load()

    def load(self) -> LoadedPipeline:
        """Have the weights at hand that serve whatever has none of its own; raises `EngineError`."""
        return self._shelf.get(self._options.source_of(""))

    def run(self, task: Task, context: Context) -> Result:
        """Make one film, exactly as long, as large and of as many frames as was asked for."""
        order = task_parser.read(task.inputs)
        loaded = self._shelf.get(self._options.source_of(task.model))
        profile = self.profile_of(loaded)
        pictures = () if task.inputs.get("by_words") else _PICTURES
        source = next((task.files[name] for name in pictures if name in task.files), None)
        picture = None if source is None else source_image.opened(source, max(profile.size_for((1920, 1080))))
        shape = None if picture is None else (picture.shape[1], picture.shape[0])
        size = order.size or dimensions.frame(order.resolution, dimensions.shape_of(order.aspect, shape))
        plan = _plan(task, order, profile, size)
        if picture is not None:
            plan = replace(plan, picture=source_image.covering(picture, plan.size))
        context.log(_introduced(loaded, plan))
        context.progress(_LOADED)
        target = context.scratch / "film.mp4"
        shot = _GeneratedShot(order, plan, size, target)
        self._made(loaded, profile, shot, context)
        rate = order.shown_rate
        info = {
            "width": size[0],
            "height": size[1],
            "duration": round(order.seconds, 3),
            "fps": float(rate) if rate.denominator > 1 else int(rate),
        }
        data: dict[str, Any] = {
            "seed": order.seed,
            "weights": loaded.source.name,
            "pipeline": type(loaded.pipeline).__name__,
            "steps": plan.steps,
        }
        if order.sound:
            data["sound"] = track.mix_of(order.prompt).told
        context.progress(1.0)
        return Result((Artifact("video/mp4", b"", info, target),), data, "full")

    def profile_of(self, loaded: LoadedPipeline) -> VideoProfile:
        """What loaded weights take, with the operator's word over it."""
        chosen = {"steps": self._options.steps, "guidance": self._options.guidance}
        given = loaded.source.record.get("sampling", {}) | {
            name: number for name, number in chosen.items() if number is not None
        }
        return profiles.of(loaded.pipeline, given)

    def _made(
        self, loaded: LoadedPipeline, profile: VideoProfile, shot: _GeneratedShot, context: Context
    ) -> None:
        """The film, written; once more with less on the device where memory ran out."""

        def step(fraction: float) -> None:
            context.progress(_LOADED + (_DENOISED - _LOADED) * fraction)

        while True:
            try:
                return shot.write(generation.frames(loaded, profile, shot.plan, step))
            except (torch.OutOfMemoryError, MemoryError) as error:
                placement.release(loaded.where.kind)
                if not loaded.offload_more():
                    raise EngineError(_TOO_LARGE) from error
                tiles = ", decoding in tiles" if loaded.tiled else ""
                context.log(f"out of memory: {loaded.offload} offload{tiles} from now on")


def _plan(task: Task, order: VideoTask, profile: VideoProfile, size: tuple[int, int]) -> VideoPlan:
    """What the pipeline makes: frames by number as they are asked for, by time at the model's own rate."""
    numbered = bool(task.inputs.get("num_frames"))
    rate = int(order.rate) if numbered else profile.rate
    steps, guidance = task.inputs.get("num_inference_steps"), task.inputs.get("guidance_scale")
    return VideoPlan(
        prompt=order.prompt or _WORDLESS,
        negative=order.negative or profile.negative,
        seed=order.seed,
        frames=order.frames if numbered else int(np.ceil(order.seconds * rate)) + 1,
        rate=rate,
        size=profile.size_for(size),
        steps=int(steps) if steps else profile.steps,
        guidance=float(guidance) if guidance is not None else profile.guidance,
        picture=None,
        cached=order.sparing,
    )


class _GeneratedShot:
    """One film on its way to its file."""

    def __init__(self, order: VideoTask, plan: VideoPlan, size: tuple[int, int], target: Path) -> None:
        self.order, self.plan, self.size, self.target = order, plan, size, target

    def write(self, made: Iterator[Array]) -> None:
        """Every frame at its moment, between two that were made where it falls there."""
        timing.write_video(made, Fraction(self.plan.rate), self.order, self.size, self.target)


def _introduced(loaded: LoadedPipeline, plan: VideoPlan) -> str:
    width, height = plan.size
    return (
        f"{type(loaded.pipeline).__name__} {loaded.source.name} on {loaded.where}: {plan.frames} frames of "
        f"{width} x {height}, {plan.steps} steps"
    )
