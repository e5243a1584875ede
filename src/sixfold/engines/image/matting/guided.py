"""Masks of a subject that a user has marked with a box, points or a rough mask.

The marks initialize GrabCut on a part of the image around them, where colors distinguish the subject from the
background better than in the whole image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Task, UnusableInput
from sixfold.engines.image import decode, saliency
from sixfold.engines.image.matting import background, confidence, edges, person_prior, segmentation
from sixfold.engines.image.matting.confidence import MattingResult

Array = NDArray[Any]
Pixels = NDArray[np.uint8]

_SIDE = 512
_ROUNDS = 5
# Margin around the marks whose colors belong to the background, as a fraction of the marks' longer side.
_AROUND = 0.35
_WHITE, _HALF = 128, 0.5
# Radius of a point, and half the width of the band around a rough mask's edge, as fractions of the long side.
_DOT, _LOOSE = 0.012, 0.035
# Parts of the mask smaller than this fraction of the largest part are removed unless they contain a point.
_SPECK = 0.12
# Holes smaller than this fraction of the part are filled.
_HOLE = 0.005
# If the subject covers less than the first fraction of a box's width or height, GrabCut starts again from an
# ellipse in the middle, whose size is the second fraction of the box.
_COVERAGE, _MIDDLE = 0.5, 0.3


class SubjectMarks(msgspec.Struct, frozen=True):
    """The marks of a user: a box (left, top, right, bottom), points (x, y, inside) and a mask, in pixels."""

    box: tuple[float, float, float, float] | None
    points: tuple[tuple[float, float, bool], ...]
    mask: NDArray[np.bool_] | None


def read(task: Task, size: tuple[int, int]) -> SubjectMarks | None:
    """Return a task's marks on an image of `size` (width, height), or None if there are no marks.

    Raises `UnusableInput` if an input is invalid.
    """
    box, points = _box(task.inputs, size), _points(task.inputs, size)
    path = task.files.get("mask")
    mask = None if path is None else _mask(decode.decode(path).rgb, size)
    if box is None and not points and mask is None:
        return None
    if box is None and mask is None and not any(inside for _, _, inside in points):
        raise UnusableInput("points must have at least one point on the subject, whose third number is 1")
    return SubjectMarks(box, points, mask)


def _box(inputs: Mapping[str, Any], size: tuple[int, int]) -> tuple[float, float, float, float] | None:
    values = inputs.get("box")
    if not values:
        return None
    if len(values) != 4:
        raise UnusableInput(f"box must be 4 numbers: left, top, right, bottom (got {len(values)})")
    left, top, right, bottom = (
        float(np.clip(value, 0, limit)) for value, limit in zip(values, (*size, *size), strict=True)
    )
    if right - left < 2 or bottom - top < 2:
        raise UnusableInput(
            f"box must be at least 2 pixels wide and high inside the {size[0]} x {size[1]} image"
        )
    return left, top, right, bottom


def _points(inputs: Mapping[str, Any], size: tuple[int, int]) -> tuple[tuple[float, float, bool], ...]:
    values: Sequence[float] = inputs.get("points") or ()
    if len(values) % 3:
        raise UnusableInput(
            f"points must have three numbers per point (got {len(values)} numbers): x, y, and 1 (subject) or "
            "0 (background)"
        )
    triples = [(values[at], values[at + 1], values[at + 2]) for at in range(0, len(values), 3)]
    for x, y, inside in triples:
        if not (x < size[0] and y < size[1]):
            raise UnusableInput(f"points must be inside the {size[0]} x {size[1]} image (got {x:g}, {y:g})")
        if inside not in (0, 1):
            raise UnusableInput(f"the third number of a point must be 1 or 0 (got {inside:g})")
    return tuple((x, y, bool(inside)) for x, y, inside in triples)


def _mask(rgb: Pixels, size: tuple[int, int]) -> NDArray[np.bool_]:
    gray = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    mask = cv2.resize(gray, size, interpolation=cv2.INTER_LINEAR) >= _WHITE
    if mask.all() or not mask.any():
        raise UnusableInput("mask must be white on the subject and black elsewhere")
    return mask


def alpha(
    rgb: Pixels, marks: SubjectMarks, salient_mask: NDArray[np.bool_] | None = None
) -> tuple[Array, float]:
    """Return the marked subject's soft mask (HxW, 0 to 1) and the confidence in it (0 to 1).

    `salient_mask` (HxW) is a mask of subjects from another source, which extends the marks. It defaults to
    the result of `segmentation.cut` if only points are marked.
    """
    if marks.box is None and marks.mask is None and salient_mask is None:
        salient = segmentation.cut(rgb).mask.astype(np.float32)
        salient_mask = (
            cv2.resize(salient, (rgb.shape[1], rgb.shape[0]), interpolation=cv2.INTER_LINEAR) > _HALF
        )
    result, mask = _cut(rgb, marks, salient_mask)
    return edges.refined_alpha(rgb, mask, 1.0), confidence.estimate(result)


def _cut(
    rgb: Pixels, marks: SubjectMarks, known: NDArray[np.bool_] | None
) -> tuple[MattingResult, NDArray[np.bool_]]:
    top, bottom, left, right = _part(rgb.shape[:2], marks)
    small = saliency.downscale(rgb[top:bottom, left:right], _SIDE)
    scale = (small.shape[1] / (right - left), small.shape[0] / (bottom - top))
    labels = _labels(small, marks, (left, top), scale)
    if known is not None and marks.mask is None:
        size = (small.shape[1], small.shape[0])
        part = cv2.resize(known[top:bottom, left:right].astype(np.uint8), size, interpolation=cv2.INTER_AREA)
        labels[(part > 0) & (labels == cv2.GC_PR_BGD)] = cv2.GC_PR_FGD
    points = [
        (int((x - left) * scale[0]), int((y - top) * scale[1])) for x, y, inside in marks.points if inside
    ]
    box = cv2.boundingRect((labels != cv2.GC_BGD).astype(np.uint8))
    solid = _marked_parts(_grab_cut(small, labels.copy()), points)
    if not marks.points and cv2.GC_PR_BGD not in labels and not _fills(solid, box):
        middle = (box[0] + box[2] / 2, box[1] + box[3] / 2)
        cv2.ellipse(labels, (middle, (_MIDDLE * box[2], _MIDDLE * box[3]), 0.0), cv2.GC_FGD, -1)
        solid = _marked_parts(_grab_cut(small, labels), points)
    floats = small.astype(np.float32) / 255
    ground = background.fit_background(floats)
    result = MattingResult(floats, solid, segmentation.belief_of(small, ground), ground)
    whole = np.zeros(rgb.shape[:2], bool)
    size = (right - left, bottom - top)
    whole[top:bottom, left:right] = (
        cv2.resize(solid.astype(np.float32), size, interpolation=cv2.INTER_LINEAR) > _HALF
    )
    return result, whole


def _part(shape: tuple[int, int], marks: SubjectMarks) -> tuple[int, int, int, int]:
    """Return the top, bottom, left and right of the part that is segmented."""
    if marks.box is not None:
        left, top, right, bottom = marks.box
    elif marks.mask is not None:
        left, top, width, height = cv2.boundingRect(marks.mask.astype(np.uint8))
        right, bottom = left + width, top + height
    else:
        return 0, shape[0], 0, shape[1]
    around = max(8.0, _AROUND * max(right - left, bottom - top))
    return (
        max(0, int(top - around)),
        min(shape[0], int(bottom + around) + 1),
        max(0, int(left - around)),
        min(shape[1], int(right + around) + 1),
    )


def _labels(small: Pixels, marks: SubjectMarks, origin: tuple[int, int], scale: tuple[float, float]) -> Array:
    """Return GrabCut's initial label of each pixel."""
    height, width = small.shape[:2]
    labels = np.full((height, width), cv2.GC_PR_BGD, np.uint8)
    if marks.mask is not None:
        part = marks.mask[
            origin[1] : origin[1] + round(height / scale[1]), origin[0] : origin[0] + round(width / scale[0])
        ]
        rough = cv2.resize(part.astype(np.uint8), (width, height), interpolation=cv2.INTER_AREA)
        reach = 2 * max(1, round(_LOOSE * max(height, width))) + 1
        ball = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (reach, reach))
        labels[rough > 0] = cv2.GC_PR_FGD
        labels[cv2.erode(rough, ball) > 0] = cv2.GC_FGD
        labels[cv2.dilate(rough, ball) == 0] = cv2.GC_BGD
    elif marks.box is None:
        labels[_near_points(small, marks, scale)] = cv2.GC_PR_FGD
    if marks.box is not None:
        left, right = (round((value - origin[0]) * scale[0]) for value in marks.box[::2])
        top, bottom = (round((value - origin[1]) * scale[1]) for value in marks.box[1::2])
        if marks.mask is None:
            person = person_prior.region(small, (left, top, right, bottom))
            labels[... if person is None else person] = cv2.GC_PR_FGD
        outside = np.ones((height, width), bool)
        outside[top:bottom, left:right] = False
        labels[outside] = cv2.GC_BGD
    radius = max(2, round(_DOT * max(height, width)))
    for x, y, inside in marks.points:
        middle = (int((x - origin[0]) * scale[0]), int((y - origin[1]) * scale[1]))
        cv2.circle(labels, middle, radius, cv2.GC_FGD if inside else cv2.GC_BGD, -1)
    return labels


