"""A frame: plates seen from a pose.

Every output pixel asks where in each plate it comes from: the pose is turned back exactly, and the part that
depends on nearness, which changes slowly, is found by iteration on a small grid and added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.video.camera_moves import CameraPose
from sixfold.engines.video.layers import BackgroundLayer
from sixfold.engines.video.yuv import YuvPlanes

Array = NDArray[Any]
_Map = tuple[Array, Array]  # columns and rows, float32

CELL = 4  # output pixels per cell of the small grid, each way
_TURNS = 3  # of the iteration; another changes nothing that can be seen
_SPARE = 1.006  # a hair more than needed, for what ripples add
_NEAR = 0.008  # of the short side: how far a corner may have gone
_HALFWAY = 0.5  # of nearness: what stands for a whole picture


@dataclass(frozen=True, slots=True)
class Ripple:
    """What moves of its own within a plate, in shares of the frame's height, on the small grid."""

    x: Array
    y: Array


def margin(poses: Iterable[CameraPose], size: tuple[int, int], most_near: float = 1.0) -> float:
    """How much closer a film must begin so that no pose looks past the picture's edge; at least 1."""
    half_w, half_h = size[0] / 2, size[1] / 2
    needed = 1.0
    for pose in poses:
        cos, sin = math.cos(math.radians(pose.roll)), math.sin(math.radians(pose.roll))
        for sx in (-1, 1):
            for sy in (-1, 1):
                dx = sx * half_w - pose.pan_x * size[0]
                dy = sy * half_h - pose.pan_y * size[1]
                ux, uy = (cos * dx + sin * dy) / pose.zoom, (-sin * dx + cos * dy) / pose.zoom
                for near in (0.0, most_near):
                    far = 1 - pose.approach * near
                    room_x = half_w + math.copysign(pose.shift_x * near * size[0], ux * pose.shift_x)
                    room_y = half_h + math.copysign(pose.shift_y * near * size[1], uy * pose.shift_y)
                    needed = max(needed, abs(ux) * far / room_x, abs(uy) * far / room_y)
    return needed * _SPARE if needed > 1.0 else 1.0


def grid(size: tuple[int, int]) -> tuple[int, int]:
    """Columns and rows of the small grid for frames of `size` (width, height)."""
    return max(8, round(size[0] / CELL)), max(8, round(size[1] / CELL))


