"""Saliency: the contrast of each pixel with the image's border.

Robust background detection (Zhu, Liang, Wei and Sun, CVPR 2014). The image is divided into a few hundred even
regions. A region that touches the border along much of its outline is background; a region that differs in
color from nearby background is salient; a linear system then makes similar neighbors agree.
"""

from __future__ import annotations

from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Pixels = NDArray[np.uint8]

WORK_SIDE = 320
_REGIONS = 260
_MIN_SIDE = 16
# Distance in Lab units within which regions count as one surface.
_GEODESIC = 10.0
# Reach of a region's contrast, as a fraction of the image's side.
_NEAR = 0.25
_ALIKE = 10.0
_KEEP = 0.1


class SalientRegions(msgspec.Struct, frozen=True):
    """An even partition: `labels` HxW, mean Lab colors Nx3, centers Nx2 (0 to 1), sizes and borders N."""

    labels: NDArray[np.int32]
    colors: Array
    centers: Array
    sizes: Array
    border: Array
    links: Array  # pairs of neighbors, Mx2

    @property
    def count(self) -> int:
        """Number of regions."""
        return len(self.sizes)


def saliency(rgb: Pixels) -> Array:
    """Return the saliency of each pixel of an HxWx3 image as HxW, 0 to 1."""
    height, width = rgb.shape[:2]
    small = downscale(rgb, WORK_SIDE)
    lab = cv2.cvtColor(small.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
    partition = regions(lab)
    worth = _worth(partition)[partition.labels].astype(np.float32)
    smooth = cv2.ximgproc.guidedFilter(lab.astype(np.float32), worth, 6, 25.0)
    return np.clip(cv2.resize(smooth, (width, height), interpolation=cv2.INTER_LINEAR), 0, 1)


def downscale(image: Array, side: int) -> Array:
    """Return a copy whose long side is `side`, or the image itself if its long side is not larger."""
    height, width = image.shape[:2]
    scale = min(1.0, side / max(height, width))
    size = (max(_MIN_SIDE, round(width * scale)), max(_MIN_SIDE, round(height * scale)))
    if size == (width, height):
        return image
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA)


def regions(lab: Array) -> SalientRegions:
    """Partition a small Lab image into a few hundred even regions."""
    height, width = lab.shape[:2]
    step = max(4, round((height * width / _REGIONS) ** 0.5))
    slic = cv2.ximgproc.createSuperpixelSLIC(lab.astype(np.float32), cv2.ximgproc.SLICO, step, 10.0)
    slic.iterate(6)
    slic.enforceLabelConnectivity(25)
    _, labels = np.unique(slic.getLabels(), return_inverse=True)
    labels = labels.reshape(height, width).astype(np.int32)
    flat, count = labels.ravel(), int(labels.max()) + 1
    sizes = np.bincount(flat, minlength=count).astype(np.float64)
    colors = np.stack([np.bincount(flat, lab[..., c].ravel(), count) for c in range(3)], 1) / sizes[:, None]
    rows, columns = np.indices((height, width))
    sums = np.stack([np.bincount(flat, rows.ravel(), count), np.bincount(flat, columns.ravel(), count)], 1)
    centers = sums / sizes[:, None] / [height, width]
    rim = np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]])
    border = np.bincount(rim, minlength=count).astype(np.float64)
    return SalientRegions(labels, colors, centers, sizes, border, _links(labels))


def _links(labels: NDArray[np.int32]) -> Array:
    across = np.stack([labels[:, :-1].ravel(), labels[:, 1:].ravel()], 1)
    down = np.stack([labels[:-1].ravel(), labels[1:].ravel()], 1)
    pairs = np.concatenate([across, down])
    pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
    return np.unique(pairs, axis=0)


def ground_share(partition: SalientRegions) -> Array:
    """Return the probability (0 to 1) that each region is background, from its connection to the border."""
    color = np.linalg.norm(partition.colors[:, None] - partition.colors[None], axis=2)
    distance = np.full((partition.count, partition.count), np.inf)
    first, second = partition.links[:, 0], partition.links[:, 1]
    distance[first, second] = distance[second, first] = color[first, second]
    rim = np.flatnonzero(partition.border)
    distance[np.ix_(rim, rim)] = np.minimum(distance[np.ix_(rim, rim)], color[np.ix_(rim, rim)])
    np.fill_diagonal(distance, 0)
    for through in range(partition.count):  # Floyd-Warshall
        np.minimum(distance, distance[:, through, None] + distance[through], out=distance)
    alike = np.exp(-(distance**2) / (2 * _GEODESIC**2))
    reach = alike @ partition.border / np.sqrt(alike @ partition.sizes)
    return 1 - np.exp(-(reach**2) / 2)


def _worth(partition: SalientRegions) -> Array:
    ground = ground_share(partition)
    color = np.linalg.norm(partition.colors[:, None] - partition.colors[None], axis=2)
    distances = ((partition.centers[:, None] - partition.centers[None]) ** 2).sum(2)
    near = np.exp(-distances / (2 * _NEAR**2))
    contrast = (color * near * (ground * partition.sizes)[None]).sum(1)
    contrast /= max(1e-9, float(contrast.max()))
    first, second = partition.links[:, 0], partition.links[:, 1]
    tie = np.exp(-(color[first, second] ** 2) / (2 * _ALIKE**2)) + _KEEP
    system = np.diag(ground + contrast + 1e-6)
    np.add.at(system, (first, first), tie)
    np.add.at(system, (second, second), tie)
    system[first, second] -= tie
    system[second, first] -= tie
    worth = np.linalg.solve(system, contrast)
    low, high = float(worth.min()), float(worth.max())
    return np.clip((worth - low) / max(1e-9, high - low), 0, 1)
