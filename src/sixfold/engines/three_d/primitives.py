"""Parametric closed bodies in meters with y up: boxes with rounded edges, surfaces of revolution, rings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_AROUND = 40  # steps of a surface of revolution
# A profile that turns by a larger angle has a sharp edge.
_SHARP = math.cos(math.radians(38))
# The samples of a rounded edge, in fractions of its radius.
_ROUND = (0.0, 0.3, 1.0)


class PrimitiveBody(msgspec.Struct, frozen=True):
    """A body: positions and normals Nx3, faces Mx3."""

    positions: Array
    normals: Array
    faces: Array

    def transform(self, matrix: Array, offset: Array) -> PrimitiveBody:
        """Return the body transformed by a matrix and an offset; mirroring reverses the faces."""
        normals = self.normals @ np.linalg.inv(matrix)
        normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)
        faces = self.faces if np.linalg.det(matrix) > 0 else self.faces[:, ::-1]
        return PrimitiveBody(self.positions @ matrix.T + offset, normals, faces)


def box(size: Sequence[float], edge: float = 0.12) -> PrimitiveBody:
    """Return a box around the origin with edges rounded by `edge` of its shortest side."""
    half = np.array(size, float) / 2
    radius = max(1e-4, edge * float(half.min()) * 2)
    inner = half - radius
    positions, faces, count = [], [], 0
    for axis in range(3):
        first, second = (axis + 1) % 3, (axis + 2) % 3
        for sign in (-1, 1):
            u, v = np.meshgrid(_steps(half[first], radius), _steps(half[second], radius), indexing="ij")
            points = np.empty((u.size, 3))
            points[:, axis], points[:, first], points[:, second] = sign * half[axis], u.ravel(), v.ravel()
            grid = _grid(*u.shape) + count
            faces.append(grid if sign > 0 else grid[:, ::-1])
            positions.append(points)
            count += len(points)
    outer = np.concatenate(positions)
    core = np.clip(outer, -inner, inner)
    normals = (outer - core) / np.linalg.norm(outer - core, axis=1, keepdims=True)
    return PrimitiveBody(core + radius * normals, normals, np.concatenate(faces))


def revolve(profile: Sequence[Sequence[float]], around: int = _AROUND) -> PrimitiveBody:
    """Return a closed surface of revolution; the profile of (radius, height) is from bottom to top."""
    line = [(float(radius), float(height)) for radius, height in profile]
    line = [(0.0, line[0][1])] * (line[0][0] > 1e-6) + line + [(0.0, line[-1][1])] * (line[-1][0] > 1e-6)
    rows = _rows(np.array(line))
    angles = np.linspace(0, 2 * np.pi, around + 1)
    cos, sin = np.cos(angles)[None], np.sin(angles)[None]
    radius, height, out, up = (rows[:, at, None] for at in range(4))
    positions = np.stack(
        [radius * cos, np.broadcast_to(height, radius.shape[:1] + cos.shape[1:]), -radius * sin], 2
    )
    normals = np.stack([out * cos, np.broadcast_to(up, positions.shape[:2]), -out * sin], 2)
    faces = _grid(len(rows), around + 1)[:, ::-1]
    flat = positions.reshape(-1, 3)
    corners = flat[faces]
    area = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
    return PrimitiveBody(flat, normals.reshape(-1, 3), faces[area > 1e-12])


def ring(radius: float, thick: float, around: int = 48) -> PrimitiveBody:
    """Return a horizontal ring."""
    turn, round_ = np.meshgrid(
        np.linspace(0, 2 * np.pi, around + 1), np.linspace(0, 2 * np.pi, 19), indexing="ij"
    )
    out = np.stack([np.cos(turn) * np.cos(round_), np.sin(round_), -np.sin(turn) * np.cos(round_)], 2)
    middle = np.stack([np.cos(turn), np.zeros_like(turn), -np.sin(turn)], 2) * radius
    faces = _grid(around + 1, 19)[:, ::-1]
    return PrimitiveBody((middle + out * thick).reshape(-1, 3), out.reshape(-1, 3), faces[:, ::-1])


def ball(size: Sequence[float]) -> PrimitiveBody:
    """Return an ellipsoid with the given diameters around the origin."""
    angles = np.linspace(-np.pi / 2, np.pi / 2, 21)
    unit = revolve(np.stack([np.cos(angles), np.sin(angles)], 1).tolist())
    return unit.transform(np.diag(np.array(size, float) / 2), np.zeros(3))


def rod(low: float, high: float, height: float) -> PrimitiveBody:
    """Return a cylinder or a cone from the origin up, with slightly rounded edges."""
    soft = min(0.12 * max(low, high), 0.2 * height, 0.02)
    profile = [(max(0.0, low - soft), 0.0), (low, soft)] if low > soft else [(low, 0.0)]
    profile += [(high, height - soft), (max(0.0, high - soft), height)] if high > soft else [(high, height)]
    return revolve(profile)


def _steps(half: float, radius: float) -> Array:
    edge = np.array([radius * part for part in _ROUND])
    return np.concatenate([-half + edge, (half - edge)[::-1]])


def _grid(rows: int, columns: int) -> Array:
    """Return two triangles for each cell of a grid of nodes."""
    number = np.arange(rows * columns).reshape(rows, columns)
    a, b, c, d = number[:-1, :-1], number[1:, :-1], number[1:, 1:], number[:-1, 1:]
    return np.concatenate([np.stack([a, b, c], 2).reshape(-1, 3), np.stack([a, c, d], 2).reshape(-1, 3)])


def _rows(line: Array) -> Array:
    """Return the radius, height and normal of each row of a profile; a sharp edge has two rows."""
    steps = np.diff(line, axis=0)
    length = np.maximum(np.linalg.norm(steps, axis=1, keepdims=True), 1e-9)
    sides = np.stack([steps[:, 1], -steps[:, 0]], 1) / length
    rows: list[list[float]] = []
    for at, (radius, height) in enumerate(line):
        before, after = sides[max(0, at - 1)], sides[min(len(sides) - 1, at)]
        if before @ after > _SHARP:
            mean = before + after
            rows.append([radius, height, *(mean / np.linalg.norm(mean))])
        else:
            rows += [[radius, height, *before], [radius, height, *after]]
    return np.array(rows)
