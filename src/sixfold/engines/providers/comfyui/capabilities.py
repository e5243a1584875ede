"""Probes of a ComfyUI server: its node classes, its models and the tasks that it can serve."""

from __future__ import annotations

import asyncio
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from itertools import islice
from typing import Any

import httpx
import msgspec

from sixfold.clients import local_servers
from sixfold.clients.comfyui import errors as comfyui_errors
from sixfold.clients.comfyui.errors import ComfyError, ComfyTimeout
from sixfold.clients.comfyui.server import ComfyLimits, ComfyServer, ComfyStats
from sixfold.core.humanize import seconds_text
from sixfold.engines.providers.comfyui import video_graphs
from sixfold.engines.providers.comfyui.files import Schemas, base, first, options, pinned, words
from sixfold.engines.providers.comfyui.video_graphs import VideoGraphs

TEXT_TO_IMAGE, IMAGE_TO_IMAGE, UPSCALE = "text-to-image", "image-to-image", "upscale"
FILL = "fill"
DEFAULT_URL = local_servers.COMFYUI.url
_ROUNDS = 3  # sequential rounds of requests: the system, the node classes, the checkpoints

# Every node class that the engines' graphs may contain.
CLASSES = (
    "CheckpointLoaderSimple",
    "UNETLoader",
    "CLIPLoader",
    "DualCLIPLoader",
    "VAELoader",
    "LoraLoader",
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
    "LoadImageMask",
    "SetLatentNoiseMask",
    "ImageFromBatch",
    "ImageScale",
    "JoinImageWithAlpha",
    "UpscaleModelLoader",
    "ImageUpscaleWithModel",
    "PreviewImage",
    *video_graphs.CLASSES,
)
_REQUIRED = frozenset({"CLIPTextEncode", "KSampler", "VAEDecode", "PreviewImage"})
_MAX_METADATA = 16  # checkpoints with unknown names whose metadata is read
_STEPS = re.compile(r"(\d+) ?steps?\b")
_NO_MODEL = (
    "ComfyUI has no image model: put a checkpoint such as sd_xl_base_1.0.safetensors into its "
    "folder models/checkpoints."
)
_NO_UPSCALER = (
    "ComfyUI has no upscaling model: put one such as RealESRGAN_x4plus.safetensors into its folder "
    "models/upscale_models."
)

NOT_FOUND = "ComfyUI does not have the model {}, which this engine is configured to use."


class ModelParts(msgspec.Struct, frozen=True):
    """The separate files that a model needs; `clips` and `vae` are patterns of file names."""

    clips: tuple[str, ...]
    type: str
    vae: str
    get: tuple[str, ...]


class ModelFamily(msgspec.Struct, frozen=True):
    """Settings of a family of image models: a row of `data/comfyui.toml`, which explains the fields."""

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


class CapabilityChoice(msgspec.Struct, frozen=True):
    """An installed model with its family; a model without a `vae` is a full checkpoint."""

    file: str
    family: ModelFamily
    clips: tuple[str, ...] = ()
    vae: str = ""


class InstalledModels(msgspec.Struct, frozen=True):
    """The node schemas by class and the models of a server, best first; `videos` are its video models."""

    stats: ComfyStats
    schemas: Schemas
    choices: tuple[CapabilityChoice, ...]
    upscaler: str
    missing: Mapping[str, str] = {}
    videos: VideoGraphs = msgspec.field(default_factory=VideoGraphs)

    def has(self, *classes: str) -> bool:
        """Return whether the server has these node classes."""
        return all(name in self.schemas for name in classes)

    def pinned(self, file: str) -> InstalledModels:
        """Return a copy limited to one model; raises `ComfyError` when the model is not installed."""
        model = pinned(file, (choice.file for choice in self.choices))
        if model is None:
            raise ComfyError(NOT_FOUND.format(file))
        return msgspec.structs.replace(self, choices=tuple(c for c in self.choices if c.file == model))

    @property
    def serves(self) -> dict[str, str]:
        """The supported tasks, each with the model file that serves it."""
        model = self.choices[0].file if self.choices else ""
        files = dict.fromkeys((TEXT_TO_IMAGE, IMAGE_TO_IMAGE, FILL), model)
        files |= {UPSCALE: self.upscaler, **self.videos.serves}
        return {task: file for task, file in files.items() if task not in self.missing}


