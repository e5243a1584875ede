"""What a film begins with: a picture that was sent in, cut to the film's shape, or one that is painted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image import decode
from sixfold.engines.image.scene import noise, painter
from sixfold.engines.image.scene.finishing import RenderQuality
from sixfold.engines.image.scene.prompt_parser import ParsedScene
from sixfold.engines.video import depth
from sixfold.engines.video.layers import SourceStill

Array = NDArray[Any]

_PAINT_MOST = 1536  # pixels of the longer side that a scene is painted at
_FRONTS = (0.38, 0.72)  # of nearness: what a painted scene shows before the rest, and before that
_FARTHEST_OF_ALL = 0.985  # of a painter's depth: nothing was painted over the sky


def opened(path: Path, least: int) -> Array:
    """The picture at `path` in RGB bytes, upright; what is transparent is laid on grey.

    A JPEG is read no larger than needed for sides of `least`. Raises `UnreadableImage`.
    """
    picture = decode.decode(path, target=(least, least))
    if picture.alpha is None:
        return picture.rgb
    share = picture.alpha[..., None].astype(np.float32) / 255
    return (picture.rgb * share + 128 * (1 - share)).astype(np.uint8)


def sent(picture: Array, size: tuple[int, int]) -> SourceStill:
    """A picture that was sent in, its middle cut to the shape of `size` (width, height) and scaled to it."""
    rgb = covering(picture, size)
    guess = depth.estimate(rgb)
    fronts = () if guess.subject is None else (_refined(guess.subject, rgb),)
    return SourceStill(rgb, guess.near, fronts, guess.sky)


def covering(rgb: Array, size: tuple[int, int]) -> Array:
    """The middle of a picture in the shape of `size` (width, height), scaled to it."""
    height, width = rgb.shape[:2]
    scale = max(size[0] / width, size[1] / height)
    across, down = min(width, round(size[0] / scale)), min(height, round(size[1] / scale))
    left, top = (width - across) // 2, (height - down) // 2
    part = np.ascontiguousarray(rgb[top : top + max(1, down), left : left + max(1, across)])
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    return part if part.shape[:2] == size[::-1] else cv2.resize(part, size, interpolation=how)


def _refined(subject: Array, rgb: Array) -> Array:
    """A subject's cut drawn to the picture's edges at a larger size."""
    scale = min(1.0, 800 / max(rgb.shape[:2]))
    size = (max(8, round(rgb.shape[1] * scale)), max(8, round(rgb.shape[0] * scale)))
    guide = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA).astype(np.float32) / 255
    wide = cv2.resize(subject, size, interpolation=cv2.INTER_LINEAR)
    return np.clip(cv2.ximgproc.guidedFilter(guide, wide, 7, 1e-4), 0, 1)


def painted(
    scene: ParsedScene, seed: int, size: tuple[int, int], step: Callable[[str], None], effort: RenderQuality
) -> SourceStill:
    """The scene, painted; its depth is the painter's own, so near things stand before far ones exactly."""
    scale = min(1.0, _PAINT_MOST / max(size))
    shape = (2 * round(size[1] * scale / 2), 2 * round(size[0] * scale / 2))
    stage = painter.stage_scene(
        scene, "ra2v", noise.stable_seed("film", seed, scene.prompt), shape, step, lightning=False
    )
    painter.finish(stage, falling=False)
    eight = cv2.convertScaleAbs(effort.applied(stage.image), alpha=255.0)
    rgb = eight if scale == 1.0 else cv2.resize(eight, size, interpolation=cv2.INTER_CUBIC)
    near = np.clip(1 - stage.depth, 0, 1).astype(np.float32)
    sky = (stage.depth > _FARTHEST_OF_ALL).astype(np.float32)
    fronts = [(near > level).astype(np.float32) for level in _FRONTS]
    seen = tuple(front for front in fronts if 0.004 < front.mean() < 0.8)
    return SourceStill(rgb, near, seen, sky, stage.water)