class ParallaxStage:
    """Renders poses of one set of plates at `size` (width, height); the plates may be larger."""

    def __init__(self, plates: tuple[BackgroundLayer, ...], size: tuple[int, int], base_zoom: float) -> None:
        self._plates = plates
        self.size = self._size = size
        self.base_zoom = self._zoom = base_zoom
        width, height = size
        plate = plates[0].planes.size
        self._scale = (plate[0] / width, plate[1] / height)
        grid_h, grid_w = plates[0].near.shape
        self._grid = (grid_w, grid_h)
        self._gx = ((np.arange(grid_w, dtype=np.float32) + 0.5) / grid_w - 0.5)[None, :] * np.float32(width)
        self._gy = ((np.arange(grid_h, dtype=np.float32) + 0.5) / grid_h - 0.5)[:, None] * np.float32(height)
        self._x = np.arange(width, dtype=np.float32) + np.float32(0.5 - width / 2)
        self._y = np.arange(height, dtype=np.float32) + np.float32(0.5 - height / 2)

    def frame(self, pose: CameraPose, ripples: tuple[Ripple | None, ...] = ()) -> YuvPlanes:
        """The picture from `pose`; each plate may have a ripple of its own."""
        found: YuvPlanes | None = None
        for index, plate in enumerate(self._plates):
            ripple = ripples[index] if index < len(ripples) else None
            full, half = self._maps(plate, pose, ripple)
            y = _sampled(plate.planes.y, full, cv2.INTER_CUBIC)
            uv = _sampled(plate.planes.uv, half, cv2.INTER_LINEAR)
            if found is None or plate.matte is None or plate.half_matte is None:
                found = YuvPlanes(y, uv)
                continue
            over = _sampled(plate.matte, full, cv2.INTER_LINEAR)
            thin = _sampled(plate.half_matte, half, cv2.INTER_LINEAR)
            found = YuvPlanes(_blended(found.y, y, over), _blended(found.uv, uv, thin))
        assert found is not None  # noqa: S101 - a stage has a plate
        return found

    def _maps(self, plate: BackgroundLayer, pose: CameraPose, ripple: Ripple | None) -> tuple[_Map, _Map]:
        """Where each pixel of the lightness and of the colour comes from, in the plate's pixels."""
        width, height = self._size
        zoom = pose.zoom * self._zoom
        turn = math.radians(pose.roll)
        a, b = math.cos(turn) / zoom, math.sin(turn) / zoom
        left, top = pose.pan_x * width, pose.pan_y * height
        away_x, away_y = a * left + b * top, -b * left + a * top
        ux = a * self._gx + b * self._gy - np.float32(away_x)
        uy = -b * self._gx + a * self._gy - np.float32(away_y)
        dx, dy = self._parallax(plate.near, pose, ux, uy)
        if ripple is not None:
            dx, dy = dx + ripple.x * np.float32(height), dy + ripple.y * np.float32(height)
        full = (
            self._spread(dx, self._scale[0], (a, b, width / 2 - away_x)),
            self._spread(dy, self._scale[1], (-b, a, height / 2 - away_y)),
        )
        size = (width // 2, height // 2)
        halves = [cv2.resize(part, size, interpolation=cv2.INTER_AREA) for part in full]
        for half in halves:
            cv2.addWeighted(half, 0.5, half, 0.0, -0.25, half)
        return full, (halves[0], halves[1])

    def _spread(self, small: Array, scale: float, line: tuple[float, float, float]) -> Array:
        """One coordinate at full size: what the grid says over a `line` (of x, of y, and the rest)."""
        wide = cv2.resize(
            (small * np.float32(scale)).astype(np.float32), self._size, interpolation=cv2.INTER_LINEAR
        )
        across, down, rest = (scale * part for part in line)
        wide += (np.float32(across) * self._x + np.float32(rest - 0.5))[None, :]
        if down:
            wide += (np.float32(down) * self._y)[:, None]
        return wide

    def _parallax(self, near: Array, pose: CameraPose, ux: Array, uy: Array) -> tuple[Array, Array]:
        """What nearness adds to where a pixel of the grid comes from, in output pixels."""
        if not (pose.shift_x or pose.shift_y or pose.approach):
            return np.zeros_like(ux), np.zeros_like(uy)
        width, height = self._size
        step_x, step_y = self._grid[0] / width, self._grid[1] / height
        off_x, off_y = self._grid[0] / 2 - 0.5, self._grid[1] / 2 - 0.5
        shift_x, shift_y = np.float32(pose.shift_x * width), np.float32(pose.shift_y * height)
        approach = np.float32(pose.approach)
        sx, sy = ux, uy
        for _ in range(_TURNS):
            at_x = (sx * np.float32(step_x) + np.float32(off_x)).astype(np.float32)
            at_y = (sy * np.float32(step_y) + np.float32(off_y)).astype(np.float32)
            q = cv2.remap(near, at_x, at_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
            far = 1 - approach * q
            sx, sy = ux * far - shift_x * q, uy * far - shift_y * q
        return sx - ux, sy - uy


def _sampled(values: Array, at: _Map, how: int) -> Array:
    return cv2.remap(values, at[0], at[1], how, borderMode=cv2.BORDER_REFLECT_101)


def _blended(below: Array, above: Array, matte: Array) -> Array:
    """`above` over `below` by a matte of bytes; where the matte is 0 or 255, exactly one of them."""
    share = matte.astype(np.float32) * np.float32(1 / 255)
    return cv2.blendLinear(above, below, share, 1 - share)


class FrameSource:
    """The frames of a stage, in order; with `sparing`, near ones are moved."""

    def __init__(self, stage: ParallaxStage, *, sparing: bool) -> None:
        self._stage, self._sparing = stage, sparing
        self._kept: tuple[CameraPose, YuvPlanes] | None = None
        self.moved = 0

    def at(self, pose: CameraPose, ripples: Callable[[], tuple[Ripple | None, ...]]) -> YuvPlanes:
        """The next frame."""
        if self._kept is not None:
            before, picture = self._kept
            self._kept = None
            line = np.linalg.inv(_from(before, self._stage)) @ _from(pose, self._stage)
            if _farthest(line, self._stage.size) <= _NEAR * min(self._stage.size):
                self.moved += 1
                return _moved(picture, line)
        made = self._stage.frame(pose, ripples())
        if self._sparing:
            self._kept = (pose, made)
        return made


def _from(pose: CameraPose, stage: ParallaxStage) -> Array:
    """Where a pixel of a frame, from its middle, comes from in a picture of one nearness: a 3 x 3 matrix."""
    turn, far = math.radians(pose.roll), 1 - pose.approach * _HALFWAY
    zoom, (width, height) = pose.zoom * stage.base_zoom, stage.size
    a, b = math.cos(turn) / zoom, math.sin(turn) / zoom
    left, top = pose.pan_x * width, pose.pan_y * height
    right, down = pose.shift_x * width * _HALFWAY, pose.shift_y * height * _HALFWAY
    return np.array(
        [
            [a * far, b * far, -(a * left + b * top) * far - right],
            [-b * far, a * far, (b * left - a * top) * far - down],
            [0, 0, 1],
        ]
    )


def _farthest(line: Array, size: tuple[int, int]) -> float:
    """How far the corner goes that goes farthest, in pixels."""
    x, y = size[0] / 2, size[1] / 2
    corners = np.array([[x, -x, x, -x], [y, y, -y, -y], [1, 1, 1, 1]])
    return float(np.abs(line @ corners - corners).max())


def _moved(picture: YuvPlanes, line: Array) -> YuvPlanes:
    return YuvPlanes(
        _warped(picture.y, line, 1, cv2.INTER_CUBIC), _warped(picture.uv, line, 2, cv2.INTER_LINEAR)
    )


def _warped(plane: Array, line: Array, small: int, how: int) -> Array:
    """A plane that is `small` times smaller than the frame, seen along the line."""
    height, width = plane.shape[:2]
    middle = np.array([(width - 1) / 2, (height - 1) / 2])
    part = line[:2, :2]
    rest = line[:2, 2] / small + middle - part @ middle
    along = np.column_stack([part, rest])
    flags = how | cv2.WARP_INVERSE_MAP
    return cv2.warpAffine(plane, along, (width, height), flags=flags, borderMode=cv2.BORDER_REPLICATE)
