"""Graphs for images that a ComfyUI server can run with its models."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from sixfold.engines.providers.comfyui.capabilities import (
    CapabilityChoice,
    InstalledModels,
    ModelFamily,
    options,
)

Link = list[Any]  # [node id, slot]

# The lowest and highest area, as fractions of a family's training area; outside of them, subjects are
# duplicated or dissolve.
_AREA = (0.75, 1.5)
_ASPECT = 3.0
# If the area is enlarged by at least this factor, an available upscaler is used.
_UPSCALE_FROM = 1.7


class ImageSpec(msgspec.Struct, frozen=True):
    """The images to generate; `width` and `height` are in pixels.

    None and empty strings stand for the defaults of the model's family. `loras` are files with their weights.
    """

    prompt: str
    negative: str
    width: int
    height: int
    seed: int
    count: int = 1
    steps: int | None = None
    cfg: float | None = None
    sampler: str = ""
    scheduler: str = ""
    loras: tuple[tuple[str, float], ...] = ()


class ImageSource(msgspec.Struct, frozen=True):
    """An uploaded image by its name for LoadImage; `alpha` is set if parts of it are transparent."""

    name: str
    alpha: bool = False


class GraphBuilder(msgspec.Struct):
    """A graph under construction, with the ids of its sampler node (if any) and its output node."""

    nodes: dict[str, dict[str, Any]] = {}
    sampler: str = ""
    output: str = ""

    def add(self, class_type: str, **inputs: Any) -> str:
        node = str(len(self.nodes) + 1)
        self.nodes[node] = {"class_type": class_type, "inputs": inputs}
        return node

    def finish(self, image: Link) -> GraphBuilder:
        """Add the output node, which saves to a folder that ComfyUI empties itself; return the graph."""
        self.output = self.add("PreviewImage", images=image)
        return self


def work_size(width: int, height: int, family: ModelFamily, aspect: float = _ASPECT) -> tuple[int, int]:
    """Return the (width, height) to sample at: the requested shape, near the family's training area."""
    shape = min(max(width / height, 1 / aspect), aspect)
    low, high = (family.side**2 * share for share in _AREA)
    area = min(max(float(width * height), low), high)
    sampled = math.sqrt(area * shape)
    return _round_to(sampled, family.multiple), _round_to(sampled / shape, family.multiple)


def text_to_image(installed: InstalledModels, spec: ImageSpec, alone: int | None = None) -> GraphBuilder:
    """Return the graph for images of a prompt; the caller scales images that are smaller than requested.

    `alone` is the index of one image of the batch to generate by itself, from its noise in the batch.
    """
    graph, choice = GraphBuilder(), installed.choices[0]
    width, height = work_size(spec.width, spec.height, choice.family)
    model, clip, vae = _load(graph, choice, spec.loras)
    size = {"width": width, "height": height, "batch_size": spec.count}
    latent = graph.add(
        choice.family.latent if installed.has(choice.family.latent) else "EmptyLatentImage", **size
    )
    selected = _select(graph, [latent, 0], alone)
    image = _sample(graph, _ImageNodes(installed, choice.family, model, clip, vae), spec, selected, 1.0)
    return graph.finish(_enlarge(graph, installed, image, (width, height), spec))


def image_to_image(
    installed: InstalledModels, spec: ImageSpec, source: ImageSource, denoise: float, alone: int | None = None
) -> GraphBuilder:
    """Return the graph that repaints an image, from `denoise` 0 (keep) to 1 (ignore it).

    `alone` is as in `text_to_image`.
    """
    graph, choice = GraphBuilder(), installed.choices[0]
    # The whole source stays in the image, whatever its shape.
    width, height = work_size(spec.width, spec.height, choice.family, aspect=math.inf)
    model, clip, vae = _load(graph, choice, spec.loras)
    loaded, first = _load_source(graph, source)
    fitted = _scale(graph, first, width, height)
    latent: Link = [graph.add("VAEEncode", pixels=fitted, vae=vae), 0]
    if spec.count > 1:
        latent = [graph.add("RepeatLatentBatch", samples=latent, amount=spec.count), 0]
    selected = _select(graph, latent, alone)
    image = _sample(graph, _ImageNodes(installed, choice.family, model, clip, vae), spec, selected, denoise)
    image = _enlarge(graph, installed, image, (width, height), spec)
    return graph.finish(_with_alpha(graph, installed, image, source, loaded))


def fill(installed: InstalledModels, spec: ImageSpec, source: ImageSource, mask: str) -> GraphBuilder:
    """Return the graph that paints the white area of the mask, an uploaded image of the source's size."""
    graph, choice = GraphBuilder(), installed.choices[0]
    width, height = work_size(spec.width, spec.height, choice.family, aspect=math.inf)
    model, clip, vae = _load(graph, choice, spec.loras)
    _, first = _load_source(graph, source)
    encoded = graph.add("VAEEncode", pixels=_scale(graph, first, width, height), vae=vae)
    loaded = graph.add("LoadImageMask", image=mask, channel="red")
    latent: Link = [graph.add("SetLatentNoiseMask", samples=[encoded, 0], mask=[loaded, 0]), 0]
    image = _sample(graph, _ImageNodes(installed, choice.family, model, clip, vae), spec, latent, 1.0)
    return graph.finish(image)


def upscale(installed: InstalledModels, source: ImageSource, width: int, height: int) -> GraphBuilder:
    """Return the graph that enlarges an image to exactly this size with the server's upscaler."""
    graph = GraphBuilder()
    loaded, first = _load_source(graph, source)
    image = _scale(graph, _upscale(graph, installed, first), width, height)
    return graph.finish(_with_alpha(graph, installed, image, source, loaded))


