"""What a ComfyUI server has, and what it can therefore serve."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import httpx

from sixfold.clients import local_servers
from sixfold.clients.comfyui import errors as comfyui_errors
from sixfold.clients.comfyui.errors import ComfyError, ComfyTimeout
from sixfold.clients.comfyui.server import ComfyLimits, ComfyServer, ComfyStats
from sixfold.core.humanize import seconds_text
from sixfold.engines.providers.comfyui import video_graphs as reels
from sixfold.engines.providers.comfyui.files import Schemas, base, first, options, pinned, words
from sixfold.engines.providers.comfyui.video_graphs import VideoGraphs

TEXT_TO_IMAGE, IMAGE_TO_IMAGE, UPSCALE = "text-to-image", "image-to-image", "upscale"
DEFAULT_URL = local_servers.COMFYUI.url
_ROUNDS = 3  # of requests that follow one another: the system, the node classes, the checkpoints

# Every class that a graph of ours may name.
CLASSES = (
    "CheckpointLoaderSimple",
    "UNETLoader",
    "CLIPLoader",
    "DualCLIPLoader",
    "VAELoader",
    "CLIPTextEncode",
    "ConditioningZeroOut",
    "FluxGuidance",
    "ModelSamplingAuraFlow",
    "EmptyLatentImage",
    "EmptySD3LatentImage",
    "KSampler",
    "VAEEncode",
    "VAEDecode",
    "RepeatLatentBatch",
    "LatentFromBatch",
    "LoadImage",
    "ImageFromBatch",
    "ImageScale",
    "JoinImageWithAlpha",
    "UpscaleModelLoader",
    "ImageUpscaleWithModel",
    "PreviewImage",
    *reels.CLASSES,
)
_NEEDED = frozenset({"CLIPTextEncode", "KSampler", "VAEDecode", "PreviewImage"})
_MAX_ASKED = 16  # checkpoints whose names say nothing, and that are asked for their architecture
_STEPS = re.compile(r"(\d+) ?steps?\b")
_NO_MODEL = (
    "ComfyUI has no model for pictures: put a checkpoint such as sd_xl_base_1.0.safetensors into its "
    "folder models/checkpoints."
)
_NO_UPSCALER = (
    "ComfyUI has no model for upscaling: put one such as RealESRGAN_x4plus.safetensors into its folder "
    "models/upscale_models."
)

NOT_THERE = "ComfyUI does not have the model {} that this engine is set to."


@dataclass(frozen=True, slots=True)
class ModelParts:
    """What a model needs that is not a whole checkpoint; `clips` and `vae` match files' names."""

    clips: tuple[str, ...]
    type: str
    vae: str
    get: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """How a kind of model is run: a row of `data/comfyui.toml`, which explains the fields."""

    name: str
    match: str
    rank: int
    side: int
    steps: int
    cfg: float
    sampler: str
    scheduler: str
    guidance: float = 0.0
    shift: float = 0.0
    multiple: int = 8
    latent: str = "EmptyLatentImage"
    parts: ModelParts | None = None


@dataclass(frozen=True, slots=True)
class CapabilityChoice:
    """A model that is there, with its family; without a `vae` it is a whole checkpoint."""

    file: str
    family: ModelFamily
    clips: tuple[str, ...] = ()
    vae: str = ""


@dataclass(frozen=True, slots=True)
class InstalledModels:
    """What was read of a server: schemas by class, models (best first), an upscaler or none, and films."""

    stats: ComfyStats
    schemas: Schemas
    choices: tuple[CapabilityChoice, ...]
    upscaler: str
    missing: Mapping[str, str] = field(default_factory=dict[str, str])
    films: VideoGraphs = field(default_factory=VideoGraphs)

    def has(self, *classes: str) -> bool:
        """Whether the server knows these node classes."""
        return all(name in self.schemas for name in classes)

    def pinned(self, file: str) -> InstalledModels:
        """The same with one model alone; raises `ComfyError` where it is not there."""
        there = pinned(file, (choice.file for choice in self.choices))
        if there is None:
            raise ComfyError(NOT_THERE.format(file))
        return dataclasses.replace(self, choices=tuple(c for c in self.choices if c.file == there))

    @property
    def serves(self) -> dict[str, str]:
        """What it can do, each with the model's file that does it."""
        model = self.choices[0].file if self.choices else ""
        does = {TEXT_TO_IMAGE: model, IMAGE_TO_IMAGE: model, UPSCALE: self.upscaler, **self.films.serves}
        return {capability: file for capability, file in does.items() if capability not in self.missing}