class FoundModels(msgspec.Struct, frozen=True):
    """The result of a probe; `problem` is the reason of a failure, `missing` the models that a task lacks.

    `slow`: the port is open, but the server did not respond in time, as while it loads a model. `models` are
    the image model files, best first, and `videos` the video model files. `serves` maps `text-to-image`,
    `image-to-image`, `upscale`, `text-to-film` and `image-to-film` to the model file that serves it.
    """

    url: str
    problem: str = ""
    slow: bool = False
    version: str = ""
    device: str = ""
    memory_bytes: int = 0
    memory_free_bytes: int = 0
    models: tuple[str, ...] = ()
    videos: tuple[str, ...] = ()
    serves: Mapping[str, str] = {}
    missing: Mapping[str, str] = {}
    families: Mapping[str, ModelFamily] = {}
    samplers: tuple[str, ...] = ()
    schedulers: tuple[str, ...] = ()
    loras: tuple[str, ...] = ()


async def probe(client: httpx.AsyncClient, url: str = DEFAULT_URL, *, seconds: float = 2.0) -> FoundModels:
    """Return the models and tasks of the ComfyUI server at `url`; a failure is returned as `problem`.

    `seconds` is the timeout of each response; the whole probe may take three times as long.
    """
    try:
        server = ComfyServer(client, url, ComfyLimits(connect_seconds=seconds, answer_seconds=seconds))
        async with asyncio.timeout(_ROUNDS * seconds):
            installed = await read(server)
    except ComfyError as error:
        return FoundModels(url, str(error), slow=isinstance(error, ComfyTimeout))
    except TimeoutError:
        return FoundModels(
            url, f"ComfyUI did not respond within {seconds_text(_ROUNDS * seconds)}.", slow=True
        )
    stats = installed.stats
    return FoundModels(
        server.url,
        version=stats.version,
        device=stats.device,
        memory_bytes=stats.memory_bytes,
        memory_free_bytes=stats.memory_free_bytes,
        models=tuple(choice.file for choice in installed.choices),
        videos=tuple(choice.file for choice in installed.videos.choices),
        serves=installed.serves,
        missing=installed.missing,
        families={choice.file: choice.family for choice in installed.choices},
        samplers=options(installed.schemas, "KSampler", "sampler_name"),
        schedulers=options(installed.schemas, "KSampler", "scheduler"),
        loras=options(installed.schemas, "LoraLoader", "lora_name"),
    )


async def read(server: ComfyServer) -> InstalledModels:
    """Read a server's schemas and models, in a few dozen small requests instead of one large one."""
    stats = await server.stats()
    responses = await asyncio.gather(*(server.object_info(name) for name in CLASSES))
    schemas = {
        name: response[name] for name, response in zip(CLASSES, responses, strict=True) if name in response
    }
    with comfyui_errors.parse_errors():
        checkpoints = options(schemas, "CheckpointLoaderSimple", "ckpt_name")
    # Thousands of names are compared with all families.
    unknown = await asyncio.to_thread(_unknown, checkpoints)
    metadata = await asyncio.gather(*(server.metadata("checkpoints", file) for file in unknown))
    architectures = {
        file: comfyui_errors.short_text(fields.get("modelspec.architecture"))
        for file, fields in zip(unknown, metadata, strict=True)
    }
    with comfyui_errors.parse_errors():
        return await asyncio.to_thread(_installed, stats, schemas, checkpoints, architectures)


def _installed(
    stats: ComfyStats, schemas: Schemas, files: Iterable[str], architectures: Mapping[str, str]
) -> InstalledModels:
    known = {file: family_of(file, architectures.get(file, "")) for file in files}
    checkpoints = [CapabilityChoice(file, family) for file, family in known.items() if family is not None]
    split, problem = _split_models(schemas)
    choices = tuple(sorted([*checkpoints, *split], key=lambda choice: -choice.family.rank))
    upscaler = _upscaler(options(schemas, "UpscaleModelLoader", "model_name"))
    installed = InstalledModels(
        stats, schemas, choices, upscaler, videos=video_graphs.read(schemas, document()["videos"])
    )
    return msgspec.structs.replace(
        installed, missing={**_missing(installed, problem), **installed.videos.missing}
    )


