"""What is asked of us as a graph that a ComfyUI server can run with the models that it has."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from sixfold.engines.providers.comfyui.capabilities import (
    CapabilityChoice,
    InstalledModels,
    ModelFamily,
    options,
)

Link = list[Any]  # [node id, slot]

_AREA = (0.75, 1.5)  # of what a family was trained on; beyond, subjects double or dissolve
_ASPECT = 3.0
_ENLARGE_FROM = 1.7  # times the area: from here on an upscaler, where there is one, instead of a stretch


@dataclass(frozen=True, slots=True)
class ImageWish:
    """What the caller wants: words, pixels across and down, a seed and how many."""

    prompt: str
    negative: str
    width: int
    height: int
    seed: int
    count: int = 1


@dataclass(frozen=True, slots=True)
class ImageSource:
    """A picture that was uploaded, as LoadImage names it; `alpha` where some of it is transparent."""

    name: str
    alpha: bool = False


@dataclass(slots=True)
class GraphBuilder:
    """A graph on its way: its nodes, the one that samples (if any) and the one that gives the pictures."""

    nodes: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    sampler: str = ""
    output: str = ""

    def add(self, class_type: str, **inputs: Any) -> str:
        """Add a node and give its id."""
        node = str(len(self.nodes) + 1)
        self.nodes[node] = {"class_type": class_type, "inputs": inputs}
        return node

    def give(self, image: Link) -> GraphBuilder:
        """Let the pictures out, into the folder that ComfyUI empties itself."""
        self.output = self.add("PreviewImage", images=image)
        return self


def work_size(width: int, height: int, family: ModelFamily, aspect: float = _ASPECT) -> tuple[int, int]:
    """The size to sample at: the asked shape, near the area that the family was trained on."""
    shape = min(max(width / height, 1 / aspect), aspect)
    low, high = (family.side**2 * share for share in _AREA)
    area = min(max(float(width * height), low), high)
    across = math.sqrt(area * shape)
    return _stepped(across, family.multiple), _stepped(across / shape, family.multiple)


def text_to_image(stock: InstalledModels, wish: ImageWish, alone: int | None = None) -> GraphBuilder:
    """Pictures of a prompt; where they come smaller than asked, the caller of this brings them to size.

    `alone`: only the picture of this place in the batch, from the noise that it has there.
    """
    plan, choice = GraphBuilder(), stock.choices[0]
    width, height = work_size(wish.width, wish.height, choice.family)
    model, clip, vae = _loaded(plan, choice)
    size = {"width": width, "height": height, "batch_size": wish.count}
    latent = plan.add(choice.family.latent if stock.has(choice.family.latent) else "EmptyLatentImage", **size)
    picked = _picked(plan, [latent, 0], alone)
    image = _sampled(plan, _ImageNodes(stock, choice.family, model, clip, vae), wish, picked, 1.0)
    return plan.give(_enlarged(plan, stock, image, (width, height), wish))


def image_to_image(
    stock: InstalledModels, wish: ImageWish, source: ImageSource, denoise: float, alone: int | None = None
) -> GraphBuilder:
    """A picture repainted: `denoise` from 0 to 1 is how far it is left behind; `alone` as above."""
    plan, choice = GraphBuilder(), stock.choices[0]
    # The whole source stays in the picture, whatever its shape.
    width, height = work_size(wish.width, wish.height, choice.family, aspect=math.inf)
    model, clip, vae = _loaded(plan, choice)
    loaded, first = _source(plan, source)
    fitted = _scaled(plan, first, width, height)
    latent: Link = [plan.add("VAEEncode", pixels=fitted, vae=vae), 0]
    if wish.count > 1:
        latent = [plan.add("RepeatLatentBatch", samples=latent, amount=wish.count), 0]
    picked = _picked(plan, latent, alone)
    image = _sampled(plan, _ImageNodes(stock, choice.family, model, clip, vae), wish, picked, denoise)
    image = _enlarged(plan, stock, image, (width, height), wish)
    return plan.give(_with_alpha(plan, stock, image, source, loaded))


def upscale(stock: InstalledModels, source: ImageSource, width: int, height: int) -> GraphBuilder:
    """A picture enlarged to exactly this size by the server's upscaler."""
    plan = GraphBuilder()
    loaded, first = _source(plan, source)
    image = _scaled(plan, _upscaled(plan, stock, first), width, height)
    return plan.give(_with_alpha(plan, stock, image, source, loaded))


@dataclass(frozen=True, slots=True)
class _ImageNodes:
    """What sampling needs, as links."""

    stock: InstalledModels
    family: ModelFamily
    model: Link
    clip: Link
    vae: Link