class _ImageNodes(msgspec.Struct, frozen=True):
    installed: InstalledModels
    family: ModelFamily
    model: Link
    clip: Link
    vae: Link


def _load(
    graph: GraphBuilder, choice: CapabilityChoice, loras: tuple[tuple[str, float], ...]
) -> tuple[Link, Link, Link]:
    """Return links to the model, its text encoder and its VAE, with the LoRAs applied."""
    model, clip, vae = _load_parts(graph, choice)
    for file, weight in loras:
        strengths = {"strength_model": weight, "strength_clip": weight}
        node = graph.add("LoraLoader", model=model, clip=clip, lora_name=file, **strengths)
        model, clip = [node, 0], [node, 1]
    return model, clip, vae


def _load_parts(graph: GraphBuilder, choice: CapabilityChoice) -> tuple[Link, Link, Link]:
    if not choice.vae or choice.family.parts is None:
        node = graph.add("CheckpointLoaderSimple", ckpt_name=choice.file)
        return [node, 0], [node, 1], [node, 2]
    kind = choice.family.parts.type
    model = graph.add("UNETLoader", unet_name=choice.file, weight_dtype="default")
    first, *others = choice.clips
    if others:
        clip = graph.add("DualCLIPLoader", clip_name1=first, clip_name2=others[0], type=kind)
    else:
        clip = graph.add("CLIPLoader", clip_name=first, type=kind)
    return [model, 0], [clip, 0], [graph.add("VAELoader", vae_name=choice.vae), 0]


def _sample(graph: GraphBuilder, inputs: _ImageNodes, spec: ImageSpec, latent: Link, denoise: float) -> Link:
    family, installed = inputs.family, inputs.installed
    positive = graph.add("CLIPTextEncode", text=spec.prompt, clip=inputs.clip)
    cfg = family.cfg if spec.cfg is None else spec.cfg
    if cfg > 1 or not installed.has("ConditioningZeroOut"):
        negative = graph.add("CLIPTextEncode", text=spec.negative, clip=inputs.clip)
    else:
        # The sampler ignores the negative prompt, so encoding the prompt is not needed.
        negative = graph.add("ConditioningZeroOut", conditioning=[positive, 0])
    if family.guidance and installed.has("FluxGuidance"):
        positive = graph.add("FluxGuidance", conditioning=[positive, 0], guidance=family.guidance)
    model = inputs.model
    if family.shift and installed.has("ModelSamplingAuraFlow"):
        model = [graph.add("ModelSamplingAuraFlow", model=model, shift=family.shift), 0]
    graph.sampler = graph.add(
        "KSampler",
        model=model,
        positive=[positive, 0],
        negative=[negative, 0],
        latent_image=latent,
        seed=spec.seed,
        steps=spec.steps or family.steps,
        cfg=cfg,
        sampler_name=spec.sampler or _supported(installed, "sampler_name", family.sampler, "euler"),
        scheduler=spec.scheduler or _supported(installed, "scheduler", family.scheduler, "normal"),
        denoise=denoise,
    )
    return [graph.add("VAEDecode", samples=[graph.sampler, 0], vae=inputs.vae), 0]


def _select(graph: GraphBuilder, latent: Link, alone: int | None) -> Link:
    """Return a link to image `alone` of a batch, which keeps its noise, or to the batch if it is None."""
    if alone is None:
        return latent
    return [graph.add("LatentFromBatch", samples=latent, batch_index=alone, length=1), 0]


def _supported(installed: InstalledModels, name: str, value: str, fallback: str) -> str:
    """Return the sampler or scheduler `value` if the server has it, or else `fallback`."""
    return value if value in options(installed.schemas, "KSampler", name) else fallback


def _load_source(graph: GraphBuilder, source: ImageSource) -> tuple[str, Link]:
    """Return the id of the node that loads the source, and a link to its first image."""
    loaded = graph.add("LoadImage", image=source.name)
    return loaded, [graph.add("ImageFromBatch", image=[loaded, 0], batch_index=0, length=1), 0]


def _scale(graph: GraphBuilder, image: Link, width: int, height: int, crop: str = "disabled") -> Link:
    size = {"width": width, "height": height}
    return [graph.add("ImageScale", image=image, upscale_method="lanczos", crop=crop, **size), 0]


def _upscale(graph: GraphBuilder, installed: InstalledModels, image: Link) -> Link:
    loader = graph.add("UpscaleModelLoader", model_name=installed.upscaler)
    return [graph.add("ImageUpscaleWithModel", upscale_model=[loader, 0], image=image), 0]


def _enlarge(
    graph: GraphBuilder, installed: InstalledModels, image: Link, size: tuple[int, int], spec: ImageSpec
) -> Link:
    factor = spec.width * spec.height / (size[0] * size[1])
    if (
        factor < _UPSCALE_FROM
        or not installed.upscaler
        or not installed.has("ImageUpscaleWithModel", "ImageScale")
    ):
        return image
    return _scale(graph, _upscale(graph, installed, image), spec.width, spec.height, "center")


def _with_alpha(
    graph: GraphBuilder, installed: InstalledModels, image: Link, source: ImageSource, loaded: str
) -> Link:
    """Return a link to the image with the source's transparency; the node scales the mask to the image."""
    if not source.alpha or not installed.has("JoinImageWithAlpha"):
        return image
    return [graph.add("JoinImageWithAlpha", image=image, alpha=[loaded, 1]), 0]


def _round_to(length: float, multiple: int) -> int:
    return max(64, round(length / multiple) * multiple)
