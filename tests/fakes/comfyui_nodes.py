"""Node classes of the fake ComfyUI: their schemas in the format of `/object_info`, and their functions.

Nothing is denoised. A latent is an image of an eighth of the size; the sampler blends it, by `denoise`, with
colors that depend on the model, the seed, the prompt and the index in the batch. Images are real: uploads are
decoded, scaled and blended, and the output is a PNG with the prompt in its metadata.
"""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, PngImagePlugin

from tests.fakes import comfyui_videos
from tests.harness import image_files

Floats = NDArray[np.floating[Any]]
SAMPLERS = ["uni_pc", "euler", "euler_ancestral", "dpmpp_2m", "dpmpp_sde", "lcm", "res_multistep", "ddim"]
SCHEDULERS = ["simple", "sgm_uniform", "karras", "normal"]
METHODS = ["nearest-exact", "bilinear", "area", "bicubic", "lanczos"]


@dataclass(frozen=True)
class InstalledFiles:
    """The model files that a server has, by folder."""

    checkpoints: tuple[str, ...] = ("sd_xl_base_1.0.safetensors",)
    diffusion_models: tuple[str, ...] = ()
    text_encoders: tuple[str, ...] = ()
    vae: tuple[str, ...] = ()
    loras: tuple[str, ...] = ()
    upscale_models: tuple[str, ...] = ("RealESRGAN_x4plus.safetensors",)
    # Node classes of packages that are not installed.
    lacking: frozenset[str] = frozenset({"VHS_VideoCombine"})
    metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])


def _preview_message() -> bytes:
    """Return a preview message: its type, the type of the image, and a JPEG."""
    file = io.BytesIO()
    Image.new("RGB", (32, 32), (90, 20, 160)).save(file, "JPEG")
    return b"\0\0\0\1\0\0\0\1" + file.getvalue()


PREVIEW = _preview_message()


class Running(Protocol):
    """The server's functions for a running node."""

    async def step(self, step_number: int, of: int) -> None:
        """Report the progress; raises when the run was interrupted."""
        ...

    def file(self, annotated: str) -> bytes:
        """Return an image of one of the folders."""
        ...

    def keep(self, folder: str, prefix: str, data: bytes, ending: str = "png") -> dict[str, str]:
        """Write a result, and return its reference."""
        ...

    async def send(self, data: bytes) -> None:
        """Send a binary message to the client."""
        ...

    @property
    def prompt(self) -> Mapping[str, Any]:
        """The whole prompt, which is stored in images."""
        ...

    @property
    def memory(self) -> int:
        """The number of images that fit into the GPU at once."""
        ...


# A map from an input's name to its type and options, and the types of the outputs.
Row = tuple[dict[str, Any], list[str]]


def _integer(default: int, low: int, high: int) -> list[Any]:
    return ["INT", {"default": default, "min": low, "max": high}]


def _number(default: float, high: float) -> list[Any]:
    return ["FLOAT", {"default": default, "min": 0.0, "max": high}]


_SIDE, _BATCH = _integer(512, 16, 16384), _integer(1, 1, 4096)
_IMAGE, _COND = ["IMAGE"], ["CONDITIONING"]
_LATENT_SIZE = {"width": _SIDE, "height": _SIDE, "batch_size": _BATCH}

