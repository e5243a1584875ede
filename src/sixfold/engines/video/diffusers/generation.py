"""Generation of frames by a video pipeline in pieces, each starting from the previous piece's last frame."""

# pyright: reportMissingImports=false

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import diffusers
import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image.diffusers import image_checks, placement
from sixfold.engines.image.diffusers.loading import LoadedPipeline
from sixfold.engines.video.diffusers.profiles import VideoProfile

Array = NDArray[Any]

# Typed as Any because diffusers resolves its names lazily.
_library: Any = diffusers
# Number of frames in a decoder's widest layers at the same time.
_DECODED_TOGETHER = 8
_DENOISERS, _BLOCKS = ("transformer", "transformer_2"), ("blocks", "transformer_blocks")
# The relative change of the first block's output above which the other blocks run again.
_CACHE_THRESHOLD = 0.1


class VideoPlan(msgspec.Struct, frozen=True):
    """A request to a pipeline: `frames` of `size` (width, height), starting with `image` if it is set.

    With `cached`, denoising steps that hardly differ from the previous one reuse its results.
    """

    prompt: str
    negative: str
    seed: int
    frames: int
    rate: int
    size: tuple[int, int]
    steps: int
    guidance: float
    image: Array | None
    cached: bool = False


def frames(
    loaded: LoadedPipeline, profile: VideoProfile, plan: VideoPlan, progress: Callable[[float], None]
) -> Iterator[Array]:
    """Yield at least the planned frames (height, width, 3) and report the progress of denoising from 0 to 1.

    Longer videos are generated in pieces. Raises `EngineError` if the weights do not support the plan.
    """
    if plan.image is None and not profile.words:
        raise EngineError(f"The weights {loaded.source.name} require an input image.")
    if plan.image is not None and not profile.pictured:
        raise EngineError(f"The weights {loaded.source.name} do not support an input image.")
    if plan.frames > profile.frames + profile.group and not profile.pictured:
        raise EngineError(
            f"The weights {loaded.source.name} generate at most {profile.frames / profile.rate:g} seconds; "
            "request a shorter video."
        )
    done, piece, last = 0, 0, plan.image
    while done < plan.frames:
        count = profile.count_for(plan.frames - done + (1 if done else 0))
        start = done / plan.frames
        share = min(1.0, count / plan.frames)
        frames = _piece(
            loaded,
            profile,
            plan,
            _VideoPiece(count, plan.seed + piece, last),
            lambda part, start=start, share=share: progress(min(1.0, start + share * part)),
        )
        # The first frame of a later piece repeats the last frame of the piece before it.
        yield from frames[1 if done else 0 :]
        done += len(frames) - (1 if done else 0)
        piece, last = piece + 1, frames[-1]


class _VideoPiece(msgspec.Struct, frozen=True):
    count: int
    seed: int
    first: Array | None


def _piece(
    loaded: LoadedPipeline,
    profile: VideoProfile,
    plan: VideoPlan,
    piece: _VideoPiece,
    progress: Callable[[float], None],
) -> list[Array]:
    pipeline = _pipeline(loaded, profile, from_image=piece.first is not None)
    width, height = plan.size
    needed = placement.decode_bytes(pipeline, width * height, loaded.where.item_bytes) * _DECODED_TOGETHER
    placement.tile(pipeline, loaded.tiled or needed > placement.free_bytes(loaded.where.kind))

    def on_step_end(_pipeline: Any, index: int, _time: Any, state: Mapping[str, Any]) -> Mapping[str, Any]:
        progress((index + 1) / plan.steps)
        return state

    arguments: dict[str, Any] = {
        "prompt": plan.prompt,
        "negative_prompt": plan.negative,
        "width": width,
        "height": height,
        "num_frames": piece.count,
        "num_inference_steps": plan.steps,
        "guidance_scale": plan.guidance,
        "generator": torch.Generator("cpu").manual_seed(piece.seed),
        "output_type": "np",
        "callback_on_step_end": on_step_end,
    }
    if profile.rated:
        arguments["frame_rate"] = plan.rate
    if piece.first is not None:
        arguments["image"] = Image.fromarray(piece.first)
    with _caching(pipeline) if plan.cached and loaded.offload != "sequential" else nullcontext():
        frames = np.asarray(pipeline(**arguments).frames[0])
    for frame in (frames[0], frames[len(frames) // 2]):
        fault = image_checks.find_fault(frame.min((0, 1)).tolist(), frame.max((0, 1)).tolist())
        if fault is not None:
            raise EngineError(f"The model returned {fault} as a frame: try another seed.")
    return [np.rint(np.clip(frame, 0, 1) * 255).astype(np.uint8) for frame in frames]


def _pipeline(loaded: LoadedPipeline, profile: VideoProfile, *, from_image: bool) -> Any:
    """Return the text-to-video pipeline, or the image-to-video pipeline with the same components."""
    if not from_image or type(loaded.pipeline).__name__ == profile.pictured:
        pipeline = loaded.pipeline_for(image=False)
    else:
        pipeline = loaded.derive((True, "video"), lambda: _convert(loaded.pipeline, profile.pictured))
    if profile.exact_vae and loaded.offload != "sequential":
        pipeline.vae.to(torch.float32)
    return pipeline


@contextmanager
def _caching(pipeline: Any) -> Iterator[None]:
    """Enable first-block caching: later blocks run only when the first block's output has changed."""
    cached = [
        one
        for name in _DENOISERS
        if (one := pipeline.components.get(name)) is not None
        and hasattr(one, "enable_cache")
        and sum(len(getattr(one, blocks, ())) for blocks in _BLOCKS) > 1
    ]
    try:
        for one in cached:
            one.enable_cache(_library.hooks.FirstBlockCacheConfig(threshold=_CACHE_THRESHOLD))
        yield
    finally:
        for one in cached:
            one.disable_cache()


def _convert(pipeline: Any, name: str) -> Any:
    """Return a pipeline of another class with the same configuration and components."""
    kind = getattr(_library, name)
    values = {**pipeline.config, **pipeline.components}
    parameters = inspect.signature(kind.__init__).parameters
    converted = kind(**{key: values[key] for key in parameters if key in values})
    converted.set_progress_bar_config(disable=True)
    return converted
