"""Closed meshes of two sheets, front and back, joined along the outline of the subject."""

from __future__ import annotations

from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# The distance in meters of both sheets from the middle plane at the outline, so that the seam has faces.
_RIM = 0.004
# The iterations of smoothing an outline.
_ITERATIONS = 3


class SheetMesh(msgspec.Struct, frozen=True):
    """A grid of nodes (Nx2, 0 to 1 across and down), with a mask of the nodes on the outline.

    `cells` are Mx4 node indices: upper left, lower left, lower right, upper right. `edges` are the Kx2 node
    indices of the outline, with the inside on their left in the front sheet.
    """

    nodes: Array
    outline: Array
    cells: Array
    edges: Array

    @property
    def faces(self) -> int:
        """The number of triangles of the closed mesh."""
        return 4 * len(self.cells) + 2 * len(self.edges)


class ClosedMesh(msgspec.Struct, frozen=True):
    """A mesh of front nodes, back nodes, and copies of the outline's nodes for each side of the seam.

    `node` is the node index of each vertex; `back` (bool) marks vertices of the back sheet.
    """

    positions: Array
    normals: Array
    faces: Array
    node: Array
    back: Array

    @property
    def tangents(self) -> Array:
        """Tangents along each sheet toward the image's right; the last component is the handedness."""
        normals = self.normals.astype(np.float64)
        right = np.array([1.0, 0, 0]) - normals * normals[:, :1]
        length = np.linalg.norm(right, axis=1, keepdims=True)
        # For surfaces that face exactly sideways.
        spare = np.cross(np.array([0, 1.0, 0]), normals)
        right = np.where(length > 1e-4, right, spare)
        right /= np.maximum(np.linalg.norm(right, axis=1, keepdims=True), 1e-9)
        return np.column_stack([right, np.where(self.back, -1.0, 1.0)]).astype(np.float32)


def build(inside: Array, count: int, *, smooth: bool) -> SheetMesh:
    """Return the cells of a `count` x `count` grid inside a mask; `smooth` fits their edge to its outline."""
    centers = cv2.resize(inside, (count, count), interpolation=cv2.INTER_AREA)
    rows, columns = np.nonzero(_remove_pinches(centers > 0.5))
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
        nodes = _fit_outline(nodes, outline, edges, inside, count)
    return SheetMesh(nodes.astype(np.float32), outline, cells, edges)


def fit(inside: Array, max_faces: int, max_count: int, *, smooth: bool) -> SheetMesh:
    """Return the finest sheets with at most `max_faces` triangles and `max_count` cells across."""
    share = max(float((inside > 0.5).mean()), 1e-3)
    count = int(np.clip(np.sqrt(max_faces / (4 * share)), 8, max_count))
    while (sheets := build(inside, count, smooth=smooth)).faces > max_faces and count > 8:
        count = max(8, int(count * min(0.99, np.sqrt(max_faces / sheets.faces))))
    return sheets


def close(sheets: SheetMesh, front: Array, back: Array, distance: float) -> ClosedMesh:
    """Return the closed mesh for depth maps `front` and `back` (HxW, meters from the middle plane).

    The camera is `distance` meters in front of the middle plane; perspective makes nearer parts smaller.
    """
    heights = [_sample(sheets.nodes, values) for values in (front, back)]
    for height in heights:
        np.maximum(height, _RIM, out=height)
        height[sheets.outline] = _RIM
    planar = np.stack([sheets.nodes[:, 0] - 0.5, 0.5 - sheets.nodes[:, 1]], axis=1)
    sides = [np.column_stack([planar * (1 - z / distance)[:, None], z]) for z in (heights[0], -heights[1])]
    count = len(sheets.nodes)
    first, second, third, fourth = sheets.cells.T
    fronts = np.concatenate([np.stack([first, second, third], 1), np.stack([first, third, fourth], 1)])
    rim_a, rim_b = sheets.edges.T
    walls = np.concatenate(
        [np.stack([rim_b, rim_a, rim_a + count], 1), np.stack([rim_b, rim_a + count, rim_b + count], 1)]
    )
    positions = np.concatenate(sides).astype(np.float32)
    faces = np.concatenate([fronts, fronts[:, ::-1] + count, walls])
    normals = _normals(positions, faces)
    return _with_seam(sheets, positions, normals, faces, len(walls))


