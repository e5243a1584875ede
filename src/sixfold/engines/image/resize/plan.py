"""Plans to resize an image by the least destructive method that preserves its important parts.

`scale` if the aspect ratio is the same; `crop` if a window with the target's ratio contains the important
parts; `seam-carving` if only unimportant columns or rows are removed and there are no faces; else `extend`:
the important part on a canvas filled from the edges of this part.
"""

from __future__ import annotations

from typing import Any, Literal

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image import face_detection, saliency
from sixfold.engines.image.face_detection import DetectedFace
from sixfold.engines.image.resize import seams
from sixfold.engines.image.resize.seams import CarvedImage

Array = NDArray[Any]
Pixels = NDArray[np.uint8]
Method = Literal["scale", "crop", "seam-carving", "extend"]
Box = tuple[float, float, float, float]

SAME_SHAPE = 0.012
# Largest fraction of a side that may be carved.
_CARVE = 0.28
# Smallest fraction of the importance that a crop must contain.
_MIN_CROP = 0.97
# Largest fraction of the importance that carving may remove.
_MAX_LOSS = 0.03
# Margin around the subject, as a fraction of the image.
_MARGIN = 0.03
_TAILS = 0.01
_WORK_SIDE = 256


class DetectedRegion(msgspec.Struct, frozen=True):
    """The important parts of an image: `importance` (HxW, 0 to 1) at a small size, and boxes.

    `box` encloses the important parts and `heads` the heads, as fractions of the sides.
    """

    importance: Array
    gray: Array
    box: Box
    heads: tuple[Box, ...]


class ResizePlan(msgspec.Struct, frozen=True):
    """A method, and the part of the image to use (`left, top, right, bottom`, 0 to 1).

    `carved` maps columns of that part, or rows if `across` is false.
    """

    method: Method
    box: Box = (0.0, 0.0, 1.0, 1.0)
    carved: CarvedImage | None = None
    across: bool = True


def find_region(rgb: Pixels) -> DetectedRegion:
    """Find the important parts of an HxWx3 image."""
    height, width = rgb.shape[:2]
    small = saliency.downscale(rgb, _WORK_SIDE)
    salient = saliency.saliency(small)
    heads = tuple(_part(face.head(width, height), width, height) for face in face_detection.find(rgb))
    level, _ = cv2.threshold((salient * 255).astype(np.uint8), 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
    low = min(0.5, level / 255)
    importance = np.clip((salient - 0.6 * low) / max(0.05, 1 - 0.6 * low), 0, 1).astype(np.float32)
    for left, top, right, bottom in heads:
        rows = slice(int(top * small.shape[0]), int(np.ceil(bottom * small.shape[0])))
        columns = slice(int(left * small.shape[1]), int(np.ceil(right * small.shape[1])))
        importance[rows, columns] = 1.0
    gray = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY).astype(np.float32) / 255
    return DetectedRegion(importance, gray, _box(importance, heads), heads)


def _part(face: DetectedFace, width: int, height: int) -> Box:
    return face.left / width, face.top / height, face.right / width, face.bottom / height


def _box(importance: Array, heads: tuple[Box, ...]) -> Box:
    strong = np.where(importance > 0.35, importance, 0)
    if strong.sum() == 0:
        return (0.0, 0.0, 1.0, 1.0)
    left, right = _extent(strong.sum(0))
    top, bottom = _extent(strong.sum(1))
    boxes = [(left, top, right, bottom), *heads]
    return (
        min(b[0] for b in boxes),
        min(b[1] for b in boxes),
        max(b[2] for b in boxes),
        max(b[3] for b in boxes),
    )


def _extent(profile: Array) -> tuple[float, float]:
    """Return the range (0 to 1) that contains a profile except for its tails."""
    run = np.cumsum(profile) / profile.sum()
    first = int(np.searchsorted(run, _TAILS))
    last = int(np.searchsorted(run, 1 - _TAILS))
    return first / len(profile), min(1.0, (last + 1) / len(profile))


def plan(region: DetectedRegion, source: tuple[int, int], target: tuple[int, int]) -> ResizePlan:
    """Return the plan from `source` to `target` (both width, height)."""
    change = (target[0] / target[1]) / (source[0] / source[1])
    # Columns must be removed; otherwise rows.
    across = change < 1
    part = min(change, 1 / change)
    if part > 1 - SAME_SHAPE:
        return ResizePlan("scale")
    start, share = _window(region, part, across)
    low, high = (region.box[0], region.box[2]) if across else (region.box[1], region.box[3])
    inside = start - 0.01 <= low and high <= start + part + 0.01
    if inside or (share >= _MIN_CROP and not _cuts_a_head(region, start, part, across)):
        return ResizePlan("crop", _span(start, start + part, across))
    if not region.heads and 1 - part <= _CARVE:
        carved = _carve(region, part, across)
        if carved.lost <= _MAX_LOSS:
            return ResizePlan("seam-carving", carved=carved, across=across)
    low, high = max(0.0, low - _MARGIN), min(1.0, high + _MARGIN)
    if high - low < part:
        return ResizePlan("crop", _span(start, start + part, across))
    return ResizePlan("extend", _span(low, high, across))


def _span(low: float, high: float, across: bool) -> Box:
    return (low, 0.0, high, 1.0) if across else (0.0, low, 1.0, high)


def _window(region: DetectedRegion, part: float, across: bool) -> tuple[float, float]:
    """Return the start of the window with the most importance, and its fraction of the importance.

    Ties prefer the center.
    """
    profile = region.importance.sum(0 if across else 1).astype(np.float64)
    run = np.concatenate([[0.0], np.cumsum(profile)])
    starts = np.linspace(0, 1 - part, 65)
    positions = np.arange(len(run)) / len(profile)
    sums = np.interp(starts + part, positions, run) - np.interp(starts, positions, run)
    share = sums / max(1e-9, run[-1])
    middle = (region.box[0] + region.box[2]) / 2 if across else (region.box[1] + region.box[3]) / 2
    best = int(np.argmax(share - 0.05 * np.abs(starts + part / 2 - middle)))
    return float(starts[best]), float(share[best])


def _cuts_a_head(region: DetectedRegion, start: float, part: float, across: bool) -> bool:
    spans = [(head[0], head[2]) if across else (head[1], head[3]) for head in region.heads]
    return any(low < start - 0.005 or high > start + part + 0.005 for low, high in spans)


def _carve(region: DetectedRegion, part: float, across: bool) -> CarvedImage:
    gray, importance = (region.gray, region.importance) if across else (region.gray.T, region.importance.T)
    return seams.carve(gray, importance, max(1, round(gray.shape[1] * part)))
