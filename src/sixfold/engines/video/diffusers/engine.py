"""Engine for text-to-video and image-to-video with the weights of a diffusion model (Wan, LTX)."""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec.structs import replace
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

_IMAGE_INPUTS = ("image_url", "image")
# Progress after loading the pipeline, and before encoding.
_LOADED, _DENOISED = 0.02, 0.95
_TOO_LARGE = "The video does not fit into this machine's memory: request a shorter or smaller one."
_DEFAULT_PROMPT = "the scene comes to life with gentle, natural movement"


class VideoDiffusersEngine:
    """Serves video models; the options are those of the image engine."""

    name = "weights-film"
    version = "2"

    def __init__(self, **values: Any) -> None:
        self._options = options.parse(values)
        self._pipelines = loading.PipelineCache(self._options)
        # A loading error is raised again, with the same message, when the weights are used.
        with suppress(EngineError):
            self.load()

    def load(self) -> LoadedPipeline:
        """Return the default weights, loading them if necessary; raises `EngineError`."""
        return self._pipelines.get(self._options.source_of(""))

    def run(self, task: Task, context: Context) -> Result:
        """Generate a video of exactly the requested length, size and frame count."""
        request = task_parser.parse(task.inputs)
        loaded = self._pipelines.get(self._options.source_of(task.model))
        profile = self.profile_of(loaded)
        names = () if task.inputs.get("by_words") else _IMAGE_INPUTS
        source = next((task.files[name] for name in names if name in task.files), None)
        image = None if source is None else source_image.open_rgb(source, max(profile.size_for((1920, 1080))))
        shape = None if image is None else (image.shape[1], image.shape[0])
        size = request.size or dimensions.frame(
            request.resolution, dimensions.aspect_ratio(request.aspect, shape)
        )
        plan = _plan(task, request, profile, size)
        if image is not None:
            plan = replace(plan, image=source_image.crop_to_fill(image, plan.size))
        context.log(_describe(loaded, plan))
        context.progress(_LOADED)
        target = context.scratch / "video.mp4"
        shot = _GeneratedShot(request, plan, size, target)
        self._generate(loaded, profile, shot, context)
        rate = request.output_rate
        info = {
            "width": size[0],
            "height": size[1],
            "duration": round(request.seconds, 3),
            "fps": float(rate) if rate.denominator > 1 else int(rate),
        }
        data: dict[str, Any] = {
            "seed": request.seed,
            "weights": loaded.source.name,
            "pipeline": type(loaded.pipeline).__name__,
            "steps": plan.steps,
        }
        if request.sound:
            data["sound"] = track.mix_of(request.prompt).description
        context.progress(1.0)
        return Result((Artifact("video/mp4", b"", info, target),), data, "full")

    def profile_of(self, loaded: LoadedPipeline) -> VideoProfile:
        """Return the profile of loaded weights, with the operator's options applied."""
        option_values = {"steps": self._options.steps, "guidance": self._options.guidance}
        overrides = loaded.source.record.get("sampling", {}) | {
            name: number for name, number in option_values.items() if number is not None
        }
        return profiles.of(loaded.pipeline, overrides)

    def _generate(
        self, loaded: LoadedPipeline, profile: VideoProfile, shot: _GeneratedShot, context: Context
    ) -> None:
        """Write the video; if memory runs out, retry with more offloading."""

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


def _plan(task: Task, request: VideoTask, profile: VideoProfile, size: tuple[int, int]) -> VideoPlan:
    """Plan the requested number of frames, or the requested duration at the model's frame rate."""
    exact = bool(task.inputs.get("num_frames"))
    rate = int(request.rate) if exact else profile.rate
    steps, guidance = task.inputs.get("num_inference_steps"), task.inputs.get("guidance_scale")
    return VideoPlan(
        prompt=request.prompt or _DEFAULT_PROMPT,
        negative=request.negative or profile.negative,
        seed=request.seed,
        frames=request.frames if exact else int(np.ceil(request.seconds * rate)) + 1,
        rate=rate,
        size=profile.size_for(size),
        steps=int(steps) if steps else profile.steps,
        guidance=float(guidance) if guidance is not None else profile.guidance,
        image=None,
        cached=request.reuse_frames,
    )


class _GeneratedShot:
    def __init__(self, request: VideoTask, plan: VideoPlan, size: tuple[int, int], target: Path) -> None:
        self.request, self.plan, self.size, self.target = request, plan, size, target

    def write(self, frames: Iterator[Array]) -> None:
        timing.write_video(frames, Fraction(self.plan.rate), self.request, self.size, self.target)


def _describe(loaded: LoadedPipeline, plan: VideoPlan) -> str:
    width, height = plan.size
    return (
        f"{type(loaded.pipeline).__name__} {loaded.source.name} on {loaded.where}: {plan.frames} frames of "
        f"{width} x {height}, {plan.steps} steps"
    )