def _near_points(small: Pixels, marks: SubjectMarks, scale: tuple[float, float]) -> NDArray[np.bool_]:
    """Return the region around the inner points, separated by edges from the border and the outer points."""
    markers = np.zeros(small.shape[:2], np.int32)
    markers[0], markers[-1], markers[:, 0], markers[:, -1] = 2, 2, 2, 2
    radius = max(2, round(_DOT * max(small.shape[:2])))
    for x, y, inside in marks.points:
        cv2.circle(markers, (int(x * scale[0]), int(y * scale[1])), radius, 1 if inside else 2, -1)
    smooth = cv2.bilateralFilter(small, 7, 40, 5)
    return cv2.watershed(np.ascontiguousarray(smooth), markers) == 1


def _grab_cut(small: Pixels, labels: Array) -> NDArray[np.bool_]:
    inside, outside = labels % 2 == 1, labels % 2 == 0
    if inside.sum() < 16 or outside.sum() < 16:
        return inside
    models = np.zeros((2, 1, 65))
    # GrabCut runs k-means: the same image must give the same mask.
    cv2.setRNGSeed(1)
    bgr = np.ascontiguousarray(small[..., ::-1])
    cv2.grabCut(bgr, labels, (0, 0, 1, 1), models[0], models[1], _ROUNDS, cv2.GC_INIT_WITH_MASK)
    return (labels == cv2.GC_FGD) | (labels == cv2.GC_PR_FGD)


