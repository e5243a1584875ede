"""Video classes of the fake ComfyUI: latents of many frames, and real files as results.

Nothing is denoised: a video begins with its still image, or with a color of its seed, and each frame is
brighter than the previous one. Decoded frames have the size of their latents, so encoded videos are small.
"""

from __future__ import annotations

import io
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image

Floats = NDArray[np.floating[Any]]
Row = tuple[dict[str, Any], list[str]]
# The brightness that each frame adds.
_STEP = 0.008


@dataclass(frozen=True)
class Reel:
    """A video in progress: pixels at an eighth of their size, and the image that it begins with."""

    length: int
    size: tuple[int, int]
    first: Floats | None = None


def _integer(default: int, low: int, step: int = 1) -> list[Any]:
    return ["INT", {"default": default, "min": low, "max": 16384, "step": step}]


def _box(step: int, group: int) -> dict[str, Any]:
    return {
        "width": _integer(832, 16, step),
        "height": _integer(480, 16, step),
        "length": _integer(81, 1, group),
        "batch_size": _integer(1, 1),
    }


_COND = ["CONDITIONING", {}]
_RATE = ["FLOAT", {"default": 24.0, "min": 0.01, "max": 1000.0}]
_SHARE = ["FLOAT", {"default": 1.0, "min": 0.0, "max": 100.0}]
_PREFIX = ["STRING", {"default": "video/ComfyUI"}]
REQUIRED: dict[str, Row] = {
    "ModelSamplingSD3": ({"model": ["MODEL"], "shift": _SHARE}, ["MODEL"]),
    "EmptyHunyuanLatentVideo": (_box(16, 4), ["LATENT"]),
    "Wan22ImageToVideoLatent": ({"vae": ["VAE", {}], **_box(32, 4)}, ["LATENT"]),
    "EmptyLTXVLatentVideo": (_box(32, 8), ["LATENT"]),
    "LTXVImgToVideo": (
        {
            "positive": _COND,
            "negative": _COND,
            "vae": ["VAE", {}],
            "image": ["IMAGE", {}],
            **_box(32, 8),
            "strength": _SHARE,
        },
        ["CONDITIONING", "CONDITIONING", "LATENT"],
    ),
    "LTXVConditioning": (
        {"positive": _COND, "negative": _COND, "frame_rate": _RATE},
        ["CONDITIONING", "CONDITIONING"],
    ),
    "LTXVScheduler": (
        {
            "steps": _integer(20, 1),
            "max_shift": _SHARE,
            "base_shift": _SHARE,
            "stretch": ["BOOLEAN", {"default": True}],
            "terminal": _SHARE,
        },
        ["SIGMAS"],
    ),
    "KSamplerSelect": ({"sampler_name": [["euler", "uni_pc"]]}, ["SAMPLER"]),
    "SamplerCustom": (
        {
            "model": ["MODEL"],
            "add_noise": ["BOOLEAN", {"default": True}],
            "noise_seed": ["INT", {"default": 0, "min": 0, "max": 2**64 - 1}],
            "cfg": _SHARE,
            "positive": _COND,
            "negative": _COND,
            "sampler": ["SAMPLER", {}],
            "sigmas": ["SIGMAS", {}],
            "latent_image": ["LATENT", {}],
        },
        ["LATENT", "LATENT"],
    ),
    "CreateVideo": ({"images": ["IMAGE", {}], "fps": _RATE}, ["VIDEO"]),
    "SaveVideo": (
        {
            "video": ["VIDEO", {}],
            "filename_prefix": _PREFIX,
            "format": ["COMBO", {"options": ["auto", "mp4"]}],
            "codec": ["COMBO", {"options": ["auto", "h264"]}],
        },
        [],
    ),
    "SaveWEBM": (
        {
            "images": ["IMAGE", {}],
            "filename_prefix": _PREFIX,
            "codec": ["COMBO", {"options": ["vp9", "av1"]}],
            "fps": _RATE,
            "crf": _SHARE,
        },
        [],
    ),
    "VHS_VideoCombine": (
        {
            "images": ["IMAGE"],
            "frame_rate": _RATE,
            "loop_count": _integer(0, 0),
            "filename_prefix": _PREFIX,
            "format": [["image/gif", "video/h264-mp4"]],
            "pingpong": ["BOOLEAN", {"default": False}],
            "save_output": ["BOOLEAN", {"default": True}],
        },
        ["VHS_FILENAMES"],
    ),
}
OPTIONAL: dict[str, dict[str, Any]] = {
    "Wan22ImageToVideoLatent": {"start_image": ["IMAGE", {}]},
    "LTXVScheduler": {"latent": ["LATENT", {}]},
}
OUTPUTS = frozenset({"SaveVideo", "SaveWEBM", "VHS_VideoCombine"})


