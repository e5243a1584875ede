"""Frames out of a film pipeline, in pieces: each begins with the frame that ended the one before it."""

# pyright: reportMissingImports=false

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import diffusers
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image.diffusers import image_checks, placement
from sixfold.engines.image.diffusers.loading import LoadedPipeline
from sixfold.engines.video.diffusers.profiles import VideoProfile

Array = NDArray[Any]

_library: Any = diffusers  # it makes its names when they are asked for
_AT_ONCE = 8  # frames whose widest layers a decoder holds together
_DENOISERS, _BLOCKS = ("transformer", "transformer_2"), ("blocks", "transformer_blocks")
_NEW = 0.1  # of what the first block adds: how far that must have changed for the others to run


@dataclass(frozen=True, slots=True)
class VideoPlan:
    """What a pipeline is asked for: `frames` of `size` (width, height), the first of them `picture`.

    `cached`: a step that hardly differs from the one before goes on with what that computed.
    """

    prompt: str
    negative: str
    seed: int
    frames: int
    rate: int
    size: tuple[int, int]
    steps: int
    guidance: float
    picture: Array | None
    cached: bool = False


def frames(
    loaded: LoadedPipeline, profile: VideoProfile, plan: VideoPlan, step: Callable[[float], None]
) -> Iterator[Array]:
    """At least the planned frames (height, width, 3) in order; `step` hears how far the denoising is.

    What one run cannot hold is made in pieces; raises `EngineError` where the weights cannot do it.
    """
    if plan.picture is None and not profile.words:
        raise EngineError(f"The weights {loaded.source.name} make films from pictures only.")
    if plan.picture is not None and not profile.pictured:
        raise EngineError(f"The weights {loaded.source.name} make films from words only.")
    if plan.frames > profile.frames + profile.group and not profile.pictured:
        raise EngineError(
            f"The weights {loaded.source.name} make {profile.frames / profile.rate:g} seconds at most: "
            "ask for a shorter film."
        )
    done, piece, last = 0, 0, plan.picture
    while done < plan.frames:
        count = profile.count_for(plan.frames - done + (1 if done else 0))
        begun = done / plan.frames
        share = min(1.0, count / plan.frames)
        made = _piece(
            loaded,
            profile,
            plan,
            _VideoPiece(count, plan.seed + piece, last),
            lambda part, begun=begun, share=share: step(min(1.0, begun + share * part)),
        )
        yield from made[1 if done else 0 :]  # a later piece's first frame is the last that was shown
        done += len(made) - (1 if done else 0)
        piece, last = piece + 1, made[-1]


@dataclass(frozen=True, slots=True)
class _VideoPiece:
    count: int
    seed: int
    first: Array | None


def _piece(
    loaded: LoadedPipeline,
    profile: VideoProfile,
    plan: VideoPlan,
    piece: _VideoPiece,
    step: Callable[[float], None],
) -> list[Array]:
    pipeline = _pipeline(loaded, profile, pictured=piece.first is not None)
    width, height = plan.size
    wide = placement.decode_bytes(pipeline, width * height, loaded.where.item_bytes) * _AT_ONCE
    placement.tile(pipeline, loaded.tiled or wide > placement.free_bytes(loaded.where.kind))

    def heard(_pipeline: Any, index: int, _time: Any, kept: Mapping[str, Any]) -> Mapping[str, Any]:
        step((index + 1) / plan.steps)
        return kept

    asked: dict[str, Any] = {
        "prompt": plan.prompt,
        "negative_prompt": plan.negative,
        "width": width,
        "height": height,
        "num_frames": piece.count,
        "num_inference_steps": plan.steps,
        "guidance_scale": plan.guidance,
        "generator": torch.Generator("cpu").manual_seed(piece.seed),
        "output_type": "np",
        "callback_on_step_end": heard,
    }
    if profile.rated:
        asked["frame_rate"] = plan.rate
    if piece.first is not None:
        asked["image"] = Image.fromarray(piece.first)
    with _caching(pipeline) if plan.cached and loaded.offload != "sequential" else nullcontext():
        made = np.asarray(pipeline(**asked).frames[0])
    for frame in (made[0], made[len(made) // 2]):
        fault = image_checks.find_fault(frame.min((0, 1)).tolist(), frame.max((0, 1)).tolist())
        if fault is not None:
            raise EngineError(f"The model gave {fault.replace('a picture', 'frames')}; try another seed.")
    return [np.rint(np.clip(frame, 0, 1) * 255).astype(np.uint8) for frame in made]


def _pipeline(loaded: LoadedPipeline, profile: VideoProfile, *, pictured: bool) -> Any:
    """The pipeline for words, or the one of the same components that begins with a picture."""
    if not pictured or type(loaded.pipeline).__name__ == profile.pictured:
        pipeline = loaded.pipeline_for(image=False)
    else:
        pipeline = loaded.derive((True, "film"), lambda: _sibling(loaded.pipeline, profile.pictured))
    if profile.exact_vae and loaded.offload != "sequential":
        pipeline.vae.to(torch.float32)
    return pipeline


@contextmanager
def _caching(pipeline: Any) -> Iterator[None]:
    """The first block of each transformer runs at every step, the others where it says something new."""
    cached = [
        one
        for name in _DENOISERS
        if (one := pipeline.components.get(name)) is not None
        and hasattr(one, "enable_cache")
        and sum(len(getattr(one, blocks, ())) for blocks in _BLOCKS) > 1
    ]
    try:
        for one in cached:
            one.enable_cache(_library.hooks.FirstBlockCacheConfig(threshold=_NEW))
        yield
    finally:
        for one in cached:
            one.disable_cache()


def _sibling(pipeline: Any, name: str) -> Any:
    kind = getattr(_library, name)
    known = {**pipeline.config, **pipeline.components}
    taken = inspect.signature(kind.__init__).parameters
    made = kind(**{key: known[key] for key in taken if key in known})
    made.set_progress_bar_config(disable=True)
    return made
