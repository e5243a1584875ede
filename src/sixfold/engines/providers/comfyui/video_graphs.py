"""The film models that a ComfyUI server has, and the graphs that have them make a film.

A film that is longer than one run of its model is made in pieces, each from the last frame of the one before;
every piece is a file of its own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sixfold.engines.providers.comfyui.files import Schemas, base, first, options, words

TEXT_TO_FILM, IMAGE_TO_FILM = "text-to-film", "image-to-film"

CLASSES = (
    "ModelSamplingSD3",
    "EmptyHunyuanLatentVideo",
    "Wan22ImageToVideoLatent",
    "EmptyLTXVLatentVideo",
    "LTXVImgToVideo",
    "LTXVConditioning",
    "LTXVScheduler",
    "KSamplerSelect",
    "SamplerCustom",
    "CreateVideo",
    "SaveVideo",
    "SaveWEBM",
    "VHS_VideoCombine",
)
_PREFIX = "sixfold/film"
_CRF = 12.0  # of a film that is encoded once more here
_NO_MODEL = (
    "ComfyUI has no model for films: put wan2.2_ti2v_5B_fp16.safetensors into its folder "
    "models/diffusion_models, and what belongs to it."
)
_NO_PICTURES = "ComfyUI's {} makes films from words only: put wan2.2_ti2v_5B_fp16.safetensors beside it."
_OLD = "This ComfyUI cannot save films: bring it up to date."

Link = list[Any]


@dataclass(frozen=True, slots=True)
class VideoFamily:
    """How a kind of film model is run: a row of `[[films]]` in `data/comfyui.toml`, which explains it."""

    name: str
    match: str
    rank: int
    kind: str
    rate: int
    frames: int
    group: int
    multiple: int
    area: int
    steps: int
    cfg: float
    clip: str
    type: str
    get: tuple[str, ...]
    vae: str = ""
    sampler: str = "euler"
    scheduler: str = "simple"
    shift: float = 0.0
    pictured: bool = True
    negative: str = ""

    def size_for(self, size: tuple[int, int]) -> tuple[int, int]:
        """The size to make for an asked one: near the model's area, in whole multiples, of its shape."""
        scale = math.sqrt(self.area / (size[0] * size[1]))
        width, height = (max(1, round(side * scale / self.multiple)) * self.multiple for side in size)
        return width, height

    def pieces(self, frames: int) -> list[int]:
        """How many frames each run makes for at least `frames` in all; a later one repeats one first."""
        found: list[int] = []
        while (done := sum(found) - max(0, len(found) - 1)) < frames:
            left = min(self.frames, frames - done + (1 if found else 0))
            found.append(max(1, math.ceil((left - 1) / self.group)) * self.group + 1)
        return found


@dataclass(frozen=True, slots=True)
class VideoModelChoice:
    """A film model that is there, with what belongs to it; without a `vae` it is a whole checkpoint."""

    file: str
    family: VideoFamily
    clip: str
    vae: str = ""


