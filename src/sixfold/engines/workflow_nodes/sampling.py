"""Sampling nodes: the decoding node starts a child prediction of the platform's image or video model."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np

from sixfold.core.catalog.engines import EngineError
from sixfold.core.workflows.estimate import MAX_BATCH
from sixfold.core.workflows.ports import ChildRequest, NodeChild, NodeContext, NodeFile, Run
from sixfold.engines.workflow_nodes import frame_split, values
from sixfold.engines.workflow_nodes.latents import LatentRequest, LatentTerm, read
from sixfold.engines.workflow_nodes.scaling import scaled
from sixfold.engines.workflow_nodes.values import Frames, Mask, VideoValue, frames

IMAGE, RESTYLE, VIDEO = "graph-image", "graph-restyle", "graph-film"
_SEEDS = 2**31
_MIN_SIDE = 64  # smaller images are generated larger and scaled down


def estimate(inputs: Mapping[str, Any]) -> tuple[ChildRequest, ...]:
    """Return the child requests for decoding a latent, without input images, for an estimate."""
    latent = inputs.get("samples")
    if not isinstance(latent, LatentTerm):
        return ()
    request = read(latent)
    if not request.sampled:
        return ()
    request.width, request.height = request.width or 1024, request.height or 1024
    return (_child_request(request, 0, None),) * (1 if request.length else request.count)


async def decode(context: NodeContext, samples: Any, **_: Any) -> tuple[Frames | VideoValue]:
    """Decode a latent by child predictions; returns images or a video."""
    if not isinstance(samples, LatentTerm):
        raise EngineError("samples must be a latent.")
    request = read(samples)
    source = None if request.source is None else await asyncio.to_thread(frames, request.source)
    if not request.sampled:
        if source is None:
            raise EngineError("The latent has not been sampled: connect it to a sampler node.")
        return (source,)
    if source is not None and not request.width:
        request.height, request.width = source.shape[1:3]
    if not request.width:
        raise EngineError("The latent has no size: connect a source image or set width and height.")
    if request.count > MAX_BATCH:
        raise EngineError(f"A batch must have at most {MAX_BATCH} images (got {request.count}).")
    image = None if source is None else await asyncio.to_thread(_upload, context, source, request)
    if request.length:
        video = await context.child(_child_request(request, 0, image))
        return (await asyncio.to_thread(_video, video, request),)
    requests = [_child_request(request, at, image) for at in range(request.count)]
    children = [await context.child(request) for request in requests]
    return (await asyncio.to_thread(_images, context, children, request, source),)


def _upload(context: NodeContext, source: Frames, request: LatentRequest) -> NodeFile:
    resized = scaled(source[:1, ..., :3], request.width, request.height, "area", "center")
    return values.file(context, resized)


def _child_request(request: LatentRequest, at: int, image: NodeFile | None) -> ChildRequest:
    """Return the child request for one image, or for the video."""
    shared: dict[str, Any] = {
        "negative_prompt": request.negative,
        "seed": (request.seed + at) % _SEEDS,
        "steps": max(1, min(request.steps, 150)),
        "guidance": max(0.0, min(request.cfg, 30.0)),
    }
    if request.length:
        size = {"width": _even(request.width), "height": _even(request.height)}
        rate = max(1, min(60, round(request.fps)))
        order = {
            **shared,
            **size,
            "prompt": request.prompt,
            "num_frames": request.length,
            "frames_per_second": rate,
        }
        return ChildRequest(VIDEO, {**order, **({"image_url": image} if image else {})})
    if not request.from_scratch:
        words = {"style_prompt": request.prompt, "strength": max(0.01, min(request.denoise, 1.0))}
        return ChildRequest(RESTYLE, {**shared, **words, **({"source_image_url": image} if image else {})})
    larger = max(1, -(-_MIN_SIDE // min(request.width, request.height)))
    size = {"width": request.width * larger, "height": request.height * larger}
    return ChildRequest(IMAGE, {**shared, "prompt": request.prompt, **size})


def _even(side: int) -> int:
    return max(2, side // 2 * 2)


def _images(
    context: NodeContext, children: list[NodeChild], request: LatentRequest, source: Frames | None
) -> Frames:
    series = [scaled(_image(child), request.width, request.height, "lanczos") for child in children]
    result = np.concatenate(series)
    if request.mask is not None and source is not None:
        result = _blend(result, scaled(source[..., :3], request.width, request.height, "area"), request.mask)
    if request.control is not None:
        result = follow_lines(result, frames(request.control.image), request.control.strength)
    context.preview(values.small_jpeg(values.to_bytes(result[:1])[0]))
    return result


def _image(child: NodeChild) -> Frames:
    if not child.files:
        raise EngineError("The model did not return an image.")
    return values.read(child.files[0].path)[0]


def _blend(result: Frames, source: Frames, mask: Any) -> Frames:
    cover = scaled(values.mask(mask)[..., None], result.shape[2], result.shape[1], "bilinear")
    return (result * cover + source * (1 - cover)).astype(np.float32)


def follow_lines(result: Frames, lines: Frames, strength: float) -> Frames:
    """Redraw images along lines: colors are smoothed between the lines, which are drawn on top."""
    guides = scaled(lines[..., :3], result.shape[2], result.shape[1], "bilinear", "center").mean(-1)
    weight = np.float32(max(0.0, min(strength, 1.0)))
    drawings = [
        _draw(image, np.ascontiguousarray(guides[min(at, len(guides) - 1)]), weight)
        for at, image in enumerate(result)
    ]
    return np.stack(drawings).astype(np.float32)


def _draw(image: Frames, line: Mask, weight: np.float32) -> Frames:
    side = max(image.shape[:2])
    wall = np.clip(cv2.GaussianBlur(line, (0, 0), 1.2) * 3, 0, 1)
    guide = np.repeat(wall[..., None], 3, -1)
    flat = cv2.ximgproc.dtFilter(
        guide, np.ascontiguousarray(image), side / 16, 0.2, mode=cv2.ximgproc.DTF_NC, numIters=3
    )
    wash = flat + 0.7 * (image - cv2.GaussianBlur(image, (0, 0), side / 85))
    mixed = image + (wash - image) * weight
    ink = np.clip(cv2.GaussianBlur(line, (0, 0), side / 800) * 1.8, 0, 1)[..., None] * weight
    return np.clip(mixed * (1 - ink * 0.85), 0, 1)


def _video(child: NodeChild, request: LatentRequest) -> VideoValue | Frames:
    if not child.files:
        raise EngineError("The model did not return a video.")
    if request.control is None:
        return VideoValue(child.files[0])
    images = frame_split.decode_frames(child.files[0].path)[0][: request.length]
    return follow_lines(images, frames(request.control.image), request.control.strength)


RUNS: Mapping[str, Run] = {"VAEDecode": decode, "VAEDecodeTiled": decode}