def _with_seam(sheets: SheetMesh, positions: Array, normals: Array, faces: Array, walls: int) -> ClosedMesh:
    """Add separate vertices for the walls, whose texture is that of the front on both sides."""
    count, rim = len(sheets.nodes), np.flatnonzero(sheets.outline)
    copies = np.concatenate([rim, rim + count])
    index = np.full(2 * count, -1)
    index[copies] = 2 * count + np.arange(len(copies))
    joined = faces.copy()
    joined[-walls:] = index[faces[-walls:]]
    node = np.concatenate([np.tile(np.arange(count), 2), copies % count])
    back = np.zeros(len(node), bool)
    back[count : 2 * count] = True
    return ClosedMesh(
        np.concatenate([positions, positions[copies]]),
        np.concatenate([normals, normals[copies]]),
        joined,
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


def _remove_pinches(cells: Array) -> Array:
    """Fill in the neighbors of cells that touch only at a corner."""
    cells = cells.copy()
    cells[[0, -1]] = cells[:, [0, -1]] = False
    if not cells.any():
        cells[len(cells) // 2, len(cells) // 2] = True
    for _ in range(len(cells)):
        a, b, c, d = cells[:-1, :-1], cells[:-1, 1:], cells[1:, :-1], cells[1:, 1:]
        pinched = (a & d & ~b & ~c) | (b & c & ~a & ~d)
        if not pinched.any():
            break
        rows, columns = np.nonzero(pinched)
        for down in (0, 1):
            for over in (0, 1):
                cells[rows + down, columns + over] = True
    return cells


def _edges(cells: Array) -> Array:
    """Return the edges that belong to a single cell, in that cell's direction."""
    directed_edges = np.concatenate([np.stack([cells[:, at], cells[:, (at + 1) % 4]], 1) for at in range(4)])
    size = int(directed_edges.max()) + 1
    keys = directed_edges.min(1).astype(np.int64) * size + directed_edges.max(1)
    _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    return directed_edges[counts[inverse] == 1]


def _fit_outline(nodes: Array, outline: Array, edges: Array, inside: Array, count: int) -> Array:
    """Move the outline's nodes onto the true outline, and space the nodes evenly."""
    mask = (inside > 0.5).astype(np.uint8)
    distance = cv2.distanceTransform(mask, cv2.DIST_L2, 5) - cv2.distanceTransform(1 - mask, cv2.DIST_L2, 5)
    distance = cv2.GaussianBlur(distance, (0, 0), 1.5) / len(inside)
    slopes = [cv2.Sobel(distance, cv2.CV_32F, *axis, scale=len(inside) / 8) for axis in ((1, 0), (0, 1))]
    placed, rim = nodes.copy(), np.flatnonzero(outline)
    after = np.zeros(len(nodes), int)
    before = np.zeros(len(nodes), int)
    after[edges[:, 0]], before[edges[:, 1]] = edges[:, 1], edges[:, 0]
    start = nodes[rim]
    for _ in range(_ITERATIONS):
        placed[rim] = 0.5 * placed[rim] + 0.25 * (placed[after[rim]] + placed[before[rim]])
        current = placed[rim]
        slope = np.stack([_sample(current, values) for values in slopes], 1)
        steepness = np.maximum((slope**2).sum(1), 0.25)
        moved = current - slope * (_sample(current, distance) / steepness)[:, None]
        placed[rim] = start + np.clip(moved - start, -0.9 / count, 0.9 / count)
    return placed


def _sample(nodes: Array, values: Array) -> Array:
    side = np.float32(len(values))
    x, y = (np.ascontiguousarray(nodes[:, axis] * side - 0.5, np.float32) for axis in (0, 1))
    samples = np.empty(len(nodes), np.float32)
    # cv2.remap supports less than 32,768 columns.
    for at in range(0, len(nodes), 30_000):
        part = slice(at, at + 30_000)
        samples[part] = cv2.remap(
            np.ascontiguousarray(values, np.float32),
            x[None, part],
            y[None, part],
            cv2.INTER_LINEAR,
            borderMode=cv2.BORDER_REPLICATE,
        )[0]
    return samples
