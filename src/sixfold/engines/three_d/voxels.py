"""Cubes: a subject in a grid of colours, and its skin with as few faces as show the same."""

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

_COLOURS = 40
_THICK = 0.42  # of the thing's shorter side: how thick it is from front to back
_SHADES = (1.0, 1.0, 1.12, 0.78, 0.96, 0.9)  # by the side that a face looks to: +x -x +y -y +z -z
_LEAST_SHARE = 0.45  # of a cube's square that has to be inside


def grid(subject: MeshSubject, count: int) -> tuple[Array, Array]:
    """Which cubes are there (x, y up, z to the front, bool) and the colour of each column (x, y, 3)."""
    size = (count, count)
    share = cv2.resize(subject.inside, size, interpolation=cv2.INTER_AREA)
    near = cv2.resize(subject.near * subject.inside, size, interpolation=cv2.INTER_AREA)
    near /= np.maximum(share, 1e-3)
    weighted = subject.rgb.astype(np.float32) * subject.inside[..., None]
    colours = cv2.resize(weighted, size, interpolation=cv2.INTER_AREA) / np.maximum(share, 1e-3)[..., None]
    there = _joined(share > _LEAST_SHARE)
    rows, columns = np.flatnonzero(there.any(1)), np.flatnonzero(there.any(0))
    shorter = min(np.ptp(rows), np.ptp(columns)) + 1
    half = np.clip(np.rint(near * _THICK * shorter / 2), 0, count // 2 - 1).astype(int)
    z = np.arange(count) - count // 2
    solid = there[..., None] & (np.abs(z) <= half[..., None])
    few = palette.reduce_colors(np.clip(np.rint(colours), 0, 255).astype(np.uint8), _COLOURS)
    return solid[::-1].transpose(1, 0, 2), few[::-1].transpose(1, 0, 2)


def _joined(there: Array) -> Array:
    """Never empty, and without crumbs that hang on to nothing."""
    if not there.any():
        there = np.zeros_like(there)
        there[len(there) // 2, len(there) // 2] = True
        return there
    count, labels, stats, _ = cv2.connectedComponentsWithStats(there.astype(np.uint8), connectivity=4)
    areas = stats[:, cv2.CC_STAT_AREA]
    kept = [label for label in range(1, count) if areas[label] > 0.02 * areas[1:].max()]
    return np.isin(labels, kept)


def mesh(solid: Array, colours: Array) -> MeshPart:
    """The skin of the cubes in a cube of one metre; faces in one plane that have one colour are one."""
    count = len(solid)
    codes = colours.astype(np.int64) @ np.array([65536, 256, 1]) + 1
    volume = np.where(solid, codes[..., None], 0)
    quads = [quad for axis in range(3) for way in (1, -1) for quad in _facing(volume, axis, way)]
    corners = np.array([quad[0] for quad in quads], np.float32).reshape(-1, 3) / count - 0.5
    normals = np.repeat(np.array([quad[1] for quad in quads], np.float32), 4, axis=0)
    packed = np.array([quad[2] for quad in quads]) - 1
    rgb = np.stack([packed >> 16, packed >> 8 & 255, packed & 255], 1) / 255
    shade = np.array([quad[3] for quad in quads])[:, None]
    tinted = np.repeat(glb.linear(np.clip(rgb * shade, 0, 1)), 4, axis=0)
    first = np.arange(0, len(corners), 4)[:, None]
    faces = (first + np.array([0, 1, 2, 0, 2, 3])).reshape(-1, 3)
    return MeshPart(corners, normals, faces, glb.Material(roughness=0.9), colours=tinted)


def _facing(volume: Array, axis: int, way: int) -> list[tuple[Array, Array, int, float]]:
    """The faces that look to one side: corners, normal, colour and shade of each."""
    turned = np.moveaxis(volume, axis, 0)
    beyond = np.zeros_like(turned)
    if way > 0:
        beyond[:-1] = turned[1:]
    else:
        beyond[1:] = turned[:-1]
    seen = np.where(beyond == 0, turned, 0)
    normal = np.zeros(3)
    normal[axis] = way
    shade = _SHADES[2 * axis + (way < 0)]
    found = []
    for layer in np.flatnonzero(seen.any(axis=(1, 2))):
        for top, left, bottom, right, code in _rectangles(seen[layer]):
            level = layer + (way > 0)
            flat = np.array([(top, left), (bottom, left), (bottom, right), (top, right)])
            corners = np.insert(flat, 0, level, axis=1)
            placed = corners[:, np.argsort([axis, *(other for other in range(3) if other != axis)])]
            even = (way > 0) == (axis != 1)
            found.append((placed if even else placed[::-1], normal, int(code), shade))
    return found


def _rectangles(plane: Array) -> list[tuple[int, int, int, int, int]]:
    """A plane of codes (0 for nothing) as few rectangles: first, second, past the first, past the second."""
    left = plane.copy()
    found = []
    for row, column in np.argwhere(plane):
        code = left[row, column]
        if not code:
            continue
        line = left[row, column:] == code
        wide = len(line) if line.all() else int(line.argmin())
        same = (left[row:, column : column + wide] == code).all(axis=1)
        high = len(same) if same.all() else int(same.argmin())
        left[row : row + high, column : column + wide] = 0
        found.append((int(row), int(column), int(row) + high, int(column) + wide, int(code)))
    return found
