"""The still image of a video: an input image cropped to the video's shape, or a painted scene."""

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
from sixfold.engines.image.scene.subjects import SubjectSpot
from sixfold.engines.video import depth, layers
from sixfold.engines.video.layers import MoverGait, MovingSprite, SourceStill
from sixfold.engines.video.motion import movers

Array = NDArray[Any]

# The longest side, in pixels, at which a scene is painted.
_MAX_PAINTED_SIDE = 1536
# Nearness levels at which a painted scene is split into layers.
_FOREGROUND_LEVELS = (0.38, 0.72)
# The depth in a painted scene beyond which only sky is visible.
_SKY_DEPTH = 0.985


def open_rgb(path: Path, min_side: int) -> Array:
    """Return the image at `path` as upright RGB bytes; transparent regions are blended with gray.

    A JPEG may be decoded at a reduced size that is still at least `min_side`. Raises `UnreadableImage`.
    """
    image = decode.decode(path, target=(min_side, min_side))
    if image.alpha is None:
        return image.rgb
    share = image.alpha[..., None].astype(np.float32) / 255
    return (image.rgb * share + 128 * (1 - share)).astype(np.uint8)


def from_image(image: Array, size: tuple[int, int]) -> SourceStill:
    """Return the still of an input image, fitted to `size` (width, height), with estimated depth."""
    rgb = crop_to_fill(image, size)
    guess = depth.estimate(rgb)
    fronts = () if guess.subject is None else (_refine(guess.subject, rgb),)
    return SourceStill(rgb, guess.near, fronts, guess.sky)


def crop_to_fill(rgb: Array, size: tuple[int, int]) -> Array:
    """Return the center of an image, cropped to the shape of `size` (width, height) and scaled to it."""
    height, width = rgb.shape[:2]
    scale = max(size[0] / width, size[1] / height)
    across, down = min(width, round(size[0] / scale)), min(height, round(size[1] / scale))
    left, top = (width - across) // 2, (height - down) // 2
    part = np.ascontiguousarray(rgb[top : top + max(1, down), left : left + max(1, across)])
    interpolation = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    return part if part.shape[:2] == size[::-1] else cv2.resize(part, size, interpolation=interpolation)


def _refine(subject: Array, rgb: Array) -> Array:
    """Align a subject's mask with the image's edges at a larger size."""
    scale = min(1.0, 800 / max(rgb.shape[:2]))
    size = (max(8, round(rgb.shape[1] * scale)), max(8, round(rgb.shape[0] * scale)))
    guide = cv2.resize(rgb, size, interpolation=cv2.INTER_AREA).astype(np.float32) / 255
    wide = cv2.resize(subject, size, interpolation=cv2.INTER_LINEAR)
    return np.clip(cv2.ximgproc.guidedFilter(guide, wide, 7, 1e-4), 0, 1)


def paint(
    scene: ParsedScene, seed: int, size: tuple[int, int], step: Callable[[str], None], effort: RenderQuality
) -> SourceStill:
    """Paint a scene; its depth comes from the painter, so the layers are exact.

    Subjects that move are sprites, and the still shows the scene without them.
    """
    scale = min(1.0, _MAX_PAINTED_SIDE / max(size))
    shape = (2 * round(size[1] * scale / 2), 2 * round(size[0] * scale / 2))
    gaits = movers.gaits_of(scene)
    key = noise.stable_seed("film", seed, scene.prompt)
    moving = painter.stage_moving_scene(scene, "ra2v", key, shape, step, gaits.keys())
    stage = moving.base
    rgb = _finished(stage, size, effort)
    near = np.clip(1 - stage.depth, 0, 1).astype(np.float32)
    sky = (stage.depth > _SKY_DEPTH).astype(np.float32)
    fronts = [(near > level).astype(np.float32) for level in _FOREGROUND_LEVELS]
    visible = tuple(front for front in fronts if 0.004 < front.mean() < 0.8)
    sprites: tuple[MovingSprite, ...] = ()
    if moving.movers:
        full = _finished(moving.full, size, effort)
        sprites = tuple(
            _sprite(mover, _base(mover, moving, scene), moving.ground, full, gaits[mover.name])
            for mover in moving.movers
        )
    return SourceStill(rgb, near, visible, sky, stage.water, sprites)


def _finished(stage: painter.SceneStage, size: tuple[int, int], effort: RenderQuality) -> Array:
    painter.finish(stage, falling=False)
    pixels = cv2.convertScaleAbs(effort.apply(stage.image), alpha=255.0)
    return (
        pixels if pixels.shape[:2] == size[::-1] else cv2.resize(pixels, size, interpolation=cv2.INTER_CUBIC)
    )


def _base(mover: painter.PaintedMover, moving: painter.MovingScene, scene: ParsedScene) -> SubjectSpot:
    """Return the position of a mover, or that of the animal or vehicle that it rides."""
    if mover.spot.cut is None or scene.link is None:
        return mover.spot
    return next((each.spot for each in moving.movers if each.name == scene.link[2]), mover.spot)


def _sprite(
    mover: painter.PaintedMover, spot: SubjectSpot, ground: Array, full: Array, gait: MoverGait
) -> MovingSprite:
    """Cut a mover out of the finished image; it moves as a subject at `spot`, near as the ground there."""
    height, width = full.shape[:2]
    scale = height / mover.alpha.shape[0]
    alpha = cv2.resize(mover.alpha, (width, height), interpolation=cv2.INTER_LINEAR)
    rows, columns = np.flatnonzero(alpha.max(1) > 0.02), np.flatnonzero(alpha.max(0) > 0.02)
    top, left = max(0, int(rows[0]) - 2) & ~1, max(0, int(columns[0]) - 2) & ~1
    bottom, right = min(height, (int(rows[-1]) + 4) & ~1), min(width, (int(columns[-1]) + 4) & ~1)
    foot = int(np.clip(spot.foot, 0, ground.shape[0] - 1)), int(np.clip(spot.x, 0, ground.shape[1] - 1))
    below = float(np.clip(1 - ground[foot], 0, 1))
    return MovingSprite(
        name=mover.name,
        rgb=full[top:bottom, left:right],
        matte=cv2.convertScaleAbs(alpha[top:bottom, left:right], alpha=255.0),
        left=left,
        top=top,
        center=spot.x * scale,
        height=spot.height * scale,
        is_mirrored=spot.flip,
        nearness=min(1 - spot.depth, below + layers.ABOVE_GROUND),
        gait=gait,
    )