@cache
def families() -> tuple[ModelFamily, ...]:
    """Return the families of image models in the order of the table."""
    return tuple(_family(row) for row in document()["families"])


@cache
def document() -> Mapping[str, Any]:
    """Return the parsed `data/comfyui.toml`."""
    return tomllib.loads((resources.files("sixfold.data") / "comfyui.toml").read_text("utf-8"))


def family_of(file: str, architecture: str = "") -> ModelFamily | None:
    """Return the family of a model file, or None for a file that is not an image model."""
    name = words(base(file))
    if re.search(document()["skip"], name):
        return None
    match = _matching(name)
    if match.name == "unknown" and architecture:
        match = _matching(words(architecture))
    steps = _STEPS.search(name)
    few = steps and match.cfg <= 2 and 0 < int(steps[1]) <= 16
    return msgspec.structs.replace(match, steps=int(steps[1])) if steps and few else match


def _matching(text: str) -> ModelFamily:
    return next(family for family in families() if re.search(family.match, text))


def _family(row: Mapping[str, Any]) -> ModelFamily:
    parts = row.get("parts")
    if parts:
        parts = ModelParts(tuple(parts["clips"]), parts["type"], parts["vae"], tuple(parts["get"]))
    return ModelFamily(**{**row, "parts": parts})


def _unknown(files: Iterable[str]) -> list[str]:
    """Return the first checkpoints with unknown names, whose architecture is in their metadata."""
    unknown = (file for file in files if (family := family_of(file)) and family.name == "unknown")
    return [*islice(unknown, _MAX_METADATA)]


def _split_models(schemas: Schemas) -> tuple[list[CapabilityChoice], str]:
    """Return the models with separate text encoders and VAE, and a message about the first incomplete one.

    The message is empty if all models are complete.
    """
    complete: list[CapabilityChoice] = []
    problem = ""
    for file in options(schemas, "UNETLoader", "unet_name"):
        family = family_of(file)
        if family is None or family.parts is None:
            continue
        clips = tuple(_text_encoders(schemas, family.parts))
        vae = first(options(schemas, "VAELoader", "vae_name"), family.parts.vae)
        if vae and all(clips):
            complete.append(CapabilityChoice(file, family, clips, vae))
        else:
            files = " and ".join(family.parts.get)
            problem = problem or f"ComfyUI has {base(file)}, but its other files are missing: {files}."
    return complete, problem


def _text_encoders(schemas: Schemas, parts: ModelParts) -> Iterator[str]:
    loader, name = ("DualCLIPLoader", "clip_name1") if len(parts.clips) > 1 else ("CLIPLoader", "clip_name")
    is_supported = parts.type in options(schemas, loader, "type")
    files = options(schemas, loader, name) if is_supported else ()
    return (first(files, pattern) for pattern in parts.clips)


def _upscaler(files: tuple[str, ...]) -> str:
    """Return the preferred upscaler: one for factor 4, since others are often for special images."""
    return first(files, r"x4|4x") or (files[0] if files else "")


def _missing(installed: InstalledModels, problem: str) -> dict[str, str]:
    missing: dict[str, str] = {}
    unknown = sorted(name for name in _REQUIRED if name not in installed.schemas)
    if unknown:
        missing[TEXT_TO_IMAGE] = f"This ComfyUI does not have its own node {unknown[0]}: update it."
    elif not installed.choices:
        missing[TEXT_TO_IMAGE] = problem or _NO_MODEL
    if TEXT_TO_IMAGE in missing:
        missing[IMAGE_TO_IMAGE] = missing[TEXT_TO_IMAGE]
    elif not installed.has("LoadImage", "VAEEncode", "ImageScale", "ImageFromBatch"):
        missing[IMAGE_TO_IMAGE] = "This ComfyUI does not have nodes for input images: update it."
    if IMAGE_TO_IMAGE in missing:
        missing[FILL] = missing[IMAGE_TO_IMAGE]
    elif not installed.has("LoadImageMask", "SetLatentNoiseMask"):
        missing[FILL] = "This ComfyUI does not have nodes for masks: update it."
    if not installed.upscaler or not installed.has("ImageUpscaleWithModel", "LoadImage", "ImageScale"):
        missing[UPSCALE] = _NO_UPSCALER
    return missing