async def _shift(_run: Any, model: str, shift: float) -> tuple[Any, ...]:
    return (f"{model} {shift}",)


async def _latent(_run: Any, **inputs: Any) -> tuple[Any, ...]:
    size = (int(inputs["height"]) // 8, int(inputs["width"]) // 8)
    return (Reel(int(inputs["length"]), size, inputs.get("start_image")),)


async def _image(run: Any, positive: str, negative: str, image: Floats, **inputs: Any) -> tuple[Any, ...]:
    (latent,) = await _latent(run, **inputs, start_image=image)
    return positive, negative, latent


async def _rate(_run: Any, positive: str, negative: str, frame_rate: float) -> tuple[Any, ...]:
    return f"{positive} {frame_rate}", negative


async def _sigmas(_run: Any, steps: int, **_given: Any) -> tuple[Any, ...]:
    return (int(steps),)


async def _sampler_select(_run: Any, sampler_name: str) -> tuple[Any, ...]:
    return (sampler_name,)


async def _sample(run: Any, **inputs: Any) -> tuple[Any, ...]:
    result = await sampled(run, inputs["latent_image"], int(inputs["noise_seed"]), int(inputs["sigmas"]))
    return result, result


async def sampled(run: Any, reel: Reel, seed: int, steps: int) -> Floats:
    """Return the frames of a video: its still image or a color of the seed, increasingly bright."""
    for step in range(steps):
        await run.step(step + 1, steps)
    height, width = reel.size
    first = np.random.default_rng(seed).uniform(0, 0.2, (1, 1, 3)) * np.ones((height, width, 1))
    if reel.first is not None:
        still = Image.fromarray(np.rint(reel.first[0][..., :3] * 255).astype(np.uint8))
        first = np.asarray(still.resize((width, height), Image.Resampling.BOX), np.float32) / 255
    growth = np.arange(reel.length, dtype=np.float32)[:, None, None, None] * np.float32(_STEP)
    return np.clip(first[None] + growth, 0, 1).astype(np.float32)


async def _video(_run: Any, images: Floats, fps: float) -> tuple[Any, ...]:
    return ((images, fps),)


async def _save(run: Any, video: tuple[Floats, float], filename_prefix: str, **_given: Any) -> dict[str, Any]:
    file = run.keep("output", filename_prefix, _encode(*video, "mp4", "libx264"), "mp4")
    return {"images": [file], "animated": [True]}


async def _webm(run: Any, images: Floats, fps: float, filename_prefix: str, **_given: Any) -> dict[str, Any]:
    file = run.keep("output", filename_prefix, _encode(images, fps, "webm", "libvpx-vp9"), "webm")
    return {"images": [file], "animated": [True]}


async def _combine(
    run: Any, images: Floats, frame_rate: float, filename_prefix: str, **_given: Any
) -> dict[str, Any]:
    file = run.keep("temp", filename_prefix, _encode(images, frame_rate, "mp4", "libx264"), "mp4")
    return {"gifs": [file]}


def _encode(images: Floats, rate: float, container: str, codec: str) -> bytes:
    out = io.BytesIO()
    with av.open(out, "w", format=container) as file:
        stream: Any = file.add_stream(codec, rate=round(rate))
        stream.height, stream.width = images.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.options = {"deadline": "realtime"} if codec == "libvpx-vp9" else {"preset": "ultrafast"}
        for image in images:
            pixels = np.rint(np.clip(image[..., :3], 0, 1) * 255).astype(np.uint8)
            file.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")))
        file.mux(stream.encode(None))
    return out.getvalue()


NODES: dict[str, Callable[..., Awaitable[Any]]] = {
    "ModelSamplingSD3": _shift,
    "EmptyHunyuanLatentVideo": _latent,
    "Wan22ImageToVideoLatent": _latent,
    "EmptyLTXVLatentVideo": _latent,
    "LTXVImgToVideo": _image,
    "LTXVConditioning": _rate,
    "LTXVScheduler": _sigmas,
    "KSamplerSelect": _sampler_select,
    "SamplerCustom": _sample,
    "CreateVideo": _video,
    "SaveVideo": _save,
    "SaveWEBM": _webm,
    "VHS_VideoCombine": _combine,
}
