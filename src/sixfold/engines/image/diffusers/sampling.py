"""One denoising loop for several rows, each with its own words and its own seed."""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image.diffusers import placement, profiles, prompts, task_parser, vae_guard
from sixfold.engines.image.diffusers.loading import LoadedPipeline
from sixfold.engines.image.diffusers.prompts import PromptEncoding
from sixfold.engines.image.diffusers.task_parser import Pixels, SamplingRecipe, SizeRow


class StepListener(Protocol):
    """Is told of the progress of a sampling loop."""

    def step(self, fraction: float) -> None:
        """So much is done, from 0 to 1; what this raises ends the loop."""
        ...

    def log(self, line: str) -> None:
        """Something was done otherwise than planned."""
        ...


@dataclass(frozen=True, slots=True)
class SamplingPlan:
    """A recipe as this pipeline will run it; `made` is the size that comes out of it."""

    recipe: SamplingRecipe
    made: tuple[int, int]
    steps: int
    guidance: float
    negative: bool

    def words(self, loaded: LoadedPipeline) -> str:
        """For the log."""
        (width, height), (asked_width, asked_height) = self.made, self.recipe.size
        size = f"{width} x {height}"
        if self.made != self.recipe.size:
            size += f" for {asked_width} x {asked_height}"
        offload = "" if loaded.offload == "none" else f", {loaded.offload} offload"
        return (
            f"{type(loaded.pipeline).__name__} {loaded.source.name} on {loaded.where}{offload}: "
            f"{self.steps} steps, guidance {self.guidance:g}, {size}"
        )


def plan(loaded: LoadedPipeline, recipe: SamplingRecipe) -> SamplingPlan:
    """What the recipe leaves open, from the model's profile."""
    profile = loaded.profile
    steps = recipe.steps or profile.steps
    if recipe.from_image:  # only strength x steps of them are taken, and at least one must be
        steps = max(steps, int(np.ceil(1 / recipe.strength)))
    guidance = profile.guidance if recipe.guidance is None else recipe.guidance
    negative = recipe.negative and profile.negative and guidance > 1
    return SamplingPlan(recipe, profile.side_in(*recipe.size), steps, guidance, negative)


def sample(
    loaded: LoadedPipeline,
    plan: SamplingPlan,
    rows: Sequence[SizeRow],
    readings: Sequence[PromptEncoding],
    listener: StepListener,
) -> list[Pixels | EngineError]:
    """An image of the asked size for each row, or why there is none."""
    recipe = plan.recipe
    control = recipe.control
    pipeline = loaded.pipeline_for(image=recipe.from_image, control=control.kind if control else "")
    tiled = loaded.tiled or placement.must_tile(
        pipeline, loaded.where, plan.made, placement.free_bytes(loaded.where.kind)
    )
    placement.tile(pipeline, tiled)
    arguments = _arguments(pipeline, loaded, plan, rows, readings)
    arguments["callback_on_step_end"] = _heard(listener, plan.steps)
    arguments["callback_on_step_end_tensor_inputs"] = []
    checker = getattr(pipeline, "safety_checker", None)
    if checker is not None and not recipe.safety:
        pipeline.safety_checker = None
    try:
        with vae_guard.watched(pipeline.vae) as watch:
            given = pipeline(
                **{name: value for name, value in arguments.items() if profiles.takes(pipeline, name)}
            )
    except BaseException:
        pipeline.maybe_free_model_hooks()  # the loop did not come to its own
        raise
    finally:
        if checker is not None and not recipe.safety:
            pipeline.safety_checker = checker
    if watch.again:
        listener.log(f"{watch.again} of {len(rows)} pictures broke in decoding; decoded again in float32")
    unsafe = getattr(given, "nsfw_content_detected", None) or [False] * len(rows)
    pixels = (given.images.clamp(0, 1) * 255).round().nan_to_num(0).to(torch.uint8)
    pictures = pixels.movedim(1, -1).cpu().numpy()
    return [
        _verdict(picture, fault, is_unsafe, recipe.size)
        for picture, fault, is_unsafe in zip(pictures, watch.faults, unsafe, strict=True)
    ]


def _verdict(picture: Any, fault: str | None, unsafe: bool, size: tuple[int, int]) -> Pixels | EngineError:
    if unsafe:
        return EngineError("The model's safety checker held this picture back.")
    if fault is not None:
        return EngineError(f"The model gave {fault}, and decoding it in float32 did not help.")
    return task_parser.fitted(picture, size)


def _heard(listener: StepListener, steps: int) -> Callable[..., dict[str, Any]]:
    def on_step_end(pipeline: Any, index: int, _timestep: Any, _tensors: Any) -> dict[str, Any]:
        listener.step((index + 1) / max(index + 1, getattr(pipeline, "num_timesteps", steps)))
        return {}

    return on_step_end


def _arguments(
    pipeline: Any,
    loaded: LoadedPipeline,
    plan: SamplingPlan,
    rows: Sequence[SizeRow],
    readings: Sequence[PromptEncoding],
) -> dict[str, Any]:
    """Everything a pipeline of any class may be told; the caller leaves out what this one does not take."""
    width, height = plan.made
    arguments: dict[str, Any] = {
        "width": width,
        "height": height,
        "num_inference_steps": plan.steps,
        "guidance_scale": plan.guidance,
        # on the processor: the same seed gives the same noise on every device
        "generator": [torch.Generator("cpu").manual_seed(row.seed) for row in rows],
        "output_type": "pt",
    }
    if loaded.profile.sequence:
        arguments["max_sequence_length"] = loaded.profile.sequence
    if readings[0].length > 1:
        guided = plan.guidance > 1
        arguments |= prompts.embeddings(pipeline, readings, guided=guided, negative=plan.negative)
    else:
        arguments["prompt"] = [row.prompt for row in rows]
        if plan.negative:
            arguments["negative_prompt"] = [row.negative for row in rows]
    return arguments | _pictures(plan, rows)


def _pictures(plan: SamplingPlan, rows: Sequence[SizeRow]) -> dict[str, Any]:
    """The images that rows start from or are led by, as one tensor each."""
    recipe, arguments = plan.recipe, dict[str, Any]()
    if recipe.control is not None:
        stacked = _stacked([row.control for row in rows], plan.made)
        arguments["control_image" if recipe.from_image else "image"] = stacked
        arguments |= {
            "controlnet_conditioning_scale": recipe.control.scale,
            "control_guidance_start": recipe.control.start,
            "control_guidance_end": recipe.control.end,
        }
    if recipe.from_image:
        arguments["image"] = _stacked([row.image for row in rows], plan.made)
        arguments["strength"] = recipe.strength
    return arguments


def _stacked(pictures: Sequence[Pixels | None], size: tuple[int, int]) -> torch.Tensor:
    """Images of one size as a tensor, Nx3xHxW from 0 to 1."""
    fitted = [task_parser.fitted(picture, size) for picture in pictures if picture is not None]
    return torch.from_numpy(np.stack(fitted)).movedim(-1, 1).float() / 255
