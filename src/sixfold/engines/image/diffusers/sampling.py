"""One denoising batch of several rows, each with its own prompt and seed."""

# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
import torch

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image.diffusers import placement, previews, profiles, prompts, task_parser, vae_guard
from sixfold.engines.image.diffusers.loading import LoadedPipeline
from sixfold.engines.image.diffusers.prompts import PromptEncoding
from sixfold.engines.image.diffusers.task_parser import Pixels, SamplingRecipe, SizeRow


class StepListener(Protocol):
    """Receives the progress and messages of a denoising batch."""

    def step(self, fraction: float) -> None:
        """Report progress from 0 to 1; an exception raised here ends the batch."""
        ...

    def due_previews(self, fraction: float) -> Sequence[int]:
        """Return the rows whose partial image is due at this progress."""
        ...

    def preview(self, row: int, image: bytes) -> None:
        """Show the partial image of a row."""
        ...

    def log(self, line: str) -> None: ...


class SamplingPlan(msgspec.Struct, frozen=True):
    """A recipe with the defaults of the pipeline applied; `output_size` is the size that is generated."""

    recipe: SamplingRecipe
    output_size: tuple[int, int]
    steps: int
    guidance: float
    negative: bool

    def describe(self, loaded: LoadedPipeline) -> str:
        """Return a summary for the log."""
        (width, height), (asked_width, asked_height) = self.output_size, self.recipe.size
        size = f"{width} x {height}"
        if self.output_size != self.recipe.size:
            size += f" for {asked_width} x {asked_height}"
        offload = "" if loaded.offload == "none" else f", {loaded.offload} offload"
        return (
            f"{type(loaded.pipeline).__name__} {loaded.source.name} on {loaded.where}{offload}: "
            f"{self.steps} steps, guidance {self.guidance:g}, {size}"
        )


def plan(loaded: LoadedPipeline, recipe: SamplingRecipe) -> SamplingPlan:
    """Return the plan of a recipe, completed with the model's defaults."""
    profile = loaded.profile
    steps = recipe.steps or profile.steps
    if recipe.from_image:
        # Only `strength * steps` steps are run, and at least one is required.
        steps = max(steps, int(np.ceil(1 / recipe.strength)))
    guidance = profile.guidance if recipe.guidance is None else recipe.guidance
    negative = recipe.negative and profile.negative and guidance > 1
    return SamplingPlan(recipe, profile.side_in(*recipe.size), steps, guidance, negative)


def sample(
    loaded: LoadedPipeline,
    plan: SamplingPlan,
    rows: Sequence[SizeRow],
    encodings: Sequence[PromptEncoding],
    listener: StepListener,
) -> list[Pixels | EngineError]:
    """Return for each row an image of the requested size, or the error that prevented it."""
    recipe = plan.recipe
    control = recipe.control
    kind = control.kind if control else ""
    pipeline = loaded.pipeline_for(image=recipe.from_image, mask=recipe.masked, control=kind)
    tiled = loaded.tiled or placement.must_tile(
        pipeline, loaded.where, plan.output_size, placement.free_bytes(loaded.where.kind)
    )
    placement.tile(pipeline, tiled)
    arguments = _arguments(pipeline, loaded, plan, rows, encodings)
    # Decoding during denoising would move offloaded weights, and a filled area is not the whole image.
    can_preview = loaded.offload == "none" and not recipe.masked
    size = plan.output_size if can_preview else None
    arguments["callback_on_step_end"] = _step_callback(listener, plan.steps, size)
    arguments["callback_on_step_end_tensor_inputs"] = ["latents"] if can_preview else []
    checker = getattr(pipeline, "safety_checker", None)
    if checker is not None and not recipe.safety:
        pipeline.safety_checker = None
    try:
        with vae_guard.guard_decoding(pipeline.vae) as watch:
            output = pipeline(
                **{name: value for name, value in arguments.items() if profiles.takes(pipeline, name)}
            )
    except BaseException:
        # The pipeline was interrupted before its cleanup.
        pipeline.maybe_free_model_hooks()
        raise
    finally:
        if checker is not None and not recipe.safety:
            pipeline.safety_checker = checker
    if watch.again:
        listener.log(
            f"decoding failed for {watch.again} of {len(rows)} images; they were decoded again in float32"
        )
    unsafe = getattr(output, "nsfw_content_detected", None) or [False] * len(rows)
    pixels = (output.images.clamp(0, 1) * 255).round().nan_to_num(0).to(torch.uint8)
    images = pixels.movedim(1, -1).cpu().numpy()
    return [
        _checked_image(image, fault, is_unsafe, recipe.size)
        for image, fault, is_unsafe in zip(images, watch.faults, unsafe, strict=True)
    ]


