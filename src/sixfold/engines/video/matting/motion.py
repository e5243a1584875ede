"""What moves otherwise than the camera: a sign of the subject that needs neither colour nor place.

The flow from a frame to one that comes is explained, as far as it goes, by one affine movement, the camera's,
fitted so that what does not follow it counts less and less. What is left over moves by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_ROUNDS = 6
_EVERY = 4  # pixels between the samples that the camera's movement is fitted to
_STILL = 0.35  # pixels of rest that are grain
_LIMBS = 0.9  # of a subject's pixels: the rest that all of them but its quickest stay below
_CLEAR = 1.6  # pixels of rest from which it is a movement of its own
_FAR = 0.03  # of the width: movement that is enough to tell by
_PARTS = (0.01, 0.6)  # of the frame: less is noise that moves, more is no subject
_WEIGHT = 0.95  # of a doubt in what does not move, where others clearly do
_SMOOTH = 3e-4
_SAME, _ALIKE = 3.0, 2.2  # of 255, and in medians: so far apart is still the same
_COMMON = 4e-3  # of the ground: a colour that is met
_MOST = 0.8  # of a mask that may be ground: a subject at rest is explained by a camera at rest
_NOTHING: Any = None


@dataclass(frozen=True, slots=True)
class MotionModel:
    """`belief` HxW, 0 to 1, of what moves by itself; `weight`, 0 to 1, is how much that says."""

    belief: Array
    weight: float

    @property
    def only(self) -> Array | None:
        """Where a subject may be: what moves by itself, as far as that says something."""
        if not self.weight:
            return None
        return 1 - self.weight * (1 - self.belief)


def other(small: Array, coming: Sequence[Array]) -> MotionModel:
    """What moves by itself in a small frame, by frames of its size that come after it."""
    height, width = small.shape[:2]
    same = [one for one in coming if one.shape == small.shape]
    if not same:
        return MotionModel(np.zeros((height, width), np.float32), 0.0)
    grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
    dis = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    rest = np.zeros((height, width), np.float32)
    for one in (same[(len(same) - 1) // 4], same[(len(same) - 1) // 2], same[-1]):
        flow = dis.calc(grey, cv2.cvtColor(one, cv2.COLOR_RGB2GRAY), _NOTHING)
        rest = np.linalg.norm(flow - camera(flow), axis=2).astype(np.float32)
        if float(np.quantile(rest, 0.95)) > _FAR * width:
            break  # what lies farther apart is harder to follow, and tells no more
    noise = max(_STILL, 2.0 * float(np.median(rest)))
    top = max(noise + _CLEAR, float(np.quantile(rest, 0.97)) * 0.6)
    belief = np.clip((rest - noise) / (top - noise), 0, 1).astype(np.float32)
    guide = small.astype(np.float32) / 255
    belief = np.clip(cv2.ximgproc.guidedFilter(guide, belief, 8, _SMOOTH), 0, 1)
    return MotionModel(belief, _weight(belief, rest, noise))


def _weight(belief: Array, rest: Array, noise: float) -> float:
    part = float((belief > 0.5).mean())
    if not _PARTS[0] < part < _PARTS[1]:
        return 0.0
    clear = float(np.median(rest[belief > 0.5])) / noise
    rim = np.concatenate([belief[0], belief[-1], belief[:, 0], belief[:, -1]]).mean()
    return float(_WEIGHT * np.clip((clear - 1.5) / 2.5, 0, 1) * np.clip(1.5 - 4 * rim, 0, 1))


def left(small: Array, mask: Array, others: Sequence[Array], dis: Any) -> NDArray[np.bool_]:
    """What a mask holds of the ground that its subject has left behind.

    The camera's movement alone explains it in a frame before or after, it is joined to the frame's border so
    explained, and its colours are met outside of the mask. A plain coat is explained too, but has others. A
    subject that moves with the camera has left nothing, whatever its colours.
    """
    inside = mask > 0.5
    nothing = np.zeros_like(inside)
    if not inside.any():
        return nothing
    grey = cv2.cvtColor(small, cv2.COLOR_RGB2GRAY)
    rows, columns = np.mgrid[: grey.shape[0], : grey.shape[1]].astype(np.float32)
    apart, own = np.full(grey.shape, np.inf, np.float32), 0.0
    for one in others:
        flow = dis.calc(grey, cv2.cvtColor(one, cv2.COLOR_RGB2GRAY), _NOTHING)
        explained = camera(flow)
        own = max(own, float(np.quantile(np.linalg.norm(flow - explained, axis=2)[inside], _LIMBS)))
        at = columns + explained[..., 0], rows + explained[..., 1]
        seen = cv2.remap(one, *at, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        apart = np.minimum(apart, cv2.blur(np.abs(seen.astype(np.float32) - small).mean(2), (5, 5)))
    if own < _STILL:
        return nothing
    same = (apart < max(_SAME, _ALIKE * float(np.median(apart)))).astype(np.uint8)
    same = cv2.morphologyEx(same, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    _, labels = cv2.connectedComponents(same, connectivity=4)
    rim = np.unique(np.concatenate([labels[0], labels[-1], labels[:, 0], labels[:, -1]]))
    found = np.isin(labels, rim[rim > 0]) & inside & _met(small, ~inside)
    return found if found.sum() < _MOST * inside.sum() else nothing


def _met(small: Array, where: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which pixels have a colour, in bins a sixteenth wide, that is common `where`."""
    bins = (small >> 4).astype(np.int32) @ np.array([256, 16, 1], np.int32)
    counts = np.bincount(bins[where], minlength=4096).reshape(16, 16, 16).astype(np.float32)
    for axis in range(3):
        counts = counts + 0.5 * (np.roll(counts, 1, axis) + np.roll(counts, -1, axis))
    return counts.ravel()[bins] > _COMMON * max(1.0, float(where.sum()))


def camera(flow: Array) -> Array:
    """The affine movement that explains most of a flow, at every pixel."""
    height, width = flow.shape[:2]
    rows, columns = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    terms = np.stack([np.ones_like(rows), rows, columns], 2)
    samples, seen = terms[::_EVERY, ::_EVERY].reshape(-1, 3), flow[::_EVERY, ::_EVERY].reshape(-1, 2)
    weights = 0.2 + np.clip(np.hypot(samples[:, 1], samples[:, 2]), 0, 1)  # a subject stands in the middle
    start, fitted = weights, np.zeros((3, 2))
    for _ in range(_ROUNDS):
        root = np.sqrt(weights)[:, None]
        fitted = np.linalg.lstsq(samples * root, seen * root, rcond=None)[0]
        apart = np.linalg.norm(seen - samples @ fitted, axis=1)
        scale = max(0.3, float(np.median(apart)))
        weights = start / (1 + (apart / (1.5 * scale)) ** 2) ** 2
    return (terms @ fitted).astype(np.float32)
