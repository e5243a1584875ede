"""The video models of a ComfyUI server, and the graphs that run them.

A video that is longer than one run of its model is generated in segments, each starting from the last frame
of the previous one; each segment is a separate file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from sixfold.engines.providers.comfyui.files import Schemas, base, first, options, words

TEXT_TO_VIDEO, IMAGE_TO_VIDEO = "text-to-film", "image-to-film"

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
_PREFIX = "sixfold/video"
_CRF = 12.0  # high quality, since the video is encoded once more here
_NO_MODEL = (
    "ComfyUI has no video model: put wan2.2_ti2v_5B_fp16.safetensors into its folder "
    "models/diffusion_models, and its text encoder and VAE into theirs."
)
_NO_IMAGE_MODEL = (
    "ComfyUI's {} makes videos from text only: put wan2.2_ti2v_5B_fp16.safetensors into the same folder."
)
_OLD = "This ComfyUI cannot save videos: update it."

Link = list[Any]


class VideoFamily(msgspec.Struct, frozen=True):
    """Settings of a family of video models: a row of `[[videos]]` in `data/comfyui.toml`."""

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
        """Return the (width, height) to generate: the same shape, near the model's area, in its multiples."""
        scale = math.sqrt(self.area / (size[0] * size[1]))
        width, height = (max(1, round(side * scale / self.multiple)) * self.multiple for side in size)
        return width, height

    def segments(self, frames: int) -> list[int]:
        """Return the frames of each run for at least `frames` in all; later runs repeat one frame."""
        counts: list[int] = []
        while (done := sum(counts) - max(0, len(counts) - 1)) < frames:
            remaining = min(self.frames, frames - done + (1 if counts else 0))
            counts.append(max(1, math.ceil((remaining - 1) / self.group)) * self.group + 1)
        return counts


class VideoModelChoice(msgspec.Struct, frozen=True):
    """An installed video model with its text encoder; a model without a `vae` is a full checkpoint."""

    file: str
    family: VideoFamily
    clip: str
    vae: str = ""


class VideoGraphs(msgspec.Struct, frozen=True):
    """The video models of a server, best first, and by task a message about missing files."""

    choices: tuple[VideoModelChoice, ...] = ()
    missing: Mapping[str, str] = {}

    @property
    def serves(self) -> dict[str, str]:
        """The supported tasks, each with the model file that serves it."""
        models = {TEXT_TO_VIDEO: self.best(False), IMAGE_TO_VIDEO: self.best(True)}
        return {task: choice.file for task, choice in models.items() if choice and task not in self.missing}

    def best(self, pictured: bool, file: str = "") -> VideoModelChoice | None:
        """Return the best model, with image input if `pictured`, and named `file` unless that is empty."""
        usable = (choice for choice in self.choices if choice.family.pictured or not pictured)
        return next((model for model in usable if not file or file in (model.file, base(model.file))), None)


def read(schemas: Schemas, rows: Iterable[Mapping[str, Any]]) -> VideoGraphs:
    """Return the video models of a server with these schemas; `rows` are those of `[[videos]]`."""
    families = [VideoFamily(**{**row, "get": tuple(row["get"])}) for row in rows]
    video_models: list[VideoModelChoice] = []
    problem = ""
    for file, family in _models(schemas, families):
        clips = options(schemas, "CLIPLoader", "clip_name")
        supported = family.type in options(schemas, "CLIPLoader", "type")
        clip = first(clips, family.clip) if supported else ""
        vae = first(options(schemas, "VAELoader", "vae_name"), family.vae) if family.vae else ""
        if clip and bool(vae) == bool(family.vae) and _REQUIRED[family.kind] <= set(schemas):
            video_models.append(VideoModelChoice(file, family, clip, vae))
        else:
            files = " and ".join(family.get)
            problem = problem or f"ComfyUI has {base(file)}, but its other files are missing: {files}."
    choices = tuple(sorted(video_models, key=lambda choice: -choice.family.rank))
    return VideoGraphs(choices, _missing(schemas, choices, problem))


