"""What of a picture becomes a thing: its outline, its colours beyond it, and how thick it is where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import EngineError, Task
from sixfold.engines.image import decode
from sixfold.engines.image.depth import heuristic
from sixfold.engines.image.matting import edges, segmentation
from sixfold.engines.video import layers

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes

_LEAST, _MOST = 0.004, 0.92  # of the picture: what is no outline of a thing, the whole picture is taken then
_CRUMB = 0.03  # of the largest part
_RIM = 0.02  # of the shorter side, left free round a whole picture
_COARSEST, _LEVELS, _ROUNDS = 16, 5, 80  # of the balloon: cells of its first grid, each twice as fine
_DETAIL = 0.16  # how much of the guessed nearness shows on the round body


@dataclass(frozen=True, slots=True)
class MeshSubject:
    """A thing in the middle of a square of `side` pixels.

    `rgb` is side x side x 3, drawn on beyond the outline; `inside` float32 0 to 1, half at the outline;
    `near` float32 0 to 1, how far the surface stands out, round from the outline on.
    """

    rgb: Pixels
    inside: Array
    near: Array
    confidence: float

    @property
    def side(self) -> int:
        """Pixels along the square."""
        return self.rgb.shape[0]


def read(task: Task, side: int, ratio: float) -> MeshSubject:
    """The subject of a task's picture, its longer side `ratio` of the square's."""
    path = task.files.get("image") or task.files.get("image_url")
    if path is None:
        raise EngineError("A thing of three dimensions needs a picture.")
    picture = decode.decode(path, target=(2 * side, 2 * side))
    alpha, confidence = _alpha(picture)
    rgb = edges.decontaminate(picture.rgb, alpha)
    scale, offset = _placed(alpha, side, ratio)
    matrix = np.array([[scale, 0, offset[0]], [0, scale, offset[1]]], np.float32)
    inside = _warped(alpha, matrix, side, 0)
    colours = _warped(rgb, matrix, side, cv2.BORDER_REPLICATE)
    hidden = (cv2.erode(inside, np.ones((3, 3), np.uint8)) < 0.9).astype(np.uint8)
    beyond = np.clip(np.rint(layers.fill_hidden(colours.astype(np.float32), hidden)), 0, 255).astype(np.uint8)
    drawn = np.where(hidden[..., None] > 0, beyond, colours)
    return MeshSubject(drawn, inside, body(inside, heuristic.nearness(drawn)), confidence)


def body(inside: Array, nearness: Array) -> Array:
    """How far each pixel stands out: a round body that has the picture's own relief on it."""
    side = len(inside)
    solid = (inside > 0.5).astype(np.uint8)
    relief = nearness - cv2.GaussianBlur(nearness.astype(np.float32), (0, 0), 0.06 * side)
    fine = np.clip(1 + 4 * _DETAIL * relief, 0.6, 1.4)
    deep = cv2.distanceTransform(solid, cv2.DIST_L2, 5) / (0.02 * side)
    edge = np.sqrt(np.clip(deep * (2 - deep), 0, 1)) * (deep < 1) + (deep >= 1)  # round at the outline, too
    wide = cv2.resize(_inflated(inside), (side, side), interpolation=cv2.INTER_CUBIC)
    return (np.clip(wide * fine, 0, 1) * edge * solid).astype(np.float32)


def _inflated(inside: Array) -> Array:
    """The outline as a balloon, 0 to 1: the root of what is flat at it and curved alike everywhere within."""
    height = np.zeros((_COARSEST, _COARSEST), np.float32)
    around = np.array([[0, 0.25, 0], [0.25, 0, 0.25], [0, 0.25, 0]], np.float32)
    for cells in (_COARSEST << step for step in range(_LEVELS)):
        share = cv2.resize(inside, (cells, cells), interpolation=cv2.INTER_AREA)
        height = cv2.resize(height, (cells, cells), interpolation=cv2.INTER_LINEAR)
        for _ in range(_ROUNDS):
            height = (cv2.filter2D(height, -1, around) + 1 / cells**2) * share
    root = np.sqrt(np.maximum(height, 0))
    return root / max(float(root.max()), 1e-6)


def _alpha(picture: decode.DecodedImage) -> tuple[Array, float]:
    """The outline: the picture's own alpha where it has one, else its subject, else all of it."""
    if picture.alpha is not None:
        return picture.alpha.astype(np.float32) / 255, 1.0
    alpha, confidence = segmentation.alpha(picture.rgb)
    alpha = _main(alpha)
    if _LEAST < float((alpha > 0.5).mean()) < _MOST:
        return alpha.astype(np.float32), confidence
    whole = np.zeros(alpha.shape, np.float32)
    rim = max(1, round(_RIM * min(alpha.shape)))
    whole[rim:-rim, rim:-rim] = 1
    return whole, 0.0


def _main(alpha: Array) -> Array:
    """Without crumbs: what is far smaller than the largest part, and hardly hangs together with it, goes."""
    solid = cv2.morphologyEx((alpha > 0.5).astype(np.uint8), cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    count, labels, stats, _ = cv2.connectedComponentsWithStats(solid)
    areas = stats[:, cv2.CC_STAT_AREA]
    kept = [label for label in range(1, count) if areas[label] > _CRUMB * areas[1:].max()]
    return alpha * cv2.dilate(np.isin(labels, kept).astype(np.uint8), np.ones((9, 9), np.uint8))


def _placed(alpha: Array, side: int, ratio: float) -> tuple[float, tuple[float, float]]:
    """Scale and offset that bring the outline's box into the middle of the square."""
    left, top, width, height = cv2.boundingRect((alpha > 0.5).astype(np.uint8))
    if not width:
        raise EngineError("There is nothing to be seen in this picture: it is transparent.")
    scale = ratio * side / max(width, height)
    return scale, (side / 2 - scale * (left + width / 2), side / 2 - scale * (top + height / 2))


def _warped(values: Array, matrix: Array, side: int, border: int) -> Array:
    how = cv2.INTER_AREA if matrix[0, 0] < 1 else cv2.INTER_LINEAR
    if matrix[0, 0] < 0.5:  # a warp samples points: what is made much smaller is made soft before
        values = cv2.GaussianBlur(values, (0, 0), 0.35 / float(matrix[0, 0]))
    return cv2.warpAffine(values, matrix, (side, side), flags=how, borderMode=border)