# This class exists only on this server.
_CLASSES: dict[str, Row] = {
    "CLIPTextEncode": ({"text": ["STRING", {"multiline": True}], "clip": ["CLIP"]}, _COND),
    "ConditioningZeroOut": ({"conditioning": _COND}, _COND),
    "FluxGuidance": ({"conditioning": ["CONDITIONING", {}], "guidance": _number(3.5, 100)}, _COND),
    "ModelSamplingAuraFlow": ({"model": ["MODEL"], "shift": _number(1.73, 100)}, ["MODEL"]),
    "EmptyLatentImage": (_LATENT_SIZE, ["LATENT"]),
    "EmptySD3LatentImage": (_LATENT_SIZE, ["LATENT"]),
    "LatentFromBatch": (
        {"samples": ["LATENT"], "batch_index": _integer(0, 0, 63), "length": _integer(1, 1, 64)},
        ["LATENT"],
    ),
    "RepeatLatentBatch": ({"samples": ["LATENT"], "amount": _integer(1, 1, 64)}, ["LATENT"]),
    "KSampler": (
        {
            "model": ["MODEL"],
            "seed": _integer(0, 0, 2**64 - 1),
            "steps": _integer(20, 1, 10000),
            "cfg": _number(8, 100),
            "sampler_name": [SAMPLERS],
            "scheduler": [SCHEDULERS],
            "positive": _COND,
            "negative": _COND,
            "latent_image": ["LATENT"],
            "denoise": _number(1, 1),
        },
        ["LATENT"],
    ),
    "VAEEncode": ({"pixels": _IMAGE, "vae": ["VAE"]}, ["LATENT"]),
    "VAEDecode": ({"samples": ["LATENT"], "vae": ["VAE"]}, _IMAGE),
    "LoadImage": ({"image": [["example.png"], {"image_upload": True}]}, ["IMAGE", "MASK"]),
    "LoadImageMask": (
        {"image": [["example.png"], {"image_upload": True}], "channel": [["alpha", "red", "green", "blue"]]},
        ["MASK"],
    ),
    "SetLatentNoiseMask": ({"samples": ["LATENT"], "mask": ["MASK"]}, ["LATENT"]),
    "ImageFromBatch": (
        {"image": _IMAGE, "batch_index": _integer(0, 0, 4095), "length": _integer(1, 1, 4096)},
        _IMAGE,
    ),
    "ImageScale": (
        {
            "image": _IMAGE,
            "upscale_method": [METHODS],
            "width": _integer(512, 0, 16384),
            "height": _integer(512, 0, 16384),
            "crop": [["disabled", "center"]],
        },
        _IMAGE,
    ),
    "JoinImageWithAlpha": ({"image": ["IMAGE", {}], "alpha": ["MASK", {}]}, _IMAGE),
    "ImageUpscaleWithModel": ({"upscale_model": ["UPSCALE_MODEL", {}], "image": ["IMAGE", {}]}, _IMAGE),
    "CustomTint": (
        {"image": _IMAGE, "strength": _number(0.5, 1)},
        _IMAGE,
    ),
    "PreviewImage": ({"images": _IMAGE}, []),
    "SaveImage": ({"images": _IMAGE, "filename_prefix": ["STRING", {"default": "ComfyUI"}]}, []),
    "SaveImageWebsocket": ({"images": _IMAGE}, []),
    "PrimitiveString": ({"value": ["STRING", {}]}, ["STRING"]),
    "PreviewAny": ({"source": ["*", {}]}, []),
}


def _loaders(installed: InstalledFiles) -> dict[str, Row]:
    clips = list(installed.text_encoders)
    two = {"clip_name1": [clips], "clip_name2": [clips], "type": [["sdxl", "sd3", "flux"]]}
    unet = {"unet_name": [list(installed.diffusion_models)], "weight_dtype": [["default", "fp8_e4m3fn"]]}
    # Written as ComfyUI's later classes are.
    upscaler = ["COMBO", {"multiselect": False, "options": list(installed.upscale_models)}]
    return {
        "CheckpointLoaderSimple": ({"ckpt_name": [list(installed.checkpoints)]}, ["MODEL", "CLIP", "VAE"]),
        "UNETLoader": (unet, ["MODEL"]),
        "CLIPLoader": (
            {"clip_name": [clips], "type": [["lumina2", "qwen_image", "sd3", "wan", "ltxv"]]},
            ["CLIP"],
        ),
        "DualCLIPLoader": (two, ["CLIP"]),
        "VAELoader": ({"vae_name": [list(installed.vae)]}, ["VAE"]),
        "LoraLoader": (
            {
                "model": ["MODEL"],
                "clip": ["CLIP"],
                "lora_name": [list(installed.loras)],
                "strength_model": ["FLOAT", {"default": 1.0, "min": -100.0, "max": 100.0}],
                "strength_clip": ["FLOAT", {"default": 1.0, "min": -100.0, "max": 100.0}],
            },
            ["MODEL", "CLIP"],
        ),
        "UpscaleModelLoader": ({"model_name": upscaler}, ["UPSCALE_MODEL"]),
    }


