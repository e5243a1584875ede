"""Painted vehicles and animals that move through the scene of a video, each on a straight path.

A mover is painted apart from its scene and drawn over each frame, from the camera's pose and at the nearness
of the ground below it. Its position is a function of the time, so no frame depends on an earlier one.
"""

from __future__ import annotations

import math
import tomllib
from functools import cache
from importlib import resources
from typing import Any

import cv2
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from sixfold.core.catalog.prompt_words import PromptWords
from sixfold.engines import prompt_words
from sixfold.engines.image.scene.prompt_parser import ParsedScene
from sixfold.engines.video import yuv
from sixfold.engines.video.camera_moves import CameraPose
from sixfold.engines.video.layers import MoverGait, MovingSprite
from sixfold.engines.video.motion import motion_words
from sixfold.engines.video.parallax import ParallaxStage
from sixfold.engines.video.yuv import YuvPlanes

Array = NDArray[Any]

_QUICKER, _SLOWER = 1.7, 0.5
# The center of a mover stays within these fractions of the image's width.
_EDGES = (0.15, 0.85)


@cache
def gaits() -> dict[str, MoverGait]:
    """Return the gaits of all subjects that can move, by name."""
    table = tomllib.loads(
        resources.files("sixfold.engines.video.motion").joinpath("movers.toml").read_text("utf-8")
    )
    return {
        name: MoverGait(pace, kind["bob"], kind["beat"], kind.get("floats", False))
        for kind in table.values()
        for name, pace in kind["pace"].items()
    }


def gaits_of(scene: ParsedScene) -> dict[str, MoverGait]:
    """Return the gait of each subject that moves, by its name; a rider has that of the animal or vehicle."""
    text = motion_words.of_subjects(scene.prompt)
    if scene.frame is not None or "studio" in scene.places or motion_words.STILL.search(text):
        return {}
    factor = (
        _QUICKER if motion_words.FAST.search(text) else _SLOWER if motion_words.SLOW.search(text) else 1.0
    )
    table = gaits()
    moving = {
        subject.name: replace(gait, pace=gait.pace * factor, beat=gait.beat * min(factor, 1.2))
        for subject in scene.subjects
        if (gait := table.get(subject.name)) is not None
    }
    if scene.link is None:
        return moving
    how, upper, lower = scene.link
    carrier = moving.get(lower) if how == "on" else None
    # Two subjects in another relation stay together, and do not move.
    moving.pop(upper, None)
    moving.pop(lower, None)
    return moving if carrier is None else {**moving, upper: carrier, lower: carrier}


class MoverAnimation:
    """The movers of a video of `seconds`, in painting order; `still` is the size of the still image."""

    def __init__(self, sprites: tuple[MovingSprite, ...], still: tuple[int, int], seconds: float) -> None:
        self._seconds = max(seconds, 1e-3)
        self._parts = [
            (sprite, np.dstack([_ycc(sprite.rgb), sprite.matte]), _travel(sprite, sprites, still[0], seconds))
            for sprite in sprites
        ]

    def draw(self, planes: YuvPlanes, stage: ParallaxStage, pose: CameraPose, second: float) -> YuvPlanes:
        """Return the frame with every mover at its position at `second`, seen from the camera's pose."""
        if not self._parts:
            return planes
        y, uv = planes.y.copy(), planes.uv.copy()
        for sprite, pixels, (start, end) in self._parts:
            x = sprite.left + start + (end - start) * second / self._seconds
            place = (x, sprite.top - rise(sprite.gait, second) * sprite.height)
            _composite((y, uv), pixels, stage.still_matrix(pose, sprite.nearness, place))
        return YuvPlanes(y, uv)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the subjects that move."""
        return tuple(dict.fromkeys(sprite.name for sprite, _, _ in self._parts))

    def words(self, prompt: str) -> PromptWords:
        """Return the words of the prompt that name the motion of a subject."""
        patterns = (motion_words.VERBS, motion_words.FAST, motion_words.SLOW) if self._parts else ()
        return prompt_words.of_patterns(prompt, patterns)


def rise(gait: MoverGait, second: float) -> float:
    """Return the height above the painted place, as a fraction of the subject's height."""
    if gait.floats:
        return gait.bob * 0.5 * math.sin(math.tau * gait.beat * second)
    return gait.bob * abs(math.sin(math.pi * gait.beat * second))


def _ycc(rgb: Array) -> Array:
    planes = yuv.of_rgb(np.ascontiguousarray(rgb))
    return np.dstack([planes.y, cv2.resize(planes.uv, planes.size, interpolation=cv2.INTER_LINEAR)])


def _travel(
    sprite: MovingSprite, sprites: tuple[MovingSprite, ...], width: int, seconds: float
) -> tuple[float, float]:
    """Return the displacement at the start and at the end, in columns.

    Subjects with the same gait and direction keep their distances, and all stay within the image.
    """
    group = [
        each.center for each in sprites if each.gait == sprite.gait and each.is_mirrored == sprite.is_mirrored
    ]
    low, high = (edge * width for edge in _EDGES)
    left, right = min(0.0, low - min(group)), max(0.0, high - max(group))
    half = sprite.gait.pace * seconds * width / 2 * (-1 if sprite.is_mirrored else 1)
    start, end = (min(max(step, left), right) for step in (-half, half))
    return start, end


def _composite(planes: tuple[Array, Array], pixels: Array, affine: Array) -> None:
    """Blend a sprite (Y, U, V and matte) into the planes, within the rectangle that it covers."""
    y, uv = planes
    height, width = y.shape
    tall, wide = pixels.shape[:2]
    to_frame = np.linalg.inv(np.vstack([affine, [0, 0, 1]]))
    corners = to_frame @ np.array([[-1, wide, -1, wide], [-1, -1, tall, tall], [1, 1, 1, 1]])
    left, top = (max(0, math.floor(corners[axis].min()) & ~1) for axis in (0, 1))
    right = min(width, (math.ceil(corners[0].max()) + 2) & ~1)
    bottom = min(height, (math.ceil(corners[1].max()) + 2) & ~1)
    if right <= left or bottom <= top:
        return
    moved = affine.copy()
    moved[:, 2] += affine[:, 0] * left + affine[:, 1] * top
    size = (right - left, bottom - top)
    part = cv2.warpAffine(pixels, moved, size, flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
    share = part[..., 3].astype(np.float32) / 255
    box = y[top:bottom, left:right]
    box[:] = cv2.blendLinear(np.ascontiguousarray(part[..., 0]), box.copy(), share, 1 - share)
    half = cv2.resize(part, (size[0] // 2, size[1] // 2), interpolation=cv2.INTER_AREA)
    thin = half[..., 3].astype(np.float32) / 255
    small = uv[top // 2 : bottom // 2, left // 2 : right // 2]
    small[:] = cv2.blendLinear(np.ascontiguousarray(half[..., 1:3]), small.copy(), thin, 1 - thin)