@dataclass(frozen=True, slots=True)
class FoundModels:
    """What a probe learnt. `problem` says why nothing was found; `missing` what to put where.

    `slow`: somebody is there, and did not answer in time; a server that loads a model does not.
    `models` are the files that can make pictures, the best first, `films` those that can make films;
    `serves` maps `text-to-image`, `image-to-image`, `upscale`, `text-to-film` and `image-to-film` to the
    model's file that does it.
    """

    url: str
    problem: str = ""
    slow: bool = False
    version: str = ""
    device: str = ""
    memory_bytes: int = 0
    memory_free_bytes: int = 0
    models: tuple[str, ...] = ()
    films: tuple[str, ...] = ()
    serves: Mapping[str, str] = field(default_factory=dict[str, str])
    missing: Mapping[str, str] = field(default_factory=dict[str, str])


async def probe(client: httpx.AsyncClient, url: str = DEFAULT_URL, *, seconds: float = 2.0) -> FoundModels:
    """What a ComfyUI at `url` could serve; never raises for what answers there, or does not.

    `seconds` limits each answer. The whole may take as long as `_ROUNDS` answers that follow one another.
    """
    try:
        server = ComfyServer(client, url, ComfyLimits(connect_seconds=seconds, answer_seconds=seconds))
        async with asyncio.timeout(_ROUNDS * seconds):
            stock = await read(server)
    except ComfyError as error:
        return FoundModels(url, str(error), slow=isinstance(error, ComfyTimeout))
    except TimeoutError:
        return FoundModels(
            url, f"ComfyUI did not answer within {seconds_text(_ROUNDS * seconds)}.", slow=True
        )
    stats = stock.stats
    return FoundModels(
        server.url,
        version=stats.version,
        device=stats.device,
        memory_bytes=stats.memory_bytes,
        memory_free_bytes=stats.memory_free_bytes,
        models=tuple(choice.file for choice in stock.choices),
        films=tuple(choice.file for choice in stock.films.choices),
        serves=stock.serves,
        missing=stock.missing,
    )


async def read(server: ComfyServer) -> InstalledModels:
    """Ask a server what it is and has; a few dozen small calls, instead of one of megabytes."""
    stats = await server.stats()
    answers = await asyncio.gather(*(server.object_info(name) for name in CLASSES))
    schemas = {name: schema for answer in answers for name, schema in answer.items() if name in CLASSES}
    with comfyui_errors.understood():
        checkpoints = options(schemas, "CheckpointLoaderSimple", "ckpt_name")
    stated = await _architectures(server, checkpoints)
    with comfyui_errors.understood():
        return _sorted(stats, schemas, {file: family_of(file, stated.get(file, "")) for file in checkpoints})


def _sorted(stats: ComfyStats, schemas: Schemas, known: Mapping[str, ModelFamily | None]) -> InstalledModels:
    whole = [CapabilityChoice(file, family) for file, family in known.items() if family is not None]
    split, lacking = _split_sets(schemas)
    choices = tuple(sorted([*whole, *split], key=lambda choice: -choice.family.rank))
    upscaler = _upscaler(options(schemas, "UpscaleModelLoader", "model_name"))
    stock = InstalledModels(stats, schemas, choices, upscaler, films=reels.of(schemas, document()["films"]))
    return dataclasses.replace(stock, missing={**_missing(stock, lacking), **stock.films.missing})


@cache
def families() -> tuple[ModelFamily, ...]:
    """The table, in its order."""
    return tuple(_family(row) for row in document()["families"])