def schemas(installed: InstalledFiles) -> dict[str, dict[str, Any]]:
    """`/object_info` of a server with these files."""
    return {
        name: {
            "input": {"required": required, "optional": comfyui_videos.OPTIONAL.get(name, {})},
            "input_order": {"required": list(required)},
            "output": outputs,
            "output_name": outputs,
            "output_is_list": [False] * len(outputs),
            "name": name,
            "display_name": name,
            "category": "fake",
            "output_node": name in OUTPUTS,
        }
        for name, (required, outputs) in {
            **_CLASSES,
            **comfyui_videos.REQUIRED,
            **_loaders(installed),
        }.items()
        if name not in installed.lacking
    }


OUTPUTS = comfyui_videos.OUTPUTS | {"PreviewImage", "SaveImage", "SaveImageWebsocket", "PreviewAny"}


@dataclass(frozen=True)
class Latent:
    """Images at an eighth of their size, and the place of each in its batch."""

    pixels: Floats
    positions: tuple[int, ...]
    mask: Floats | None = None


# -- what they do --------------------------------------------------------------------------------


async def _checkpoint(_run: Running, ckpt_name: str) -> tuple[Any, ...]:
    return ckpt_name, f"clip of {ckpt_name}", f"vae of {ckpt_name}"


async def _unet(_run: Running, unet_name: str, weight_dtype: str) -> tuple[Any, ...]:
    return (f"{unet_name} {weight_dtype}",)


async def _clip(_run: Running, **inputs: str) -> tuple[Any, ...]:
    return (" ".join(inputs.values()),)


async def _vae(_run: Running, vae_name: str) -> tuple[Any, ...]:
    return (vae_name,)


async def _lora(
    _run: Running, model: str, clip: str, lora_name: str, strength_model: float, strength_clip: float
) -> tuple[Any, ...]:
    return f"{model} {lora_name} {strength_model}", f"{clip} {lora_name} {strength_clip}"


async def _words(_run: Running, text: str, clip: str) -> tuple[Any, ...]:
    return (f"{text} [{clip}]",)


async def _nothing(_run: Running, conditioning: str) -> tuple[Any, ...]:
    return (conditioning[:0],)


async def _guide(_run: Running, conditioning: str, guidance: float) -> tuple[Any, ...]:
    return (f"{conditioning} {guidance}",)


async def _shift(_run: Running, model: str, shift: float) -> tuple[Any, ...]:
    return (f"{model} {shift}",)