def _checked_image(
    image: Any, fault: str | None, unsafe: bool, size: tuple[int, int]
) -> Pixels | EngineError:
    if unsafe:
        return EngineError("The model's safety checker rejected this image.")
    if fault is not None:
        return EngineError(f"The model returned {fault}: try another seed or fewer LoRAs.")
    return task_parser.fit(image, size)


def _step_callback(
    listener: StepListener, steps: int, preview_size: tuple[int, int] | None
) -> Callable[..., dict[str, Any]]:
    """Return the callback of a pipeline; it shows partial images only if `preview_size` is set."""

    def on_step_end(pipeline: Any, index: int, _timestep: Any, tensors: Any) -> dict[str, Any]:
        fraction = (index + 1) / max(index + 1, getattr(pipeline, "num_timesteps", steps))
        listener.step(fraction)
        if preview_size is not None and fraction < 1:
            for row in listener.due_previews(fraction):
                latents = tensors["latents"][row : row + 1]
                if (image := _preview(pipeline, latents, preview_size, listener)) is not None:
                    listener.preview(row, image)
        return {}

    return on_step_end


def _preview(
    pipeline: Any, latents: torch.Tensor, size: tuple[int, int], listener: StepListener
) -> bytes | None:
    try:
        return previews.decode(pipeline, latents, size)
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:
        # The pipeline may be of any class, and a failed partial image must not fail the run.
        listener.log(f"a partial image could not be decoded ({type(error).__name__})")
        return None


def _arguments(
    pipeline: Any,
    loaded: LoadedPipeline,
    plan: SamplingPlan,
    rows: Sequence[SizeRow],
    encodings: Sequence[PromptEncoding],
) -> dict[str, Any]:
    """Return the arguments for a pipeline of any class; the caller drops those it does not accept."""
    width, height = plan.output_size
    arguments: dict[str, Any] = {
        "width": width,
        "height": height,
        "num_inference_steps": plan.steps,
        "guidance_scale": plan.guidance,
        # Noise is drawn on the CPU, so the same seed gives the same noise on every device.
        "generator": [torch.Generator("cpu").manual_seed(row.seed) for row in rows],
        "output_type": "pt",
    }
    if loaded.profile.sequence:
        arguments["max_sequence_length"] = loaded.profile.sequence
    if encodings[0].length > 1:
        guided = plan.guidance > 1
        arguments |= prompts.embeddings(pipeline, encodings, guided=guided, negative=plan.negative)
    else:
        arguments["prompt"] = [row.prompt for row in rows]
        if plan.negative:
            arguments["negative_prompt"] = [row.negative for row in rows]
    return arguments | _image_arguments(plan, rows)


def _image_arguments(plan: SamplingPlan, rows: Sequence[SizeRow]) -> dict[str, Any]:
    """Return the source images, masks and control images of the rows, each as one tensor."""
    recipe, arguments = plan.recipe, dict[str, Any]()
    if recipe.control is not None:
        stacked = _stack([row.control for row in rows], plan.output_size)
        arguments["control_image" if recipe.from_image else "image"] = stacked
        arguments |= {
            "controlnet_conditioning_scale": recipe.control.scale,
            "control_guidance_start": recipe.control.start,
            "control_guidance_end": recipe.control.end,
        }
    if recipe.from_image:
        arguments["image"] = _stack([row.image for row in rows], plan.output_size)
        arguments["strength"] = recipe.strength
    if recipe.masked:
        arguments["mask_image"] = _stack([row.mask for row in rows], plan.output_size)
    return arguments


def _stack(images: Sequence[Pixels | None], size: tuple[int, int]) -> torch.Tensor:
    """Return images (HxWx3) or masks (HxW) scaled to one size as a tensor, Nx3xHxW or Nx1xHxW from 0 to 1."""
    fitted = [task_parser.fit(image, size) for image in images if image is not None]
    stacked = torch.from_numpy(np.stack(fitted)).float() / 255
    return stacked[:, None] if stacked.ndim == 3 else stacked.movedim(-1, 1)
