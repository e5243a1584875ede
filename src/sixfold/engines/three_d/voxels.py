"""Voxelization of a subject, and the mesh of its surface with merged faces."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image.vector import palette
from sixfold.engines.three_d import glb
from sixfold.engines.three_d.glb import MeshPart
from sixfold.engines.three_d.subject import MeshSubject

Array = NDArray[Any]

_COLORS = 40
# The thickness from front to back, as a fraction of the subject's shorter side.
_THICKNESS = 0.42
# The brightness of faces toward +x, -x, +y, -y, +z and -z.
_SHADES = (1.0, 1.0, 1.12, 0.78, 0.96, 0.9)
# The minimum fraction of a cell that is inside of the subject.
_MIN_SHARE = 0.45


def grid(subject: MeshSubject, count: int) -> tuple[Array, Array]:
    """Return the occupied cells (x, y up, z to the front, bool) and the color of each column (x, y, 3)."""
    size = (count, count)
    share = cv2.resize(subject.inside, size, interpolation=cv2.INTER_AREA)
    near = cv2.resize(subject.near * subject.inside, size, interpolation=cv2.INTER_AREA)
    near /= np.maximum(share, 1e-3)
    weighted = subject.rgb.astype(np.float32) * subject.inside[..., None]
    colors = cv2.resize(weighted, size, interpolation=cv2.INTER_AREA) / np.maximum(share, 1e-3)[..., None]
    occupied = _drop_small_parts(share > _MIN_SHARE)
    rows, columns = np.flatnonzero(occupied.any(1)), np.flatnonzero(occupied.any(0))
    shorter = min(np.ptp(rows), np.ptp(columns)) + 1
    half = np.clip(np.rint(near * _THICKNESS * shorter / 2), 0, count // 2 - 1).astype(int)
    z = np.arange(count) - count // 2
    solid = occupied[..., None] & (np.abs(z) <= half[..., None])
    reduced = palette.reduce_colors(np.clip(np.rint(colors), 0, 255).astype(np.uint8), _COLORS)
    return solid[::-1].transpose(1, 0, 2), reduced[::-1].transpose(1, 0, 2)


def _drop_small_parts(cells: Array) -> Array:
    """Remove small disconnected parts; the result is never empty."""
    if not cells.any():
        cells = np.zeros_like(cells)
        cells[len(cells) // 2, len(cells) // 2] = True
        return cells
    count, labels, stats, _ = cv2.connectedComponentsWithStats(cells.astype(np.uint8), connectivity=4)
    sizes = stats[:, cv2.CC_STAT_AREA]
    large = [label for label in range(1, count) if sizes[label] > 0.02 * sizes[1:].max()]
    return np.isin(labels, large)


def mesh(solid: Array, colors: Array) -> MeshPart:
    """Return the surface of the cells in a cube of one meter, with adjacent faces of one color merged."""
    count = len(solid)
    codes = colors.astype(np.int64) @ np.array([65536, 256, 1]) + 1
    volume = np.where(solid, codes[..., None], 0)
    quads = [quad for axis in range(3) for sign in (1, -1) for quad in _faces(volume, axis, sign)]
    corners = np.array([quad[0] for quad in quads], np.float32).reshape(-1, 3) / count - 0.5
    normals = np.repeat(np.array([quad[1] for quad in quads], np.float32), 4, axis=0)
    packed = np.array([quad[2] for quad in quads]) - 1
    rgb = np.stack([packed >> 16, packed >> 8 & 255, packed & 255], 1) / 255
    shade = np.array([quad[3] for quad in quads])[:, None]
    tinted = np.repeat(glb.linear(np.clip(rgb * shade, 0, 1)), 4, axis=0)
    first = np.arange(0, len(corners), 4)[:, None]
    faces = (first + np.array([0, 1, 2, 0, 2, 3])).reshape(-1, 3)
    return MeshPart(corners, normals, faces, glb.Material(roughness=0.9), colors=tinted)


def _faces(volume: Array, axis: int, sign: int) -> list[tuple[Array, Array, int, float]]:
    """Return the corners, normal, color and shade of the faces toward one direction."""
    oriented = np.moveaxis(volume, axis, 0)
    beyond = np.zeros_like(oriented)
    if sign > 0:
        beyond[:-1] = oriented[1:]
    else:
        beyond[1:] = oriented[:-1]
    visible = np.where(beyond == 0, oriented, 0)
    normal = np.zeros(3)
    normal[axis] = sign
    shade = _SHADES[2 * axis + (sign < 0)]
    faces = []
    for layer in np.flatnonzero(visible.any(axis=(1, 2))):
        for top, left, bottom, right, code in _rectangles(visible[layer]):
            level = layer + (sign > 0)
            flat = np.array([(top, left), (bottom, left), (bottom, right), (top, right)])
            corners = np.insert(flat, 0, level, axis=1)
            ordered = corners[:, np.argsort([axis, *(other for other in range(3) if other != axis)])]
            even = (sign > 0) == (axis != 1)
            faces.append((ordered if even else ordered[::-1], normal, int(code), shade))
    return faces


def _rectangles(plane: Array) -> list[tuple[int, int, int, int, int]]:
    """Cover a plane of codes (0 is empty) with few rectangles: top, left, bottom, right, code."""
    remaining = plane.copy()
    rectangles = []
    for row, column in np.argwhere(plane):
        code = remaining[row, column]
        if not code:
            continue
        run = remaining[row, column:] == code
        width = len(run) if run.all() else int(run.argmin())
        same = (remaining[row:, column : column + width] == code).all(axis=1)
        height = len(same) if same.all() else int(same.argmin())
        remaining[row : row + height, column : column + width] = 0
        rectangles.append((int(row), int(column), int(row) + height, int(column) + width, int(code)))
    return rectangles