async def _empty(_run: Running, width: int, height: int, batch_size: int) -> tuple[Any, ...]:
    return (_latent(np.full((batch_size, height // 8, width // 8, 3), 0.5, np.float32)),)


async def _repeat(_run: Running, samples: Latent, amount: int) -> tuple[Any, ...]:
    return (_latent(np.repeat(samples.pixels, amount, axis=0)),)


async def _pick(_run: Running, samples: Latent, batch_index: int, length: int) -> tuple[Any, ...]:
    remaining = slice(batch_index, batch_index + length)
    return (Latent(samples.pixels[remaining], samples.positions[remaining]),)


def _latent(pixels: Floats) -> Latent:
    return Latent(pixels, tuple(range(len(pixels))))


async def _sample(run: Running, **inputs: Any) -> tuple[Any, ...]:
    latent: Latent = inputs["latent_image"]
    if isinstance(latent, comfyui_videos.Reel):
        return (await comfyui_videos.sampled(run, latent, int(inputs["seed"]), int(inputs["steps"])),)
    messages = [inputs["model"], inputs["positive"], inputs["sampler_name"], inputs["scheduler"]]
    messages += [inputs["negative"]] if inputs["cfg"] > 1 else []
    key = [int(inputs["seed"]), zlib.crc32(" ".join(messages).encode()), int(inputs["steps"])]
    if len(latent.positions) > run.memory:
        raise MemoryError("Allocation on device 0 would exceed allowed memory. (out of memory)")
    for step in range(inputs["steps"]):
        await run.step(step + 1, inputs["steps"])
    size = latent.pixels.shape[1:3]
    fields = [_soft(np.random.default_rng([*key, position]), size) for position in latent.positions]
    share: Any = np.float32(inputs["denoise"])
    if latent.mask is not None:
        share = share * latent.mask[None, ..., None]
    mixed = (share * np.stack(fields) + (1 - share) * latent.pixels).astype(np.float32)
    return (Latent(mixed, latent.positions),)


def _soft(rng: np.random.Generator, size: tuple[int, ...]) -> Floats:
    coarse = Image.fromarray(rng.integers(0, 256, (5, 5, 3), dtype=np.uint8))
    smooth = coarse.resize((size[1], size[0]), Image.Resampling.BICUBIC)
    return np.asarray(smooth, np.float32) / 255


async def _encode(_run: Running, pixels: Floats, vae: str) -> tuple[Any, ...]:
    assert vae, "a VAE"
    height, width = (side // 8 * 8 for side in pixels.shape[1:3])
    tiles = pixels[:, :height, :width, :3].reshape(len(pixels), height // 8, 8, width // 8, 8, 3)
    return (_latent(tiles.mean(axis=(2, 4)).astype(np.float32)),)


async def _decode(_run: Running, samples: Latent | Floats, vae: str) -> tuple[Any, ...]:
    assert vae, "a VAE"
    if not isinstance(samples, Latent):
        return (samples,)
    return (samples.pixels.repeat(8, axis=1).repeat(8, axis=2),)


async def _load(run: Running, image: str) -> tuple[Any, ...]:
    frames: list[Floats] = []
    masks: list[Floats] = []
    with Image.open(io.BytesIO(run.file(image))) as opened_image:
        for number in range(getattr(opened_image, "n_frames", 1)):
            opened_image.seek(number)
            upright = ImageOps.exif_transpose(opened_image)
            frames.append(np.asarray(upright.convert("RGB"), np.float32) / 255)
            clear = upright.mode in {"RGBA", "LA"} or "transparency" in upright.info
            alpha = np.asarray(upright.convert("RGBA"), np.float32)[..., 3] / 255
            masks.append(1 - alpha if clear else np.zeros((64, 64), np.float32))
    return np.stack(frames), np.stack(masks)


async def _load_mask(run: Running, image: str, channel: str) -> tuple[Any, ...]:
    with Image.open(io.BytesIO(run.file(image))) as opened_image:
        band = opened_image.convert("RGBA").getchannel({"alpha": "A"}.get(channel, channel[0].upper()))
    mask = np.asarray(band, np.float32) / 255
    return ((1 - mask if channel == "alpha" else mask)[None],)


async def _set_mask(_run: Running, samples: Latent, mask: Floats) -> tuple[Any, ...]:
    height, width = samples.pixels.shape[1:3]
    scaled = _each(mask[..., None].repeat(3, axis=3), lambda image: image.resize((width, height)))[0, ..., 0]
    return (Latent(samples.pixels, samples.positions, scaled),)


async def _from_batch(_run: Running, image: Floats, batch_index: int, length: int) -> tuple[Any, ...]:
    return (image[batch_index : batch_index + length],)


async def _scale(_run: Running, image: Floats, **inputs: Any) -> tuple[Any, ...]:
    size = (int(inputs["width"]), int(inputs["height"]))
    if inputs["crop"] == "center":
        return (_each(image, lambda picture: ImageOps.fit(picture, size, Image.Resampling.LANCZOS)),)
    return (_each(image, lambda picture: picture.resize(size, Image.Resampling.LANCZOS)),)


async def _join(_run: Running, image: Floats, alpha: Floats) -> tuple[Any, ...]:
    size = (image.shape[2], image.shape[1])
    masks = _each(alpha[..., None].repeat(3, axis=3), lambda mask: mask.resize(size))[..., :1]
    count = min(len(image), len(masks))
    return (np.concatenate([image[:count, ..., :3], 1 - masks[:count]], axis=3),)


async def _upscaler(_run: Running, model_name: str) -> tuple[Any, ...]:
    return (2 if "2x" in model_name or "x2" in model_name else 4,)


async def _upscale(run: Running, upscale_model: int, image: Floats) -> tuple[Any, ...]:
    size = (image.shape[2] * upscale_model, image.shape[1] * upscale_model)
    for tile in range(2):
        await run.step(tile + 1, 2)
    return (_each(image, lambda picture: picture.resize(size, Image.Resampling.BICUBIC)),)


async def _tint(run: Running, image: Floats, strength: float) -> tuple[Any, ...]:
    for step in range(2):
        await run.step(step + 1, 2)
    red = np.asarray([1, 0, 0], np.float32) * np.float32(strength)
    return (image[..., :3] * np.float32(1 - strength) + red,)


def _each(images: Floats, change: Callable[[Image.Image], Image.Image]) -> Floats:
    results = [np.asarray(change(Image.fromarray(_bytes(image))), np.float32) / 255 for image in images]
    return np.stack(results)


def _bytes(image: Floats) -> NDArray[np.uint8]:
    return np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)


def _png(run: Running, image: Floats) -> bytes:
    facts = PngImagePlugin.PngInfo()
    facts.add_text("prompt", json.dumps(run.prompt))
    return image_files.encode(Image.fromarray(_bytes(image)), pnginfo=facts, compress_level=1)


async def _preview(run: Running, images: Floats) -> dict[str, Any]:
    return {"images": [run.keep("temp", "ComfyUI_temp", _png(run, image)) for image in images]}


async def _save(run: Running, images: Floats, filename_prefix: str) -> dict[str, Any]:
    return {"images": [run.keep("output", filename_prefix, _png(run, image)) for image in images]}


async def _send(run: Running, images: Floats) -> dict[str, Any]:
    for number, image in enumerate(images):
        await run.send(b"\0\0\0\1\0\0\0\2" + _png(run, image))
        await run.step(number + 1, len(images))
    return {}


async def _string(_run: Running, value: str) -> tuple[Any, ...]:
    return (value,)


async def _show(_run: Running, source: Any) -> dict[str, Any]:
    return {"text": [str(source)]}


NODES: dict[str, Callable[..., Awaitable[Any]]] = {
    "CheckpointLoaderSimple": _checkpoint,
    "UNETLoader": _unet,
    "CLIPLoader": _clip,
    "DualCLIPLoader": _clip,
    "VAELoader": _vae,
    "LoraLoader": _lora,
    "CLIPTextEncode": _words,
    "ConditioningZeroOut": _nothing,
    "FluxGuidance": _guide,
    "ModelSamplingAuraFlow": _shift,
    "EmptyLatentImage": _empty,
    "EmptySD3LatentImage": _empty,
    "RepeatLatentBatch": _repeat,
    "LatentFromBatch": _pick,
    "KSampler": _sample,
    "VAEEncode": _encode,
    "VAEDecode": _decode,
    "LoadImage": _load,
    "LoadImageMask": _load_mask,
    "SetLatentNoiseMask": _set_mask,
    "ImageFromBatch": _from_batch,
    "ImageScale": _scale,
    "JoinImageWithAlpha": _join,
    "UpscaleModelLoader": _upscaler,
    "ImageUpscaleWithModel": _upscale,
    "CustomTint": _tint,
    "PreviewImage": _preview,
    "SaveImage": _save,
    "SaveImageWebsocket": _send,
    "PrimitiveString": _string,
    "PreviewAny": _show,
    **comfyui_videos.NODES,
}
