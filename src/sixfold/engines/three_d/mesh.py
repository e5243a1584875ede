"""A closed mesh of two sheets, the front and the back of a thing, sewn together along its outline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_RIM = 0.004  # metres from the outline's plane to either sheet: no edge is without a face
_TURNS = 3  # of the even spacing of an outline


@dataclass(frozen=True, slots=True)
class SheetMesh:
    """Nodes (Nx2, in 0 to 1 across and down the square), which lie on the outline, cells and rim edges.

    `cells` are Mx4 nodes: upper left, lower left, lower right, upper right; `edges` are Kx2 nodes with the
    inside to their left as the front sheet sees it.
    """

    nodes: Array
    outline: Array
    cells: Array
    edges: Array

    @property
    def faces(self) -> int:
        """Triangles of the closed mesh."""
        return 4 * len(self.cells) + 2 * len(self.edges)


@dataclass(frozen=True, slots=True)
class ClosedMesh:
    """The mesh: front nodes, back nodes, then a copy of the outline's for each side of the seam.

    `node` says which node a vertex stands on, `back` (bool) whether it belongs to the back sheet.
    """

    positions: Array
    normals: Array
    faces: Array
    node: Array
    back: Array

    @property
    def tangents(self) -> Array:
        """Along each sheet to the picture's right; the last number says whether it is seen mirrored."""
        normals = self.normals.astype(np.float64)
        right = np.array([1.0, 0, 0]) - normals * normals[:, :1]
        length = np.linalg.norm(right, axis=1, keepdims=True)
        spare = np.cross(np.array([0, 1.0, 0]), normals)  # where a surface looks exactly to the side
        right = np.where(length > 1e-4, right, spare)
        right /= np.maximum(np.linalg.norm(right, axis=1, keepdims=True), 1e-9)
        return np.column_stack([right, np.where(self.back, -1.0, 1.0)]).astype(np.float32)


