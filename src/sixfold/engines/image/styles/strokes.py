"""Stroke-based painting: brush strokes that follow the image's structure, from large to small."""

from __future__ import annotations

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image.styles import textures
from sixfold.engines.image.styles.textures import Array

_SHIFT = 3


class StrokeLayer(msgspec.Struct, frozen=True):
    """One layer of strokes, with lengths in pixels.

    `radius` is that of the brush; `length` and `spacing` of strokes are in radii; strokes are placed only
    where the painting differs from the target by more than `error` (0 to 1); `stray` is the deviation of
    colors; `dab` draws round dabs instead of strokes; `cover` is the fraction of strokes that is drawn.
    """

    radius: float
    length: float = 8
    spacing: float = 1.1
    error: float = 0.0
    stray: float = 0.04
    hold: float = 0.16
    dab: bool = False
    cover: float = 1.0


class StrokePaint(msgspec.Struct, frozen=True):
    """The painted colors, and the thickness of the paint (0 to 1)."""

    rgb: Array
    height: Array


def paint(
    ground: Array, target: Array, along: Array, layers: list[StrokeLayer], rng: np.random.Generator
) -> StrokePaint:
    """Paint `target` over `ground` with strokes that follow the field `along`."""
    board = np.empty((*ground.shape[:2], 4), np.uint8)
    board[..., :3] = np.rint(np.clip(ground, 0, 1) * 255)
    board[..., 3] = 110
    for layer in layers:
        _paint_layer(board, target, along, layer, rng)
    painted = board.astype(np.float32) / 255
    return StrokePaint(np.ascontiguousarray(painted[..., :3]), np.ascontiguousarray(painted[..., 3]))


def jittered_grid(size: tuple[int, int], gap: float, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return points (x, y) on a grid of `gap` pixels, jittered within their cells, in random order."""
    height, width = size
    gap = max(gap, 1.0)
    rows = np.arange(gap / 2, height, gap, dtype=np.float32)
    columns = np.arange(gap / 2, width, gap, dtype=np.float32)
    grid = np.stack(np.meshgrid(columns, rows), axis=-1).reshape(-1, 2)
    grid += rng.uniform(-gap / 2, gap / 2, grid.shape).astype(np.float32)
    np.clip(grid, 0, [width - 1, height - 1], out=grid)
    return grid[rng.permutation(len(grid))]


def _paint_layer(
    board: NDArray[np.uint8], target: Array, along: Array, layer: StrokeLayer, rng: np.random.Generator
) -> None:
    smoothed = textures.blur(target, layer.radius * 0.45)
    points = jittered_grid((target.shape[0], target.shape[1]), layer.radius * layer.spacing, rng)
    points = points[: max(1, int(len(points) * layer.cover))]
    at = points.astype(np.int32)
    colors = smoothed[at[:, 1], at[:, 0]]
    if layer.error > 0:
        so_far = textures.blur(board[..., :3].astype(np.float32) / 255, layer.radius * 0.6)
        wrong = np.abs(so_far[at[:, 1], at[:, 0]] - colors).max(axis=1) > layer.error
        points, colors = points[wrong], colors[wrong]
    if not len(points):
        return
    drift = rng.normal(0, layer.stray, (len(points), 1)) + rng.normal(0, layer.stray * 0.6, (len(points), 3))
    inks = np.clip((colors + drift) * 255, 0, 255)
    inks = np.concatenate([inks, rng.uniform(40, 255, (len(points), 1))], axis=1).tolist()
    width = max(1, round(layer.radius * 2))
    if layer.dab:
        _dabs(board, points, inks, layer.radius * rng.uniform(0.7, 1.15, len(points)))
        return
    lengths = layer.length * layer.radius * rng.uniform(0.6, 1.2, len(points)).astype(np.float32)
    paths = trace(points, along, smoothed, lengths, layer.hold)
    for path, ink in zip(np.rint(paths * (1 << _SHIFT)).astype(np.int32), inks, strict=True):
        cv2.polylines(board, [path], False, ink, width, cv2.LINE_AA, _SHIFT)


def _dabs(board: NDArray[np.uint8], points: Array, inks: list[list[float]], radii: Array) -> None:
    centers = np.rint(points * (1 << _SHIFT)).astype(np.int32).tolist()
    sizes = np.rint(radii * (1 << _SHIFT)).astype(np.int32).tolist()
    for center, ink, size in zip(centers, inks, sizes, strict=True):
        cv2.circle(board, center, size, ink, -1, cv2.LINE_AA, _SHIFT)


def trace(points: Array, along: Array, target: Array, lengths: Array, hold: float, steps: int = 4) -> Array:
    """Return paths (N, 2 steps + 1, 2) through `points` in both directions along a field.

    A path ends where the color differs by more than `hold` from the color at its start.
    """
    top = np.array([along.shape[1] - 1, along.shape[0] - 1], np.float32)
    first = points.astype(np.int32)
    start_colors = target[first[:, 1], first[:, 0]]
    halves: list[list[Array]] = []
    for sign in (1.0, -1.0):
        here = points.copy()
        heading = along[first[:, 1], first[:, 0]] * np.float32(sign)
        alive = np.ones((len(points), 1), bool)
        half: list[Array] = []
        for _ in range(steps):
            there = np.clip(here + heading * (lengths / (2 * steps))[:, None], 0, top)
            cell = there.astype(np.int32)
            alive &= np.abs(target[cell[:, 1], cell[:, 0]] - start_colors).max(axis=1, keepdims=True) < hold
            here = np.where(alive, there, here)
            half.append(here)
            turn = along[cell[:, 1], cell[:, 0]]
            same = (turn * heading).sum(axis=1, keepdims=True) < 0
            heading = np.where(same, -turn, turn)
        halves.append(half)
    return np.stack([*halves[1][::-1], points, *halves[0]], axis=1)