@dataclass(frozen=True, slots=True)
class VideoGraphs:
    """What a server can film with, the best first, and what it lacks."""

    choices: tuple[VideoModelChoice, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def serves(self) -> dict[str, str]:
        """What it can do, each with the model's file that does it."""
        able = {TEXT_TO_FILM: self.best(False), IMAGE_TO_FILM: self.best(True)}
        return {task: choice.file for task, choice in able.items() if choice and task not in self.missing}

    def best(self, pictured: bool, file: str = "") -> VideoModelChoice | None:
        """The model that serves, with pictures or without; of that file, where one is named."""
        fit = (one for one in self.choices if one.family.pictured or not pictured)
        return next((one for one in fit if not file or file in (one.file, base(one.file))), None)


def of(schemas: Schemas, rows: Iterable[Mapping[str, Any]]) -> VideoGraphs:
    """What a server with these schemas can film with."""
    families = [VideoFamily(**{**row, "get": tuple(row["get"])}) for row in rows]
    found: list[VideoModelChoice] = []
    lacking = ""
    for file, family in _models(schemas, families):
        clips = options(schemas, "CLIPLoader", "clip_name")
        typed = family.type in options(schemas, "CLIPLoader", "type")
        clip = first(clips, family.clip) if typed else ""
        vae = first(options(schemas, "VAELoader", "vae_name"), family.vae) if family.vae else ""
        if clip and bool(vae) == bool(family.vae) and _NEEDS[family.kind] <= set(schemas):
            found.append(VideoModelChoice(file, family, clip, vae))
        else:
            wants = " and ".join(family.get)
            lacking = lacking or f"ComfyUI has {base(file)}, and lacks what belongs to it: {wants}."
    choices = tuple(sorted(found, key=lambda choice: -choice.family.rank))
    return VideoGraphs(choices, _missing(schemas, choices, lacking))


def _models(schemas: Schemas, families: Iterable[VideoFamily]) -> Iterable[tuple[str, VideoFamily]]:
    for family in families:
        split = bool(family.vae)
        loader = ("UNETLoader", "unet_name") if split else ("CheckpointLoaderSimple", "ckpt_name")
        for file in options(schemas, *loader):
            if re.search(family.match, words(base(file))):
                yield file, family


def _missing(schemas: Schemas, choices: tuple[VideoModelChoice, ...], lacking: str) -> dict[str, str]:
    if not choices:
        return dict.fromkeys((TEXT_TO_FILM, IMAGE_TO_FILM), lacking or _NO_MODEL)
    if not any(saver in schemas for saver in ("SaveVideo", "SaveWEBM", "VHS_VideoCombine")):
        return dict.fromkeys((TEXT_TO_FILM, IMAGE_TO_FILM), _OLD)
    if not any(choice.family.pictured for choice in choices):
        return {IMAGE_TO_FILM: _NO_PICTURES.format(base(choices[0].file))}
    return {}


# -- graphs --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VideoWish:
    """What a film shows: words, a seed, frames at a rate, pixels; `picture` as LoadImage names it."""

    prompt: str
    negative: str
    seed: int
    frames: int
    rate: int
    size: tuple[int, int]
    steps: int
    cfg: float
    picture: str = ""


@dataclass(slots=True)
class Graph:
    """A graph on its way: its nodes, those that sample, and those that save a piece each, in order."""

    schemas: Schemas
    choice: VideoModelChoice
    wish: VideoWish
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    samplers: list[str] = field(default_factory=list[str])
    outputs: list[str] = field(default_factory=list[str])

    def add(self, class_type: str, **inputs: Any) -> str:
        """Add a node and give its id."""
        node = str(len(self.nodes) + 1)
        self.nodes[node] = {"class_type": class_type, "inputs": inputs}
        return node


@dataclass(frozen=True, slots=True)
class _VideoNodes:
    """What sampling needs, as links."""

    model: Link
    vae: Link
    positive: Link
    negative: Link


def film(schemas: Schemas, choice: VideoModelChoice, wish: VideoWish) -> Graph:
    """The graph of a film, in as many pieces as it takes."""
    graph = Graph(schemas, choice, wish)
    means = _loaded(graph)
    still: Link | None = None
    if wish.picture:
        loaded = graph.add("LoadImage", image=wish.picture)
        one = graph.add("ImageFromBatch", image=[loaded, 0], batch_index=0, length=1)
        size = {"width": wish.size[0], "height": wish.size[1]}
        scaled = graph.add("ImageScale", image=[one, 0], upscale_method="lanczos", crop="center", **size)
        still = [scaled, 0]
    for place, count in enumerate(choice.family.pieces(wish.frames)):
        latent = _KINDS[choice.family.kind](graph, means, _GraphPiece(count, place, still))
        images: Link = [graph.add("VAEDecode", samples=latent, vae=means.vae), 0]
        _saved(graph, images)
        still = [graph.add("ImageFromBatch", image=images, batch_index=count - 1, length=1), 0]
    del graph.nodes[str(len(graph.nodes))]  # nobody goes on from the last piece's end
    return graph


@dataclass(frozen=True, slots=True)
class _GraphPiece:
    count: int
    place: int
    first: Link | None


def _loaded(graph: Graph) -> _VideoNodes:
    choice, family, wish = graph.choice, graph.choice.family, graph.wish
    if choice.vae:
        model: Link = [graph.add("UNETLoader", unet_name=choice.file, weight_dtype="default"), 0]
        vae: Link = [graph.add("VAELoader", vae_name=choice.vae), 0]
    else:
        whole = graph.add("CheckpointLoaderSimple", ckpt_name=choice.file)
        model, vae = [whole, 0], [whole, 2]
    clip: Link = [graph.add("CLIPLoader", clip_name=choice.clip, type=family.type), 0]
    positive: Link = [graph.add("CLIPTextEncode", text=wish.prompt, clip=clip), 0]
    negative: Link = [graph.add("CLIPTextEncode", text=wish.negative or family.negative, clip=clip), 0]
    if family.shift:
        model = [graph.add("ModelSamplingSD3", model=model, shift=family.shift), 0]
    return _VideoNodes(model, vae, positive, negative)


def _box(graph: Graph, piece: _GraphPiece) -> dict[str, int]:
    width, height = graph.wish.size
    return {"width": width, "height": height, "length": piece.count, "batch_size": 1}


def _wan(graph: Graph, means: _VideoNodes, piece: _GraphPiece) -> Link:
    latent = graph.add("EmptyHunyuanLatentVideo", **_box(graph, piece))
    return _sampled(graph, means, piece, latent)


def _wan22(graph: Graph, means: _VideoNodes, piece: _GraphPiece) -> Link:
    first = {"start_image": piece.first} if piece.first else {}
    latent = graph.add("Wan22ImageToVideoLatent", vae=means.vae, **_box(graph, piece), **first)
    return _sampled(graph, means, piece, latent)


def _sampled(graph: Graph, means: _VideoNodes, piece: _GraphPiece, latent: str) -> Link:
    family, wish = graph.choice.family, graph.wish
    sampler = graph.add(
        "KSampler",
        model=means.model,
        positive=means.positive,
        negative=means.negative,
        latent_image=[latent, 0],
        seed=wish.seed + piece.place,
        steps=wish.steps,
        cfg=wish.cfg,
        sampler_name=family.sampler,
        scheduler=family.scheduler,
        denoise=1.0,
    )
    graph.samplers.append(sampler)
    return [sampler, 0]


def _ltxv(graph: Graph, means: _VideoNodes, piece: _GraphPiece) -> Link:
    family, wish, box = graph.choice.family, graph.wish, _box(graph, piece)
    positive, negative = means.positive, means.negative
    if piece.first:
        begun = graph.add(
            "LTXVImgToVideo",
            positive=positive,
            negative=negative,
            vae=means.vae,
            image=piece.first,
            strength=1.0,
            **box,
        )
        positive, negative, latent = [begun, 0], [begun, 1], [begun, 2]
    else:
        latent = [graph.add("EmptyLTXVLatentVideo", **box), 0]
    rated = graph.add("LTXVConditioning", positive=positive, negative=negative, frame_rate=float(wish.rate))
    shifts = {"max_shift": 2.05, "base_shift": 0.95, "stretch": True, "terminal": 0.1}
    sigmas = graph.add("LTXVScheduler", steps=wish.steps, latent=latent, **shifts)
    chosen = graph.add("KSamplerSelect", sampler_name=family.sampler)
    sampler = graph.add(
        "SamplerCustom",
        model=means.model,
        add_noise=True,
        noise_seed=wish.seed + piece.place,
        cfg=wish.cfg,
        positive=[rated, 0],
        negative=[rated, 1],
        sampler=[chosen, 0],
        sigmas=[sigmas, 0],
        latent_image=latent,
    )
    graph.samplers.append(sampler)
    return [sampler, 0]


def _saved(graph: Graph, images: Link) -> None:
    """A piece saved by the first of the ways that the server has."""
    rate, schemas = float(graph.wish.rate), graph.schemas
    if "SaveVideo" in schemas and "CreateVideo" in schemas:
        made = graph.add("CreateVideo", images=images, fps=rate)
        node = graph.add("SaveVideo", video=[made, 0], filename_prefix=_PREFIX, format="auto", codec="auto")
    elif "SaveWEBM" in schemas:
        node = graph.add("SaveWEBM", images=images, filename_prefix=_PREFIX, codec="vp9", fps=rate, crf=_CRF)
    else:
        node = graph.add(
            "VHS_VideoCombine",
            images=images,
            frame_rate=rate,
            loop_count=0,
            filename_prefix=_PREFIX,
            format="video/h264-mp4",
            pingpong=False,
            save_output=False,
        )
    graph.outputs.append(node)


_KINDS: Mapping[str, Callable[[Graph, _VideoNodes, _GraphPiece], Link]] = {
    "wan": _wan,
    "wan22": _wan22,
    "ltxv": _ltxv,
}
_NEEDS: Mapping[str, frozenset[str]] = {
    "wan": frozenset({"EmptyHunyuanLatentVideo", "ModelSamplingSD3"}),
    "wan22": frozenset({"Wan22ImageToVideoLatent", "ModelSamplingSD3"}),
    "ltxv": frozenset({"LTXVImgToVideo", "LTXVConditioning", "LTXVScheduler", "SamplerCustom"}),
}
