"""Rendering of layers from a camera pose.

For every output pixel, the source position in each layer is computed. The pose is inverted exactly; the part
that depends on nearness varies slowly and is found by fixed-point iteration on a coarse grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.video.camera_moves import CameraPose
from sixfold.engines.video.layers import BackgroundLayer
from sixfold.engines.video.yuv import YuvPlanes

Array = NDArray[Any]
_Map = tuple[Array, Array]  # columns and rows, float32

CELL = 4  # output pixels per cell of the coarse grid, in each direction
# More iterations do not make a visible difference.
_ITERATIONS = 3
# Additional zoom that leaves a margin for ripples.
_RIPPLE_ZOOM = 1.006
# A frame is reused if no corner has moved by more than this fraction of the short side.
_MAX_REUSE_SHIFT = 0.008
# The nearness that represents the whole frame when it is reused.
_MEAN_NEARNESS = 0.5


class Ripple(msgspec.Struct, frozen=True):
    """A displacement of a layer's pixels on the coarse grid, in fractions of the frame height."""

    x: Array
    y: Array


def margin(poses: Iterable[CameraPose], size: tuple[int, int], max_near: float = 1.0) -> float:
    """Return the base zoom (at least 1) at which all poses stay within the image."""
    half_w, half_h = size[0] / 2, size[1] / 2
    needed = 1.0
    for pose in poses:
        cos, sin = math.cos(math.radians(pose.roll)), math.sin(math.radians(pose.roll))
        for sx in (-1, 1):
            for sy in (-1, 1):
                dx = sx * half_w - pose.pan_x * size[0]
                dy = sy * half_h - pose.pan_y * size[1]
                ux, uy = (cos * dx + sin * dy) / pose.zoom, (-sin * dx + cos * dy) / pose.zoom
                for near in (0.0, max_near):
                    far = 1 - pose.approach * near
                    limit_x = half_w + math.copysign(pose.shift_x * near * size[0], ux * pose.shift_x)
                    limit_y = half_h + math.copysign(pose.shift_y * near * size[1], uy * pose.shift_y)
                    needed = max(needed, abs(ux) * far / limit_x, abs(uy) * far / limit_y)
    return needed * _RIPPLE_ZOOM if needed > 1.0 else 1.0


def grid(size: tuple[int, int]) -> tuple[int, int]:
    """Return the columns and rows of the coarse grid for frames of `size` (width, height)."""
    return max(8, round(size[0] / CELL)), max(8, round(size[1] / CELL))