def _models(schemas: Schemas, families: Iterable[VideoFamily]) -> Iterable[tuple[str, VideoFamily]]:
    for family in families:
        loader = ("UNETLoader", "unet_name") if family.vae else ("CheckpointLoaderSimple", "ckpt_name")
        for file in options(schemas, *loader):
            if re.search(family.match, words(base(file))):
                yield file, family


def _missing(schemas: Schemas, choices: tuple[VideoModelChoice, ...], problem: str) -> dict[str, str]:
    if not choices:
        return dict.fromkeys((TEXT_TO_VIDEO, IMAGE_TO_VIDEO), problem or _NO_MODEL)
    if not any(saver in schemas for saver in ("SaveVideo", "SaveWEBM", "VHS_VideoCombine")):
        return dict.fromkeys((TEXT_TO_VIDEO, IMAGE_TO_VIDEO), _OLD)
    if not any(choice.family.pictured for choice in choices):
        return {IMAGE_TO_VIDEO: _NO_IMAGE_MODEL.format(base(choices[0].file))}
    return {}


# -- graphs --------------------------------------------------------------------------------------


class VideoSpec(msgspec.Struct, frozen=True):
    """The video to generate; `size` is (width, height) in pixels, `image` the file name for LoadImage."""

    prompt: str
    negative: str
    seed: int
    frames: int
    rate: int
    size: tuple[int, int]
    steps: int
    cfg: float
    image: str = ""


class Graph(msgspec.Struct):
    """A graph under construction; `samplers` and `outputs` have one node id per segment, in order."""

    schemas: Schemas
    choice: VideoModelChoice
    spec: VideoSpec
    nodes: dict[str, dict[str, Any]] = {}
    samplers: list[str] = []
    outputs: list[str] = []

    def add(self, class_type: str, **inputs: Any) -> str:
        node = str(len(self.nodes) + 1)
        self.nodes[node] = {"class_type": class_type, "inputs": inputs}
        return node


class _VideoNodes(msgspec.Struct, frozen=True):
    model: Link
    vae: Link
    positive: Link
    negative: Link


def build(schemas: Schemas, choice: VideoModelChoice, spec: VideoSpec) -> Graph:
    """Return the graph of a video, with as many segments as its length requires."""
    graph = Graph(schemas, choice, spec)
    inputs = _load(graph)
    start: Link | None = None
    if spec.image:
        loaded = graph.add("LoadImage", image=spec.image)
        first_image = graph.add("ImageFromBatch", image=[loaded, 0], batch_index=0, length=1)
        size = {"width": spec.size[0], "height": spec.size[1]}
        scaled = graph.add(
            "ImageScale", image=[first_image, 0], upscale_method="lanczos", crop="center", **size
        )
        start = [scaled, 0]
    for index, count in enumerate(choice.family.segments(spec.frames)):
        latent = _KINDS[choice.family.kind](graph, inputs, _Segment(count, index, start))
        images: Link = [graph.add("VAEDecode", samples=latent, vae=inputs.vae), 0]
        _save(graph, images)
        start = [graph.add("ImageFromBatch", image=images, batch_index=count - 1, length=1), 0]
    del graph.nodes[str(len(graph.nodes))]  # the last frame of the last segment is not used
    return graph


class _Segment(msgspec.Struct, frozen=True):
    count: int
    index: int
    first: Link | None


def _load(graph: Graph) -> _VideoNodes:
    choice, family, spec = graph.choice, graph.choice.family, graph.spec
    if choice.vae:
        model: Link = [graph.add("UNETLoader", unet_name=choice.file, weight_dtype="default"), 0]
        vae: Link = [graph.add("VAELoader", vae_name=choice.vae), 0]
    else:
        checkpoint = graph.add("CheckpointLoaderSimple", ckpt_name=choice.file)
        model, vae = [checkpoint, 0], [checkpoint, 2]
    clip: Link = [graph.add("CLIPLoader", clip_name=choice.clip, type=family.type), 0]
    positive: Link = [graph.add("CLIPTextEncode", text=spec.prompt, clip=clip), 0]
    negative: Link = [graph.add("CLIPTextEncode", text=spec.negative or family.negative, clip=clip), 0]
    if family.shift:
        model = [graph.add("ModelSamplingSD3", model=model, shift=family.shift), 0]
    return _VideoNodes(model, vae, positive, negative)


