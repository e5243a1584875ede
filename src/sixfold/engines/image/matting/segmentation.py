"""A subject's mask without weights: the border's colors, saliency and faces start it, GrabCut draws it.

`alpha` is the library's door: images come here from `remove-background`, and a film's frames with the
mask of the frame before as a hint.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image import face_detection, saliency
from sixfold.engines.image.matting import background, confidence, edges, person_prior
from sixfold.engines.image.matting.background import BackgroundModel
from sixfold.engines.image.matting.confidence import MattingResult

Array = NDArray[Any]
Pixels = NDArray[np.uint8]

WORK_SIDE = 384
_ROUNDS = 4
_SPECK = 0.04  # of the largest part: smaller ones are dropped, and smaller holes are looked at
_SURE = 0.75
_PLAIN_DOUBT = 0.3
_TOLD = 0.6  # of the belief where a subject may be, beside that it may be there


def alpha(rgb: Pixels, hint: Array | None = None) -> tuple[Array, float]:
    """The subject's soft mask (HxW, 0 to 1) of HxWx3 uint8, and how sure it is (0 to 1).

    `hint` is a mask of about the same subject, HxW from 0 to 1: the frame before, moved along.
    """
    found = cut(rgb, hint)
    return edges.soft(rgb, found.mask), confidence.of(found)


def cut(rgb: Pixels, hint: Array | None = None, only: Array | None = None) -> MattingResult:
    """The subject at working size; `only` is where it may be, HxW of that size from 0 to 1."""
    small = saliency.downscale(rgb, WORK_SIDE)
    floats = small.astype(np.float32) / 255
    around = background.look(floats)
    belief = _belief(small, around)
    if only is not None:
        belief = _within(belief, only, around)
    elif hint is None:
        belief = person_prior.within(belief, face_detection.find(small))
    own = belief
    if hint is not None:
        size = (small.shape[1], small.shape[0])
        before = cv2.resize(hint.astype(np.float32), size, interpolation=cv2.INTER_AREA)
        belief = 0.25 * belief + 0.75 * before
    drawn = _drawn(small, belief, around)
    return MattingResult(floats, tidied(drawn, belief), own, around)  # a hint says nothing of how good it was


def _belief(small: Pixels, around: BackgroundModel) -> Array:
    """How likely each pixel belongs to the subject, 0 to 1."""
    stands_out = saliency.saliency(small)
    if not around.plain:
        return stands_out
    from_ground = np.clip((around.distance - 3.0) / 6.0, 0, 1).astype(np.float32)
    from_ground[around.shadow] = 0
    return np.clip(0.85 * from_ground + 0.15 * stands_out, 0, 1)


def _within(belief: Array, only: Array, around: BackgroundModel) -> Array:
    """What is believed where a subject may be; before a plain ground the belief knows better."""
    if around.plain:
        return belief * (1 - _PLAIN_DOUBT * (1 - only))
    inside = belief[only > 0.5]
    full = float(np.quantile(inside, 0.8)) if inside.size else 1.0
    told = np.clip(belief / max(0.05, full), 0, 1)
    return only * (_TOLD * told + (1 - _TOLD) * np.where(only > 0.5, only, 0))


def _drawn(small: Pixels, belief: Array, around: BackgroundModel) -> NDArray[np.bool_]:
    level = 0.4 if around.plain else _level(belief)
    labels = np.where(belief > level, cv2.GC_PR_FGD, cv2.GC_PR_BGD).astype(np.uint8)
    labels[belief > max(_SURE, (1 + level) / 2)] = cv2.GC_FGD if around.plain else cv2.GC_PR_FGD
    core = cv2.erode((belief > level).astype(np.uint8), np.ones((5, 5), np.uint8))
    labels[(belief > _SURE) & (core > 0)] = cv2.GC_FGD
    labels[belief < (0.12 if around.plain else level * 0.25)] = cv2.GC_BGD
    outer = background.rim(*belief.shape) & (belief < level)
    labels[outer | around.shadow] = cv2.GC_BGD
    inside, outside = labels % 2 == 1, labels % 2 == 0
    if inside.sum() < 16 or outside.sum() < 16:
        return belief > level
    models = np.zeros((2, 1, 65))
    cv2.setRNGSeed(1)  # k-means inside: the same image gives the same mask
    bgr = np.ascontiguousarray(small[..., ::-1])
    cv2.grabCut(bgr, labels, (0, 0, 1, 1), models[0], models[1], _ROUNDS, cv2.GC_INIT_WITH_MASK)
    return (labels == cv2.GC_FGD) | (labels == cv2.GC_PR_FGD)


def _level(belief: Array) -> float:
    level, _ = cv2.threshold((belief * 255).astype(np.uint8), 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
    return float(np.clip(level / 255, 0.2, 0.7))


def tidied(mask: NDArray[np.bool_], belief: Array) -> NDArray[np.bool_]:
    """Without specks that nobody believes in, and without pinholes."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
    if count < 2:
        return mask
    areas = stats[:, cv2.CC_STAT_AREA].astype(float)
    areas[0] = 0
    means = np.bincount(labels.ravel(), belief.ravel(), count) / np.maximum(1, stats[:, cv2.CC_STAT_AREA])
    keep = (areas > _SPECK * areas.max()) & ((means > 0.3) | (areas > 0.5 * areas.max()))
    keep |= (areas > 0.004 * areas.max()) & (means > 0.8)
    keep[0] = False
    kept = keep[labels]
    count, labels, stats, _ = cv2.connectedComponentsWithStats((~kept).astype(np.uint8), connectivity=4)
    holes = stats[:, cv2.CC_STAT_AREA].astype(float)
    means = np.bincount(labels.ravel(), belief.ravel(), count) / np.maximum(1.0, holes)
    fill = (holes < 0.002 * mask.size) & (means > 0.25) & (holes < holes.max())
    fill |= holes < 6
    fill[np.unique(labels[kept])] = False
    return kept | fill[labels]