def laid(inside: Array, count: int, *, smooth: bool) -> SheetMesh:
    """Cells of a `count` x `count` grid that lie in a thing; `smooth` draws their edge to its outline."""
    centres = cv2.resize(inside, (count, count), interpolation=cv2.INTER_AREA)
    there = _unpinched(centres > 0.5)
    rows, columns = np.nonzero(there)
    upper = rows * (count + 1) + columns
    cells = np.stack([upper, upper + count + 1, upper + count + 2, upper + 1], axis=1)
    around = np.zeros((count + 1) ** 2, np.int32)
    np.add.at(around, cells, 1)
    used = np.flatnonzero(around)
    number = np.full((count + 1) ** 2, -1)
    number[used] = np.arange(len(used))
    nodes = np.stack([used % (count + 1), used // (count + 1)], axis=1) / count
    cells, outline = number[cells], around[used] < 4
    edges = _edges(cells)
    if smooth:
        nodes = _drawn(nodes, outline, edges, inside, count)
    return SheetMesh(nodes.astype(np.float32), outline, cells, edges)


def fitting(inside: Array, most_faces: int, most_count: int, *, smooth: bool) -> SheetMesh:
    """The finest sheets that have at most `most_faces` triangles and `most_count` cells across."""
    share = max(float((inside > 0.5).mean()), 1e-3)
    count = int(np.clip(np.sqrt(most_faces / (4 * share)), 8, most_count))
    while (sheets := laid(inside, count, smooth=smooth)).faces > most_faces and count > 8:
        count = max(8, int(count * min(0.99, np.sqrt(most_faces / sheets.faces))))
    return sheets


def closed(sheets: SheetMesh, front: Array, back: Array, distance: float) -> ClosedMesh:
    """The mesh with `front` and `back` (HxW, metres from the middle plane) as a camera saw it.

    The camera stands `distance` metres before the middle plane: what is nearer is smaller than it looks.
    """
    heights = [_at(sheets.nodes, values) for values in (front, back)]
    for height in heights:
        np.maximum(height, _RIM, out=height)
        height[sheets.outline] = _RIM
    planar = np.stack([sheets.nodes[:, 0] - 0.5, 0.5 - sheets.nodes[:, 1]], axis=1)
    both = [np.column_stack([planar * (1 - z / distance)[:, None], z]) for z in (heights[0], -heights[1])]
    count = len(sheets.nodes)
    first, second, third, fourth = sheets.cells.T
    fronts = np.concatenate([np.stack([first, second, third], 1), np.stack([first, third, fourth], 1)])
    rim_a, rim_b = sheets.edges.T
    walls = np.concatenate(
        [np.stack([rim_b, rim_a, rim_a + count], 1), np.stack([rim_b, rim_a + count, rim_b + count], 1)]
    )
    positions = np.concatenate(both).astype(np.float32)
    faces = np.concatenate([fronts, fronts[:, ::-1] + count, walls])
    normals = _normals(positions, faces)
    return _seamed(sheets, positions, normals, faces, len(walls))


def _seamed(sheets: SheetMesh, positions: Array, normals: Array, faces: Array, walls: int) -> ClosedMesh:
    """With vertices of their own for the walls, whose texture is the front's on both sides."""
    count, rim = len(sheets.nodes), np.flatnonzero(sheets.outline)
    copies = np.concatenate([rim, rim + count])
    place = np.full(2 * count, -1)
    place[copies] = 2 * count + np.arange(len(copies))
    sewn = faces.copy()
    sewn[-walls:] = place[faces[-walls:]]
    node = np.concatenate([np.tile(np.arange(count), 2), copies % count])
    back = np.zeros(len(node), bool)
    back[count : 2 * count] = True
    return ClosedMesh(
        np.concatenate([positions, positions[copies]]),
        np.concatenate([normals, normals[copies]]),
        sewn,
        node,
        back,
    )


def _normals(positions: Array, faces: Array) -> Array:
    corners = positions[faces]
    across = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    total = np.stack(
        [np.bincount(faces.ravel(), np.repeat(across[:, axis], 3), len(positions)) for axis in range(3)],
        axis=1,
    )
    length = np.linalg.norm(total, axis=1, keepdims=True)
    return np.where(length > 1e-20, total / np.maximum(length, 1e-20), (0, 0, 1)).astype(np.float32)


def _unpinched(there: Array) -> Array:
    """Without cells that touch at a corner alone: both of their neighbours are there, too."""
    there = there.copy()
    there[[0, -1]] = there[:, [0, -1]] = False
    if not there.any():
        there[len(there) // 2, len(there) // 2] = True
    for _ in range(len(there)):
        a, b, c, d = there[:-1, :-1], there[:-1, 1:], there[1:, :-1], there[1:, 1:]
        pinched = (a & d & ~b & ~c) | (b & c & ~a & ~d)
        if not pinched.any():
            break
        rows, columns = np.nonzero(pinched)
        for down in (0, 1):
            for over in (0, 1):
                there[rows + down, columns + over] = True
    return there


def _edges(cells: Array) -> Array:
    """The cells' edges that belong to one cell only, in that cell's direction."""
    each = np.concatenate([np.stack([cells[:, at], cells[:, (at + 1) % 4]], 1) for at in range(4)])
    size = int(each.max()) + 1
    keys = each.min(1).astype(np.int64) * size + each.max(1)
    _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return each[counts[inverse] == 1]


def _drawn(nodes: Array, outline: Array, edges: Array, inside: Array, count: int) -> Array:
    """The outline's nodes moved onto the true outline and spaced evenly along it."""
    solid = (inside > 0.5).astype(np.uint8)
    apart = cv2.distanceTransform(solid, cv2.DIST_L2, 5) - cv2.distanceTransform(1 - solid, cv2.DIST_L2, 5)
    apart = cv2.GaussianBlur(apart, (0, 0), 1.5) / len(inside)
    slopes = [cv2.Sobel(apart, cv2.CV_32F, *way, scale=len(inside) / 8) for way in ((1, 0), (0, 1))]
    placed, rim = nodes.copy(), np.flatnonzero(outline)
    after = np.zeros(len(nodes), int)
    before = np.zeros(len(nodes), int)
    after[edges[:, 0]], before[edges[:, 1]] = edges[:, 1], edges[:, 0]
    start = nodes[rim]
    for _ in range(_TURNS):
        placed[rim] = 0.5 * placed[rim] + 0.25 * (placed[after[rim]] + placed[before[rim]])
        here = placed[rim]
        slope = np.stack([_at(here, values) for values in slopes], 1)
        steep = np.maximum((slope**2).sum(1), 0.25)
        moved = here - slope * (_at(here, apart) / steep)[:, None]
        placed[rim] = start + np.clip(moved - start, -0.9 / count, 0.9 / count)
    return placed


def _at(nodes: Array, values: Array) -> Array:
    """Values of a map at nodes."""
    side = np.float32(len(values))
    x, y = (np.ascontiguousarray(nodes[:, axis] * side - 0.5, np.float32) for axis in (0, 1))
    found = np.empty(len(nodes), np.float32)
    for at in range(0, len(nodes), 30_000):  # remap takes rows of less than 32768
        part = slice(at, at + 30_000)
        found[part] = cv2.remap(
            np.ascontiguousarray(values, np.float32),
            x[None, part],
            y[None, part],
            cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_REPLICATE,
        )[0]
    return found
