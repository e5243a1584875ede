"""Latents into pictures: one order for the platform's image or film model at the node that decodes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import cv2
import numpy as np

from sixfold.core.catalog.engines import EngineError
from sixfold.core.workflows.estimate import MOST
from sixfold.core.workflows.ports import ChildRequest, NodeChild, NodeContext, NodeFile, Run
from sixfold.engines.workflow_nodes import frame_split, values
from sixfold.engines.workflow_nodes.latents import LatentRequest, LatentTerm, read
from sixfold.engines.workflow_nodes.scaling import scaled
from sixfold.engines.workflow_nodes.values import Frames, Mask, VideoValue, frames

IMAGE, RESTYLE, FILM = "graph-image", "graph-restyle", "graph-film"
_SEEDS = 2**31
_LEAST_SIDE = 64  # what is smaller is painted larger, and brought to size


def asked(inputs: Mapping[str, Any]) -> tuple[ChildRequest, ...]:
    """What decoding a latent will order, without the pictures that go along."""
    latent = inputs.get("samples")
    if not isinstance(latent, LatentTerm):
        return ()
    wish = read(latent)
    if not wish.sampled:
        return ()
    wish.width, wish.height = wish.width or 1024, wish.height or 1024
    return (_order(wish, 0, None),) * (1 if wish.length else wish.count)


async def decode(context: NodeContext, samples: Any, **_: Any) -> tuple[Frames | VideoValue]:
    """A latent's pictures, ordered from the platform."""
    if not isinstance(samples, LatentTerm):
        raise EngineError("there is nothing to decode")
    wish = read(samples)
    source = None if wish.source is None else await asyncio.to_thread(frames, wish.source)
    if not wish.sampled:
        if source is None:
            raise EngineError("the latent was never sampled")
        return (source,)
    if source is not None and not wish.width:
        wish.height, wish.width = source.shape[1:3]
    if not wish.width:
        raise EngineError("the latent has no size")
    if wish.count > MOST:
        raise EngineError(f"at most {MOST} pictures are made at once")
    picture = None if source is None else await asyncio.to_thread(_sent, context, source, wish)
    if wish.length:
        film = await context.child(_order(wish, 0, picture))
        return (await asyncio.to_thread(_film, film, wish),)
    orders = [_order(wish, at, picture) for at in range(wish.count)]
    children = [await context.child(each) for each in orders]
    return (await asyncio.to_thread(_pictures, context, children, wish, source),)


def _sent(context: NodeContext, source: Frames, wish: LatentRequest) -> NodeFile:
    resized = scaled(source[:1, ..., :3], wish.width, wish.height, "area", "center")
    return values.file(context, resized)


def _order(wish: LatentRequest, at: int, picture: NodeFile | None) -> ChildRequest:
    """The order for one picture, or for the film."""
    shared: dict[str, Any] = {
        "negative_prompt": wish.negative,
        "seed": (wish.seed + at) % _SEEDS,
        "steps": max(1, min(wish.steps, 150)),
        "guidance": max(0.0, min(wish.cfg, 30.0)),
    }
    if wish.length:
        size = {"width": _even(wish.width), "height": _even(wish.height)}
        rate = max(1, min(60, round(wish.fps)))
        order = {
            **shared,
            **size,
            "prompt": wish.prompt,
            "num_frames": wish.length,
            "frames_per_second": rate,
        }
        return ChildRequest(FILM, {**order, **({"image_url": picture} if picture else {})})
    if not wish.anew:
        words = {"style_prompt": wish.prompt, "strength": max(0.01, min(wish.denoise, 1.0))}
        return ChildRequest(
            RESTYLE, {**shared, **words, **({"source_image_url": picture} if picture else {})}
        )
    larger = max(1, -(-_LEAST_SIDE // min(wish.width, wish.height)))
    size = {"width": wish.width * larger, "height": wish.height * larger}
    return ChildRequest(IMAGE, {**shared, "prompt": wish.prompt, **size})


def _even(side: int) -> int:
    return max(2, side // 2 * 2)


def _pictures(
    context: NodeContext, children: list[NodeChild], wish: LatentRequest, source: Frames | None
) -> Frames:
    series = [scaled(_picture(child), wish.width, wish.height, "lanczos") for child in children]
    made = np.concatenate(series)
    if wish.mask is not None and source is not None:
        made = _inside(made, scaled(source[..., :3], wish.width, wish.height, "area"), wish.mask)
    if wish.control is not None:
        made = led(made, frames(wish.control.image), wish.control.strength)
    context.preview(values.small_jpeg(values.whole(made[:1])[0]))
    return made


def _picture(child: NodeChild) -> Frames:
    if not child.files:
        raise EngineError("the model gave no picture")
    return values.read(child.files[0].path)[0]


def _inside(made: Frames, source: Frames, mask: Any) -> Frames:
    """What was made where the mask is white, the source elsewhere."""
    cover = scaled(values.mask(mask)[..., None], made.shape[2], made.shape[1], "bilinear")
    return (made * cover + source * (1 - cover)).astype(np.float32)


def led(made: Frames, lines: Frames, strength: float) -> Frames:
    """Pictures drawn along lines: their colours run together up to the lines, which are inked over them."""
    guides = scaled(lines[..., :3], made.shape[2], made.shape[1], "bilinear", "center").mean(-1)
    weight = np.float32(max(0.0, min(strength, 1.0)))
    drawn = [
        _drawn(picture, np.ascontiguousarray(guides[min(at, len(guides) - 1)]), weight)
        for at, picture in enumerate(made)
    ]
    return np.stack(drawn).astype(np.float32)


def _drawn(picture: Frames, line: Mask, weight: np.float32) -> Frames:
    side = max(picture.shape[:2])
    wall = np.clip(cv2.GaussianBlur(line, (0, 0), 1.2) * 3, 0, 1)
    guide = np.repeat(wall[..., None], 3, -1)
    flat = cv2.ximgproc.dtFilter(
        guide, np.ascontiguousarray(picture), side / 16, 0.2, mode=cv2.ximgproc.DTF_NC, numIters=3
    )
    wash = flat + 0.7 * (picture - cv2.GaussianBlur(picture, (0, 0), side / 85))
    mixed = picture + (wash - picture) * weight
    ink = np.clip(cv2.GaussianBlur(line, (0, 0), side / 800) * 1.8, 0, 1)[..., None] * weight
    return np.clip(mixed * (1 - ink * 0.85), 0, 1)


def _film(child: NodeChild, wish: LatentRequest) -> VideoValue | Frames:
    if not child.files:
        raise EngineError("the model gave no film")
    if wish.control is None:
        return VideoValue(child.files[0])
    pictures = frame_split.taken_apart(child.files[0].path)[0][: wish.length]
    return led(pictures, frames(wish.control.image), wish.control.strength)


RUNS: Mapping[str, Run] = {"VAEDecode": decode, "VAEDecodeTiled": decode}