class ParallaxStage:
    """Renders a set of layers at `size` (width, height); the layers may be larger."""

    def __init__(self, layers: tuple[BackgroundLayer, ...], size: tuple[int, int], base_zoom: float) -> None:
        self._layers = layers
        self.size = self._size = size
        self.base_zoom = self._base_zoom = base_zoom
        width, height = size
        layer = layers[0].planes.size
        self._scale = (layer[0] / width, layer[1] / height)
        grid_h, grid_w = layers[0].near.shape
        self._grid = (grid_w, grid_h)
        self._gx = ((np.arange(grid_w, dtype=np.float32) + 0.5) / grid_w - 0.5)[None, :] * np.float32(width)
        self._gy = ((np.arange(grid_h, dtype=np.float32) + 0.5) / grid_h - 0.5)[:, None] * np.float32(height)
        self._x = np.arange(width, dtype=np.float32) + np.float32(0.5 - width / 2)
        self._y = np.arange(height, dtype=np.float32) + np.float32(0.5 - height / 2)

    def frame(self, pose: CameraPose, ripples: tuple[Ripple | None, ...] = ()) -> YuvPlanes:
        """Render the frame at `pose`, with an optional ripple for each layer."""
        result: YuvPlanes | None = None
        for index, layer in enumerate(self._layers):
            ripple = ripples[index] if index < len(ripples) else None
            full, half = self._maps(layer, pose, ripple)
            y = _sample(layer.planes.y, full, cv2.INTER_CUBIC)
            uv = _sample(layer.planes.uv, half, cv2.INTER_LINEAR)
            if result is None or layer.matte is None or layer.half_matte is None:
                result = YuvPlanes(y, uv)
                continue
            over = _sample(layer.matte, full, cv2.INTER_LINEAR)
            thin = _sample(layer.half_matte, half, cv2.INTER_LINEAR)
            result = YuvPlanes(_blend(result.y, y, over), _blend(result.uv, uv, thin))
        assert result is not None  # noqa: S101 - a stage has a plate
        return result

    def source_matrix(self, pose: CameraPose, nearness: float = _MEAN_NEARNESS) -> Array:
        """Return the 3 x 3 matrix from centered output pixels to source pixels for constant nearness."""
        turn, far = math.radians(pose.roll), 1 - pose.approach * nearness
        zoom, (width, height) = pose.zoom * self.base_zoom, self.size
        a, b = math.cos(turn) / zoom, math.sin(turn) / zoom
        left, top = pose.pan_x * width, pose.pan_y * height
        right, down = pose.shift_x * width * nearness, pose.shift_y * height * nearness
        return np.array(
            [
                [a * far, b * far, -(a * left + b * top) * far - right],
                [-b * far, a * far, (b * left - a * top) * far - down],
                [0, 0, 1],
            ]
        )

    def still_matrix(self, pose: CameraPose, nearness: float, place: tuple[float, float] = (0, 0)) -> Array:
        """Return the 2 x 3 matrix from output pixels to the pixels of an image at `place` in the still."""
        (width, height), (across, down) = self.size, self._scale
        centered = np.array([[1, 0, 0.5 - width / 2], [0, 1, 0.5 - height / 2], [0, 0, 1]])
        to_still = np.array(
            [
                [across, 0, across * width / 2 - 0.5 - place[0]],
                [0, down, down * height / 2 - 0.5 - place[1]],
                [0, 0, 1],
            ]
        )
        return (to_still @ self.source_matrix(pose, nearness) @ centered)[:2]

    def _maps(self, layer: BackgroundLayer, pose: CameraPose, ripple: Ripple | None) -> tuple[_Map, _Map]:
        """Return the source positions of the Y and of the UV pixels, in the layer's pixels."""
        width, height = self._size
        zoom = pose.zoom * self._base_zoom
        turn = math.radians(pose.roll)
        a, b = math.cos(turn) / zoom, math.sin(turn) / zoom
        left, top = pose.pan_x * width, pose.pan_y * height
        away_x, away_y = a * left + b * top, -b * left + a * top
        ux = a * self._gx + b * self._gy - np.float32(away_x)
        uy = -b * self._gx + a * self._gy - np.float32(away_y)
        dx, dy = self._parallax(layer.near, pose, ux, uy)
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
        """Return a coordinate at full size: the upscaled grid plus a linear function (x, y, constant)."""
        wide = cv2.resize(
            (small * np.float32(scale)).astype(np.float32), self._size, interpolation=cv2.INTER_LINEAR
        )
        across, down, rest = (scale * part for part in line)
        wide += (np.float32(across) * self._x + np.float32(rest - 0.5))[None, :]
        if down:
            wide += (np.float32(down) * self._y)[:, None]
        return wide

    def _parallax(self, near: Array, pose: CameraPose, ux: Array, uy: Array) -> tuple[Array, Array]:
        """Return the offset (x, y) of the grid's source positions due to nearness, in output pixels."""
        if not (pose.shift_x or pose.shift_y or pose.approach):
            return np.zeros_like(ux), np.zeros_like(uy)
        width, height = self._size
        step_x, step_y = self._grid[0] / width, self._grid[1] / height
        off_x, off_y = self._grid[0] / 2 - 0.5, self._grid[1] / 2 - 0.5
        shift_x, shift_y = np.float32(pose.shift_x * width), np.float32(pose.shift_y * height)
        approach = np.float32(pose.approach)
        sx, sy = ux, uy
        for _ in range(_ITERATIONS):
            at_x = (sx * np.float32(step_x) + np.float32(off_x)).astype(np.float32)
            at_y = (sy * np.float32(step_y) + np.float32(off_y)).astype(np.float32)
            q = cv2.remap(near, at_x, at_y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
            far = 1 - approach * q
            sx, sy = ux * far - shift_x * q, uy * far - shift_y * q
        return sx - ux, sy - uy


def _sample(values: Array, at: _Map, interpolation: int) -> Array:
    return cv2.remap(values, at[0], at[1], interpolation, borderMode=cv2.BORDER_REFLECT_101)


def _blend(below: Array, above: Array, matte: Array) -> Array:
    """Blend `above` over `below` by a matte of bytes; 0 selects `below` and 255 selects `above` exactly."""
    share = matte.astype(np.float32) * np.float32(1 / 255)
    return cv2.blendLinear(above, below, share, 1 - share)


class FrameSource:
    """The frames of a stage, in order; with `reuse`, a frame similar to the previous frame is warped from it.

    Rendering three layers takes ten warps, reusing a frame takes two. Parallax and ripples do not change in a
    reused frame, so only every second frame is reused, and only if the camera has hardly moved.
    """

    def __init__(self, stage: ParallaxStage, *, reuse: bool) -> None:
        self._stage, self._reuse = stage, reuse
        self._last: tuple[CameraPose, YuvPlanes] | None = None
        self.reused = 0

    def at(self, pose: CameraPose, ripples: Callable[[], tuple[Ripple | None, ...]]) -> YuvPlanes:
        if self._last is not None:
            before, planes = self._last
            self._last = None
            matrix = np.linalg.inv(self._stage.source_matrix(before)) @ self._stage.source_matrix(pose)
            if _max_corner_shift(matrix, self._stage.size) <= _MAX_REUSE_SHIFT * min(self._stage.size):
                self.reused += 1
                return _warp(planes, matrix)
        frame = self._stage.frame(pose, ripples())
        if self._reuse:
            self._last = (pose, frame)
        return frame


def _max_corner_shift(matrix: Array, size: tuple[int, int]) -> float:
    x, y = size[0] / 2, size[1] / 2
    corners = np.array([[x, -x, x, -x], [y, y, -y, -y], [1, 1, 1, 1]])
    return float(np.abs(matrix @ corners - corners).max())


def _warp(planes: YuvPlanes, matrix: Array) -> YuvPlanes:
    return YuvPlanes(
        _warp_plane(planes.y, matrix, 1, cv2.INTER_CUBIC), _warp_plane(planes.uv, matrix, 2, cv2.INTER_LINEAR)
    )


def _warp_plane(plane: Array, matrix: Array, reduction: int, interpolation: int) -> Array:
    """Warp a plane that is `reduction` times smaller than the frame."""
    height, width = plane.shape[:2]
    middle = np.array([(width - 1) / 2, (height - 1) / 2])
    part = matrix[:2, :2]
    rest = matrix[:2, 2] / reduction + middle - part @ middle
    affine = np.column_stack([part, rest])
    flags = interpolation | cv2.WARP_INVERSE_MAP
    return cv2.warpAffine(plane, affine, (width, height), flags=flags, borderMode=cv2.BORDER_REPLICATE)
