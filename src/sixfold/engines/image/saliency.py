"""What an image is about: how much each pixel stands out from what the image's border is made of.

Robust background detection (Zhu, Liang, Wei and Sun, CVPR 2014): the image falls into a few hundred
even regions; one that reaches the border along much of its own outline is ground; what differs from the
ground in color, near by, stands out; and one linear system makes neighbors that look alike agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Pixels = NDArray[np.uint8]

WORK_SIDE = 320
_REGIONS = 260
_LEAST_SIDE = 16
_GEODESIC = 10.0  # Lab units within which regions count as one surface
_NEAR = 0.25  # of the image's side: how far a region's contrast reaches
_ALIKE = 10.0
_KEEP = 0.1


@dataclass(frozen=True, slots=True)
class SalientRegions:
    """An even partition: `labels` HxW, mean Lab colors Nx3, centers Nx2 (0 to 1), areas and rims N."""

    labels: NDArray[np.int32]
    colors: Array
    centers: Array
    areas: Array
    border: Array
    links: Array  # pairs of neighbors, Mx2

    @property
    def count(self) -> int:
        """How many regions there are."""
        return len(self.areas)


def saliency(rgb: Pixels) -> Array:
    """How much each pixel of HxWx3 stands out, 0 to 1, HxW."""
    height, width = rgb.shape[:2]
    small = reduced(rgb, WORK_SIDE)
    lab = cv2.cvtColor(small.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
    found = regions(lab)
    worth = _worth(found)[found.labels].astype(np.float32)
    smooth = cv2.ximgproc.guidedFilter(lab.astype(np.float32), worth, 6, 25.0)
    return np.clip(cv2.resize(smooth, (width, height), interpolation=cv2.INTER_LINEAR), 0, 1)


def reduced(image: Array, side: int) -> Array:
    """A smaller copy whose long side is `side`, or the image itself where it is small already.

    No side is below 16 pixels, as OpenCV's superpixels end the process on less.
    """
    height, width = image.shape[:2]
    scale = min(1.0, side / max(height, width))
    size = (max(_LEAST_SIDE, round(width * scale)), max(_LEAST_SIDE, round(height * scale)))
    if size == (width, height):
        return image
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA)


def regions(lab: Array) -> SalientRegions:
    """An even partition of a small Lab image into a few hundred regions."""
    height, width = lab.shape[:2]
    step = max(4, round((height * width / _REGIONS) ** 0.5))
    slic = cv2.ximgproc.createSuperpixelSLIC(lab.astype(np.float32), cv2.ximgproc.SLICO, step, 10.0)
    slic.iterate(6)
    slic.enforceLabelConnectivity(25)
    _, labels = np.unique(slic.getLabels(), return_inverse=True)
    labels = labels.reshape(height, width).astype(np.int32)
    flat, count = labels.ravel(), int(labels.max()) + 1
    areas = np.bincount(flat, minlength=count).astype(np.float64)
    colors = np.stack([np.bincount(flat, lab[..., c].ravel(), count) for c in range(3)], 1) / areas[:, None]
    rows, columns = np.indices((height, width))
    places = np.stack([np.bincount(flat, rows.ravel(), count), np.bincount(flat, columns.ravel(), count)], 1)
    centers = places / areas[:, None] / [height, width]
    rim = np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]])
    border = np.bincount(rim, minlength=count).astype(np.float64)
    return SalientRegions(labels, colors, centers, areas, border, _links(labels))


def _links(labels: NDArray[np.int32]) -> Array:
    across = np.stack([labels[:, :-1].ravel(), labels[:, 1:].ravel()], 1)
    down = np.stack([labels[:-1].ravel(), labels[1:].ravel()], 1)
    pairs = np.concatenate([across, down])
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    return np.unique(pairs, axis=0)


def ground_share(found: SalientRegions) -> Array:
    """How surely each region belongs to the ground, 0 to 1, by its connection to the border."""
    color = np.linalg.norm(found.colors[:, None] - found.colors[None], axis=2)
    distance = np.full((found.count, found.count), np.inf)
    first, second = found.links[:, 0], found.links[:, 1]
    distance[first, second] = distance[second, first] = color[first, second]
    rim = np.flatnonzero(found.border)
    distance[np.ix_(rim, rim)] = np.minimum(distance[np.ix_(rim, rim)], color[np.ix_(rim, rim)])
    np.fill_diagonal(distance, 0)
    for through in range(found.count):  # Floyd and Warshall
        np.minimum(distance, distance[:, through, None] + distance[through], out=distance)
    alike = np.exp(-(distance**2) / (2 * _GEODESIC**2))
    reach = alike @ found.border / np.sqrt(alike @ found.areas)
    return 1 - np.exp(-(reach**2) / 2)


def _worth(found: SalientRegions) -> Array:
    ground = ground_share(found)
    color = np.linalg.norm(found.colors[:, None] - found.colors[None], axis=2)
    apart = ((found.centers[:, None] - found.centers[None]) ** 2).sum(2)
    near = np.exp(-apart / (2 * _NEAR**2))
    contrast = (color * near * (ground * found.areas)[None]).sum(1)
    contrast /= max(1e-9, float(contrast.max()))
    first, second = found.links[:, 0], found.links[:, 1]
    tie = np.exp(-(color[first, second] ** 2) / (2 * _ALIKE**2)) + _KEEP
    system = np.diag(ground + contrast + 1e-6)
    np.add.at(system, (first, first), tie)
    np.add.at(system, (second, second), tie)
    system[first, second] -= tie
    system[second, first] -= tie
    worth = np.linalg.solve(system, contrast)
    low, high = float(worth.min()), float(worth.max())
    return np.clip((worth - low) / max(1e-9, high - low), 0, 1)
