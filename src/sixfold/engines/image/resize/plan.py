"""How an image comes to a size: what of it matters, and the gentlest way that keeps that.

`scale` where the shape is the same; `crop` where a window of the wanted shape holds what matters;
`seam-carving` where only dull columns or rows have to go, and no face would bend; else `extend`: the part
that matters on a canvas that its own edges fill.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import cv2
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
_CARVE = 0.28  # of a side, at most
_KEPT = 0.97  # of what matters: what a crop must hold
_LOST = 0.03  # of what matters: what carving may cost
_ROOM = 0.03  # of the image, round the subject
_TAILS = 0.01
_WORK_SIDE = 256


@dataclass(frozen=True, slots=True)
class DetectedRegion:
    """What matters in an image: `worth` HxW (small, 0 to 1), the box and the heads as parts of it."""

    worth: Array
    gray: Array
    box: Box
    heads: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class ResizePlan:
    """The way to a size: the part of the image that is used (`left, top, right, bottom`, 0 to 1), and how.

    `carved` maps columns of that part, or rows where `across` is false.
    """

    method: Method
    box: Box = (0.0, 0.0, 1.0, 1.0)
    carved: CarvedImage | None = None
    across: bool = True


def look(rgb: Pixels) -> DetectedRegion:
    """What matters in HxWx3."""
    height, width = rgb.shape[:2]
    small = saliency.downscale(rgb, _WORK_SIDE)
    stands_out = saliency.saliency(small)
    heads = tuple(_part(face.head(width, height), width, height) for face in face_detection.find(rgb))
    level, _ = cv2.threshold((stands_out * 255).astype(np.uint8), 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
    low = min(0.5, level / 255)
    worth = np.clip((stands_out - 0.6 * low) / max(0.05, 1 - 0.6 * low), 0, 1).astype(np.float32)
    for left, top, right, bottom in heads:
        rows = slice(int(top * small.shape[0]), int(np.ceil(bottom * small.shape[0])))
        columns = slice(int(left * small.shape[1]), int(np.ceil(right * small.shape[1])))
        worth[rows, columns] = 1.0
    gray = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY).astype(np.float32) / 255
    return DetectedRegion(worth, gray, _box(worth, heads), heads)


def _part(face: DetectedFace, width: int, height: int) -> Box:
    return face.left / width, face.top / height, face.right / width, face.bottom / height


def _box(worth: Array, heads: tuple[Box, ...]) -> Box:
    strong = np.where(worth > 0.35, worth, 0)
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
    """From where to where all but the tails of a profile lie, 0 to 1."""
    run = np.cumsum(profile) / profile.sum()
    first = int(np.searchsorted(run, _TAILS))
    last = int(np.searchsorted(run, 1 - _TAILS))
    return first / len(profile), min(1.0, (last + 1) / len(profile))


def plan(seen: DetectedRegion, source: tuple[int, int], target: tuple[int, int]) -> ResizePlan:
    """The way from `source` to `target` (each width, height)."""
    change = (target[0] / target[1]) / (source[0] / source[1])
    across = change < 1  # columns have to go; otherwise rows
    part = min(change, 1 / change)
    if part > 1 - SAME_SHAPE:
        return ResizePlan("scale")
    start, kept = _window(seen, part, across)
    low, high = (seen.box[0], seen.box[2]) if across else (seen.box[1], seen.box[3])
    inside = start - 0.01 <= low and high <= start + part + 0.01
    if inside or (kept >= _KEPT and not _cuts_a_head(seen, start, part, across)):
        return ResizePlan("crop", _span(start, start + part, across))
    if not seen.heads and 1 - part <= _CARVE:
        carved = _carved(seen, part, across)
        if carved.lost <= _LOST:
            return ResizePlan("seam-carving", carved=carved, across=across)
    low, high = max(0.0, low - _ROOM), min(1.0, high + _ROOM)
    if high - low < part:
        return ResizePlan("crop", _span(start, start + part, across))
    return ResizePlan("extend", _span(low, high, across))


def _span(low: float, high: float, across: bool) -> Box:
    return (low, 0.0, high, 1.0) if across else (0.0, low, 1.0, high)


def _window(seen: DetectedRegion, part: float, across: bool) -> tuple[float, float]:
    """Where the window of this length holds most, and how much that is; of equals, the most central one."""
    profile = seen.worth.sum(0 if across else 1).astype(np.float64)
    run = np.concatenate([[0.0], np.cumsum(profile)])
    starts = np.linspace(0, 1 - part, 65)
    places = np.arange(len(run)) / len(profile)
    held = np.interp(starts + part, places, run) - np.interp(starts, places, run)
    share = held / max(1e-9, run[-1])
    middle = (seen.box[0] + seen.box[2]) / 2 if across else (seen.box[1] + seen.box[3]) / 2
    best = int(np.argmax(share - 0.05 * np.abs(starts + part / 2 - middle)))
    return float(starts[best]), float(share[best])


def _cuts_a_head(seen: DetectedRegion, start: float, part: float, across: bool) -> bool:
    spans = [(head[0], head[2]) if across else (head[1], head[3]) for head in seen.heads]
    return any(low < start - 0.005 or high > start + part + 0.005 for low, high in spans)


def _carved(seen: DetectedRegion, part: float, across: bool) -> CarvedImage:
    gray, worth = (seen.gray, seen.worth) if across else (seen.gray.T, seen.worth.T)
    return seams.carve(gray, worth, max(1, round(gray.shape[1] * part)))
