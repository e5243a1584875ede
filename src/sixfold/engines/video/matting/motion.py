"""Detection of motion that differs from the camera's: a cue for the subject besides color and position.

The camera's motion is an affine model fitted to the flow by iteratively reweighted least squares. The
residual is independent motion.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_ITERATIONS = 6
# Pixels between the samples to which the camera's motion is fitted.
_SAMPLE_STEP = 4
# A residual, in pixels, that is due to grain.
_GRAIN = 0.35
# The quantile of a subject's residuals that excludes its fastest parts.
_SUBJECT_QUANTILE = 0.9
# The residual above the noise, in pixels, from which motion is clearly independent.
_CLEAR = 1.6
# The residual, as a fraction of the width, at which further frames are not needed.
_ENOUGH = 0.03
# The fraction of the frame that independent motion may cover: less is noise, more is not a subject.
_AREA = (0.01, 0.6)
# The strength of the exclusion of static regions if others clearly move.
_MAX_WEIGHT = 0.95
_SMOOTH = 3e-4
# Differences up to this level (of 255), or this multiple of the median, count as equal.
_SAME, _SAME_MEDIANS = 3.0, 2.2
# The fraction of the background's pixels from which a color is common there.
_COMMON = 4e-3
# The fraction of a mask that may be background; a static subject fits a static camera entirely.
_MAX_UNCOVERED = 0.8
_NOTHING: Any = None


class MotionModel(msgspec.Struct, frozen=True):
    """The probability HxW of independent motion (`belief`) and its significance (`weight`), both 0 to 1."""

    belief: Array
    weight: float

    @property
    def only(self) -> Array | None:
        """The regions that the subject may occupy, or None if motion is not significant."""
        if not self.weight:
            return None
        return 1 - self.weight * (1 - self.belief)


def independent(small: Array, later: Sequence[Array]) -> MotionModel:
    """Detect independent motion in a reduced frame, from later frames of the same size."""
    height, width = small.shape[:2]
    frames = [frame for frame in later if frame.shape == small.shape]
    if not frames:
        return MotionModel(np.zeros((height, width), np.float32), 0.0)
    grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
    dis = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    residual = np.zeros((height, width), np.float32)
    for one in (frames[(len(frames) - 1) // 4], frames[(len(frames) - 1) // 2], frames[-1]):
        flow = dis.calc(grey, cv2.cvtColor(one, cv2.COLOR_RGB2GRAY), _NOTHING)
        residual = np.linalg.norm(flow - camera(flow), axis=2).astype(np.float32)
        if float(np.quantile(residual, 0.95)) > _ENOUGH * width:
            # Later frames are harder to match and do not add information.
            break
    noise = max(_GRAIN, 2.0 * float(np.median(residual)))
    top = max(noise + _CLEAR, float(np.quantile(residual, 0.97)) * 0.6)
    belief = np.clip((residual - noise) / (top - noise), 0, 1).astype(np.float32)
    guide = small.astype(np.float32) / 255
    belief = np.clip(cv2.ximgproc.guidedFilter(guide, belief, 8, _SMOOTH), 0, 1)
    return MotionModel(belief, _weight(belief, residual, noise))


def _weight(belief: Array, residual: Array, noise: float) -> float:
    part = float((belief > 0.5).mean())
    if not _AREA[0] < part < _AREA[1]:
        return 0.0
    clear = float(np.median(residual[belief > 0.5])) / noise
    rim = np.concatenate([belief[0], belief[-1], belief[:, 0], belief[:, -1]]).mean()
    return float(_MAX_WEIGHT * np.clip((clear - 1.5) / 2.5, 0, 1) * np.clip(1.5 - 4 * rim, 0, 1))


def uncovered(small: Array, mask: Array, others: Sequence[Array], dis: Any) -> NDArray[np.bool_]:
    """Return the part of a mask that shows background uncovered by the subject's movement.

    The camera's motion alone explains the pixels of this part in an earlier or later frame, the part is
    connected to the frame's border, and its colors are common outside the mask; plain clothing fails the last
    test. A subject that moves with the camera uncovers no background.
    """
    inside = mask > 0.5
    nothing = np.zeros_like(inside)
    if not inside.any():
        return nothing
    grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
    rows, columns = np.mgrid[: grey.shape[0], : grey.shape[1]].astype(np.float32)
    difference, motion = np.full(grey.shape, np.inf, np.float32), 0.0
    for other in others:
        flow = dis.calc(grey, cv2.cvtColor(other, cv2.COLOR_RGB2GRAY), _NOTHING)
        explained = camera(flow)
        motion = max(
            motion, float(np.quantile(np.linalg.norm(flow - explained, axis=2)[inside], _SUBJECT_QUANTILE))
        )
        at = columns + explained[..., 0], rows + explained[..., 1]
        moved = cv2.remap(other, *at, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        difference = np.minimum(
            difference, cv2.blur(np.abs(moved.astype(np.float32) - small).mean(2), (5, 5))
        )
    if motion < _GRAIN:
        return nothing
    same = (difference < max(_SAME, _SAME_MEDIANS * float(np.median(difference)))).astype(np.uint8)
    same = cv2.morphologyEx(same, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    _, labels = cv2.connectedComponents(same, connectivity=4)
    rim = np.unique(np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]]))
    result = np.isin(labels, rim[rim > 0]) & inside & _has_common_color(small, ~inside)
    return result if result.sum() < _MAX_UNCOVERED * inside.sum() else nothing


def _has_common_color(small: Array, where: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the pixels whose color, in bins of a sixteenth, is common within `where`."""
    bins = (small >> 4).astype(np.int32) @ np.array([256, 16, 1], np.int32)
    counts = np.bincount(bins[where], minlength=4096).reshape(16, 16, 16).astype(np.float32)
    for axis in range(3):
        counts = counts + 0.5 * (np.roll(counts, 1, axis) + np.roll(counts, -1, axis))
    return counts.ravel()[bins] > _COMMON * max(1.0, float(where.sum()))


def camera(flow: Array) -> Array:
    """Return the flow of the affine camera motion that explains most of a flow."""
    height, width = flow.shape[:2]
    rows, columns = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    terms = np.stack([np.ones_like(rows), rows, columns], 2)
    samples, targets = (
        terms[::_SAMPLE_STEP, ::_SAMPLE_STEP].reshape(-1, 3),
        flow[::_SAMPLE_STEP, ::_SAMPLE_STEP].reshape(-1, 2),
    )
    # The subject is usually in the middle, so the borders weigh more.
    weights = 0.2 + np.clip(np.hypot(samples[:, 1], samples[:, 2]), 0, 1)
    start, coefficients = weights, np.zeros((3, 2))
    for _ in range(_ITERATIONS):
        root = np.sqrt(weights)[:, None]
        coefficients = np.linalg.lstsq(samples * root, targets * root, rcond=None)[0]
        distance = np.linalg.norm(targets - samples @ coefficients, axis=1)
        scale = max(0.3, float(np.median(distance)))
        weights = start / (1 + (distance / (1.5 * scale)) ** 2) ** 2
    return (terms @ coefficients).astype(np.float32)