def _dimensions(graph: Graph, segment: _Segment) -> dict[str, int]:
    width, height = graph.spec.size
    return {"width": width, "height": height, "length": segment.count, "batch_size": 1}


def _wan(graph: Graph, inputs: _VideoNodes, segment: _Segment) -> Link:
    latent = graph.add("EmptyHunyuanLatentVideo", **_dimensions(graph, segment))
    return _sample(graph, inputs, segment, latent)


def _wan22(graph: Graph, inputs: _VideoNodes, segment: _Segment) -> Link:
    first = {"start_image": segment.first} if segment.first else {}
    latent = graph.add("Wan22ImageToVideoLatent", vae=inputs.vae, **_dimensions(graph, segment), **first)
    return _sample(graph, inputs, segment, latent)


def _sample(graph: Graph, inputs: _VideoNodes, segment: _Segment, latent: str) -> Link:
    family, spec = graph.choice.family, graph.spec
    sampler = graph.add(
        "KSampler",
        model=inputs.model,
        positive=inputs.positive,
        negative=inputs.negative,
        latent_image=[latent, 0],
        seed=spec.seed + segment.index,
        steps=spec.steps,
        cfg=spec.cfg,
        sampler_name=family.sampler,
        scheduler=family.scheduler,
        denoise=1.0,
    )
    graph.samplers.append(sampler)
    return [sampler, 0]


def _ltxv(graph: Graph, inputs: _VideoNodes, segment: _Segment) -> Link:
    family, spec, size = graph.choice.family, graph.spec, _dimensions(graph, segment)
    positive, negative = inputs.positive, inputs.negative
    if segment.first:
        started = graph.add(
            "LTXVImgToVideo",
            positive=positive,
            negative=negative,
            vae=inputs.vae,
            image=segment.first,
            strength=1.0,
            **size,
        )
        positive, negative, latent = [started, 0], [started, 1], [started, 2]
    else:
        latent = [graph.add("EmptyLTXVLatentVideo", **size), 0]
    rated = graph.add("LTXVConditioning", positive=positive, negative=negative, frame_rate=float(spec.rate))
    shifts = {"max_shift": 2.05, "base_shift": 0.95, "stretch": True, "terminal": 0.1}
    sigmas = graph.add("LTXVScheduler", steps=spec.steps, latent=latent, **shifts)
    selected = graph.add("KSamplerSelect", sampler_name=family.sampler)
    sampler = graph.add(
        "SamplerCustom",
        model=inputs.model,
        add_noise=True,
        noise_seed=spec.seed + segment.index,
        cfg=spec.cfg,
        positive=[rated, 0],
        negative=[rated, 1],
        sampler=[selected, 0],
        sigmas=[sigmas, 0],
        latent_image=latent,
    )
    graph.samplers.append(sampler)
    return [sampler, 0]


def _save(graph: Graph, images: Link) -> None:
    """Save a segment with the first saver node that the server has."""
    rate, schemas = float(graph.spec.rate), graph.schemas
    if "SaveVideo" in schemas and "CreateVideo" in schemas:
        video = graph.add("CreateVideo", images=images, fps=rate)
        node = graph.add("SaveVideo", video=[video, 0], filename_prefix=_PREFIX, format="auto", codec="auto")
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


_KINDS: Mapping[str, Callable[[Graph, _VideoNodes, _Segment], Link]] = {
    "wan": _wan,
    "wan22": _wan22,
    "ltxv": _ltxv,
}
_REQUIRED: Mapping[str, frozenset[str]] = {
    "wan": frozenset({"EmptyHunyuanLatentVideo", "ModelSamplingSD3"}),
    "wan22": frozenset({"Wan22ImageToVideoLatent", "ModelSamplingSD3"}),
    "ltxv": frozenset({"LTXVImgToVideo", "LTXVConditioning", "LTXVScheduler", "SamplerCustom"}),
}
