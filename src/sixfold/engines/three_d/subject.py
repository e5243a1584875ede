"""Extraction of a subject from an image: its mask, its colors, and its depth."""

from __future__ import annotations

from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import EngineError, Task, UnusableInput
from sixfold.engines.image import decode
from sixfold.engines.image.depth import heuristic
from sixfold.engines.image.matting import edges, segmentation
from sixfold.engines.video import layers

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes

# The fraction of the image that a subject may cover; otherwise the whole image is the subject.
_MIN_AREA, _MAX_AREA = 0.004, 0.92
# Pixels of a greater opacity are solid.
_SOLID = 0.5
# Smaller parts, relative to the largest one, are dropped.
_MIN_PART = 0.03
# The margin around a whole image, as a fraction of its shorter side.
_RIM = 0.02
# The multigrid solver of the inflated shape: cells of the coarsest grid, levels, iterations per level.
_COARSEST, _LEVELS, _ITERATIONS = 16, 5, 80
# The fraction of the estimated relief that is added to the inflated shape.
_DETAIL = 0.16


class MeshSubject(msgspec.Struct, frozen=True):
    """A subject centered in a square of `side` pixels.

    `rgb` is side x side x 3, extended beyond the outline; `inside` is the mask, float32 0 to 1; `near` is the
    relief, float32 0 to 1, rising roundly from the outline.
    """

    rgb: Pixels
    inside: Array
    near: Array
    confidence: float

    @property
    def side(self) -> int:
        return self.rgb.shape[0]


def read(task: Task, side: int, ratio: float) -> MeshSubject:
    """Return the subject of a task's image; its longer side is `ratio` of the square's side."""
    path = task.files.get("image") or task.files.get("image_url")
    if path is None:
        raise EngineError("`image` is required.")
    image = decode.decode(path, target=(2 * side, 2 * side))
    alpha, confidence = _alpha(image)
    rgb = edges.decontaminate(image.rgb, alpha)
    scale, offset = _placement(alpha, side, ratio)
    matrix = np.array([[scale, 0, offset[0]], [0, scale, offset[1]]], np.float32)
    inside = _warp(alpha, matrix, side, 0)
    colors = _warp(rgb, matrix, side, cv2.BORDER_REPLICATE)
    hidden = (cv2.erode(inside, np.ones((3, 3), np.uint8)) < 0.9).astype(np.uint8)
    filled = np.clip(np.rint(layers.fill_hidden(colors.astype(np.float32), hidden)), 0, 255).astype(np.uint8)
    extended = np.where(hidden[..., None] > 0, filled, colors)
    return MeshSubject(extended, inside, body(inside, heuristic.nearness(extended)), confidence)


def body(inside: Array, nearness: Array) -> Array:
    """Return the relief of each pixel: an inflated shape with the relief of the image on its surface."""
    side = len(inside)
    solid = (inside > _SOLID).astype(np.uint8)
    relief = nearness - cv2.GaussianBlur(nearness.astype(np.float32), (0, 0), 0.06 * side)
    fine = np.clip(1 + 4 * _DETAIL * relief, 0.6, 1.4)
    depth = cv2.distanceTransform(solid, cv2.DIST_L2, 5) / (0.02 * side)
    # The relief is also rounded at the outline.
    edge = np.sqrt(np.clip(depth * (2 - depth), 0, 1)) * (depth < 1) + (depth >= 1)
    shape = cv2.resize(_inflate(inside), (side, side), interpolation=cv2.INTER_CUBIC)
    return (np.clip(shape * fine, 0, 1) * edge * solid).astype(np.float32)


def _inflate(inside: Array) -> Array:
    """Inflate the mask to a shape of 0 to 1: the square root of the solution of the Poisson equation."""
    height = np.zeros((_COARSEST, _COARSEST), np.float32)
    around = np.array([[0, 0.25, 0], [0.25, 0, 0.25], [0, 0.25, 0]], np.float32)
    for cells in (_COARSEST << step for step in range(_LEVELS)):
        share = cv2.resize(inside, (cells, cells), interpolation=cv2.INTER_AREA)
        height = cv2.resize(height, (cells, cells), interpolation=cv2.INTER_LINEAR)
        for _ in range(_ITERATIONS):
            height = (cv2.filter2D(height, -1, around) + 1 / cells**2) * share
    root = np.sqrt(np.maximum(height, 0))
    return root / max(float(root.max()), 1e-6)


def _alpha(image: decode.DecodedImage) -> tuple[Array, float]:
    """Return the mask and its confidence: the image's alpha, its segmented subject, or the whole image."""
    if image.alpha is not None:
        alpha = image.alpha.astype(np.float32) / 255
        most = float(alpha.max())
        # The most opaque pixels of a translucent image are solid.
        return (alpha / most if 0 < most <= _SOLID else alpha), 1.0
    alpha, confidence = segmentation.alpha(image.rgb)
    alpha = _drop_small_parts(alpha)
    if _MIN_AREA < float((alpha > _SOLID).mean()) < _MAX_AREA:
        return alpha.astype(np.float32), confidence
    rim = max(1, round(_RIM * min(alpha.shape)))
    if min(alpha.shape) <= 2 * rim:
        return np.ones(alpha.shape, np.float32), 0.0
    whole = np.zeros(alpha.shape, np.float32)
    whole[rim:-rim, rim:-rim] = 1
    return whole, 0.0


def _drop_small_parts(alpha: Array) -> Array:
    """Remove parts that are far smaller than the largest part and hardly connected to it."""
    solid = cv2.morphologyEx((alpha > _SOLID).astype(np.uint8), cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    count, labels, stats, _ = cv2.connectedComponentsWithStats(solid)
    sizes = stats[:, cv2.CC_STAT_AREA]
    large = [label for label in range(1, count) if sizes[label] > _MIN_PART * sizes[1:].max()]
    return alpha * cv2.dilate(np.isin(labels, large).astype(np.uint8), np.ones((9, 9), np.uint8))


def _placement(alpha: Array, side: int, ratio: float) -> tuple[float, tuple[float, float]]:
    """Return the scale and offset that center the mask's bounding box in the square."""
    left, top, width, height = cv2.boundingRect((alpha > _SOLID).astype(np.uint8))
    if not width:
        raise UnusableInput("The image is fully transparent: send an image with an opaque subject.")
    scale = ratio * side / max(width, height)
    return scale, (side / 2 - scale * (left + width / 2), side / 2 - scale * (top + height / 2))


def _warp(values: Array, matrix: Array, side: int, border: int) -> Array:
    interpolation = cv2.INTER_AREA if matrix[0, 0] < 1 else cv2.INTER_LINEAR
    # A warp samples single points, so strong reduction needs a blur against aliasing.
    if matrix[0, 0] < 0.5:
        values = cv2.GaussianBlur(values, (0, 0), 0.35 / float(matrix[0, 0]))
    return cv2.warpAffine(values, matrix, (side, side), flags=interpolation, borderMode=border)