def _fills(solid: NDArray[np.bool_], box: Sequence[int]) -> bool:
    """Return whether the mask is about as wide and high as the box (left, top, width, height)."""
    subject = cv2.boundingRect(solid.astype(np.uint8))
    return all(subject[side] >= _COVERAGE * box[side] for side in (2, 3))


def _marked_parts(mask: NDArray[np.bool_], points: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Return the parts with points, or the large parts if there are no points, with small holes filled."""
    labels, sizes = _components(mask, 8)
    if sizes.size < 2:
        return mask
    sizes[0] = 0
    keep = sizes > _SPECK * sizes.max()
    point_labels = {int(labels[min(y, mask.shape[0] - 1), min(x, mask.shape[1] - 1)]) for x, y in points} - {
        0
    }
    if point_labels:
        keep = np.isin(np.arange(sizes.size), list(point_labels))
    solid = keep[labels]
    labels, sizes = _components(~solid, 4)
    holes = sizes < _HOLE * mask.size
    holes[np.unique(labels[solid])] = False
    return solid | holes[labels]


def _components(mask: NDArray[np.bool_], connectivity: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the label of each pixel's connected part, 0 outside the mask, and the size of each part."""
    _, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=connectivity)
    return np.asarray(labels, np.int64), np.asarray(stats[:, cv2.CC_STAT_AREA], np.float64)