@cache
def document() -> Mapping[str, Any]:
    """`data/comfyui.toml`."""
    return tomllib.loads((resources.files("sixfold.data") / "comfyui.toml").read_text("utf-8"))


def family_of(file: str, architecture: str = "") -> ModelFamily | None:
    """The family of a model's file, or None for what makes no pictures from text."""
    name = words(base(file))
    if re.search(document()["skip"], name):
        return None
    found = _matching(name)
    if found.name == "unknown" and architecture:
        found = _matching(words(architecture))
    steps = _STEPS.search(name)
    few = steps and found.cfg <= 2 and 0 < int(steps[1]) <= 16
    return dataclasses.replace(found, steps=int(steps[1])) if steps and few else found


def _matching(text: str) -> ModelFamily:
    return next(family for family in families() if re.search(family.match, text))


def _family(row: Mapping[str, Any]) -> ModelFamily:
    parts = row.get("parts")
    made = (
        ModelParts(tuple(parts["clips"]), parts["type"], parts["vae"], tuple(parts["get"])) if parts else None
    )
    return ModelFamily(**{**row, "parts": made})


async def _architectures(server: ComfyServer, files: Iterable[str]) -> dict[str, str]:
    """What those checkpoints say of themselves whose names say nothing."""
    unknown = [file for file in files if (family := family_of(file)) and family.name == "unknown"][
        :_MAX_ASKED
    ]
    said = await asyncio.gather(*(server.metadata("checkpoints", file) for file in unknown))
    return {
        file: str(facts.get("modelspec.architecture") or "")
        for file, facts in zip(unknown, said, strict=True)
    }


def _split_sets(schemas: Schemas) -> tuple[list[CapabilityChoice], str]:
    """Models that lie apart from their text encoders and VAE; and what the first incomplete one lacks."""
    complete: list[CapabilityChoice] = []
    lacking = ""
    for file in options(schemas, "UNETLoader", "unet_name"):
        family = family_of(file)
        if family is None or family.parts is None:
            continue
        clips = tuple(_named(schemas, family.parts))
        vae = first(options(schemas, "VAELoader", "vae_name"), family.parts.vae)
        if vae and all(clips):
            complete.append(CapabilityChoice(file, family, clips, vae))
        else:
            wants = " and ".join(family.parts.get)
            lacking = lacking or f"ComfyUI has {base(file)}, and lacks what belongs to it: {wants}."
    return complete, lacking


def _named(schemas: Schemas, parts: ModelParts) -> Iterator[str]:
    two = len(parts.clips) > 1
    loader, name = ("DualCLIPLoader", "clip_name1") if two else ("CLIPLoader", "clip_name")
    known = parts.type in options(schemas, loader, "type")
    files = options(schemas, loader, name) if known else ()
    return (first(files, pattern) for pattern in parts.clips)


def _upscaler(files: tuple[str, ...]) -> str:
    """One that enlarges four times where there is a choice: others are built for special pictures."""
    return first(files, r"x4|4x") or (files[0] if files else "")


def _missing(stock: InstalledModels, lacking: str) -> dict[str, str]:
    missing: dict[str, str] = {}
    unknown = sorted(name for name in _NEEDED if name not in stock.schemas)
    if unknown:
        missing[TEXT_TO_IMAGE] = f"This ComfyUI lacks its own node {unknown[0]}: bring it up to date."
    elif not stock.choices:
        missing[TEXT_TO_IMAGE] = lacking or _NO_MODEL
    if TEXT_TO_IMAGE in missing:
        missing[IMAGE_TO_IMAGE] = missing[TEXT_TO_IMAGE]
    elif not stock.has("LoadImage", "VAEEncode", "ImageScale", "ImageFromBatch"):
        missing[IMAGE_TO_IMAGE] = "This ComfyUI lacks nodes for pictures as inputs: bring it up to date."
    if not stock.upscaler or not stock.has("ImageUpscaleWithModel", "LoadImage", "ImageScale"):
        missing[UPSCALE] = _NO_UPSCALER
    return missing