def _loaded(plan: GraphBuilder, choice: CapabilityChoice) -> tuple[Link, Link, Link]:
    """Links to the model, its text encoder and its VAE."""
    if not choice.vae or choice.family.parts is None:
        node = plan.add("CheckpointLoaderSimple", ckpt_name=choice.file)
        return [node, 0], [node, 1], [node, 2]
    kind = choice.family.parts.type
    model = plan.add("UNETLoader", unet_name=choice.file, weight_dtype="default")
    first, *others = choice.clips
    if others:
        clip = plan.add("DualCLIPLoader", clip_name1=first, clip_name2=others[0], type=kind)
    else:
        clip = plan.add("CLIPLoader", clip_name=first, type=kind)
    return [model, 0], [clip, 0], [plan.add("VAELoader", vae_name=choice.vae), 0]


def _sampled(plan: GraphBuilder, means: _ImageNodes, wish: ImageWish, latent: Link, denoise: float) -> Link:
    family, stock = means.family, means.stock
    positive = plan.add("CLIPTextEncode", text=wish.prompt, clip=means.clip)
    if family.cfg > 1 or not stock.has("ConditioningZeroOut"):
        negative = plan.add("CLIPTextEncode", text=wish.negative, clip=means.clip)
    else:  # not looked at, so it need not be encoded
        negative = plan.add("ConditioningZeroOut", conditioning=[positive, 0])
    if family.guidance and stock.has("FluxGuidance"):
        positive = plan.add("FluxGuidance", conditioning=[positive, 0], guidance=family.guidance)
    model = means.model
    if family.shift and stock.has("ModelSamplingAuraFlow"):
        model = [plan.add("ModelSamplingAuraFlow", model=model, shift=family.shift), 0]
    plan.sampler = plan.add(
        "KSampler",
        model=model,
        positive=[positive, 0],
        negative=[negative, 0],
        latent_image=latent,
        seed=wish.seed,
        steps=family.steps,
        cfg=family.cfg,
        sampler_name=_known(stock, "sampler_name", family.sampler, "euler"),
        scheduler=_known(stock, "scheduler", family.scheduler, "normal"),
        denoise=denoise,
    )
    return [plan.add("VAEDecode", samples=[plan.sampler, 0], vae=means.vae), 0]


def _picked(plan: GraphBuilder, latent: Link, alone: int | None) -> Link:
    """One place of a batch; the sampler gives it the noise of that place."""
    if alone is None:
        return latent
    return [plan.add("LatentFromBatch", samples=latent, batch_index=alone, length=1), 0]


def _known(stock: InstalledModels, name: str, wanted: str, otherwise: str) -> str:
    """A sampler or scheduler that came with a later ComfyUI than this has an older one in its place."""
    return wanted if wanted in options(stock.schemas, "KSampler", name) else otherwise


def _source(plan: GraphBuilder, source: ImageSource) -> tuple[str, Link]:
    """The node that loads the source, and its first picture alone."""
    loaded = plan.add("LoadImage", image=source.name)
    return loaded, [plan.add("ImageFromBatch", image=[loaded, 0], batch_index=0, length=1), 0]


def _scaled(plan: GraphBuilder, image: Link, width: int, height: int, crop: str = "disabled") -> Link:
    size = {"width": width, "height": height}
    return [plan.add("ImageScale", image=image, upscale_method="lanczos", crop=crop, **size), 0]


def _upscaled(plan: GraphBuilder, stock: InstalledModels, image: Link) -> Link:
    loader = plan.add("UpscaleModelLoader", model_name=stock.upscaler)
    return [plan.add("ImageUpscaleWithModel", upscale_model=[loader, 0], image=image), 0]


def _enlarged(
    plan: GraphBuilder, stock: InstalledModels, image: Link, size: tuple[int, int], wish: ImageWish
) -> Link:
    grows = wish.width * wish.height / (size[0] * size[1])
    if grows < _ENLARGE_FROM or not stock.upscaler or not stock.has("ImageUpscaleWithModel", "ImageScale"):
        return image
    return _scaled(plan, _upscaled(plan, stock, image), wish.width, wish.height, "center")


def _with_alpha(
    plan: GraphBuilder, stock: InstalledModels, image: Link, source: ImageSource, loaded: str
) -> Link:
    """The source's transparency on the result; the node brings the mask to the picture's size itself."""
    if not source.alpha or not stock.has("JoinImageWithAlpha"):
        return image
    return [plan.add("JoinImageWithAlpha", image=image, alpha=[loaded, 1]), 0]


def _stepped(length: float, multiple: int) -> int:
    return max(64, round(length / multiple) * multiple)
