"""A subject's mask without weights, by GrabCut from border colors, saliency and faces.

`alpha` is the entry point, for `remove-background` and for video frames, which pass the previous frame's mask
as a hint.
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
# Size relative to the largest part below which parts are dropped unless they are probable.
_SPECK = 0.04
_SURE = 0.75
_PLAIN_DOUBT = 0.3
# Weight of the belief where a subject may be; the rest is the weight of that constraint itself.
_BELIEF_WEIGHT = 0.6
# Trust in the colors from which the edge refinement includes hair outside the mask.
_HAIR_TRUST = 0.5


def alpha(rgb: Pixels, hint: Array | None = None) -> tuple[Array, float]:
    """Return the subject's soft mask (HxW, 0 to 1) of an HxWx3 uint8 image, and its confidence (0 to 1).

    `hint` is a mask of nearly the same subject, HxW from 0 to 1: that of the previous frame, moved along the
    optical flow.
    """
    result = cut(rgb, hint)
    # In front of a plain background, colors show which hairs the mask has missed.
    hair_trust = 0.0 if result.ground.plain else _HAIR_TRUST
    return edges.refined_alpha(rgb, result.mask, hair_trust), confidence.estimate(result)


def cut(rgb: Pixels, hint: Array | None = None, only: Array | None = None) -> MattingResult:
    """Segment the subject at working size; `only` (HxW of that size, 0 to 1) limits its position."""
    small = saliency.downscale(rgb, WORK_SIDE)
    floats = small.astype(np.float32) / 255
    ground = background.fit_background(floats)
    belief = belief_of(small, ground)
    if only is not None:
        belief = _within(belief, only, ground)
    elif hint is None:
        belief = person_prior.apply_prior(belief, face_detection.find(small))
    own = belief
    if hint is not None:
        size = (small.shape[1], small.shape[0])
        before = cv2.resize(hint.astype(np.float32), size, interpolation=cv2.INTER_AREA)
        belief = 0.25 * belief + 0.75 * before
    refined = _grab_cut(small, belief, ground)
    # The hint is not evidence of the mask's quality, so the belief without it is returned.
    return MattingResult(floats, clean_mask(refined, belief), own, ground)


def belief_of(small: Pixels, ground: BackgroundModel) -> Array:
    """Return the probability (0 to 1) that each pixel belongs to the subject."""
    salient = saliency.saliency(small)
    if not ground.plain:
        return salient
    from_ground = np.clip((ground.distance - 3.0) / 6.0, 0, 1).astype(np.float32)
    from_ground[ground.shadow] = 0
    return np.clip(0.85 * from_ground + 0.15 * salient, 0, 1)


def _within(belief: Array, only: Array, ground: BackgroundModel) -> Array:
    """Limit the belief to where a subject may be; on a plain background the belief counts more."""
    if ground.plain:
        return belief * (1 - _PLAIN_DOUBT * (1 - only))
    inside = belief[only > 0.5]
    full = float(np.quantile(inside, 0.8)) if inside.size else 1.0
    scaled = np.clip(belief / max(0.05, full), 0, 1)
    return only * (_BELIEF_WEIGHT * scaled + (1 - _BELIEF_WEIGHT) * np.where(only > 0.5, only, 0))


def _grab_cut(small: Pixels, belief: Array, ground: BackgroundModel) -> NDArray[np.bool_]:
    level = 0.4 if ground.plain else _level(belief)
    labels = np.where(belief > level, cv2.GC_PR_FGD, cv2.GC_PR_BGD).astype(np.uint8)
    labels[belief > max(_SURE, (1 + level) / 2)] = cv2.GC_FGD if ground.plain else cv2.GC_PR_FGD
    core = cv2.erode((belief > level).astype(np.uint8), np.ones((5, 5), np.uint8))
    labels[(belief > _SURE) & (core > 0)] = cv2.GC_FGD
    labels[belief < (0.12 if ground.plain else level * 0.25)] = cv2.GC_BGD
    outer = background.border(*belief.shape) & (belief < level)
    labels[outer | ground.shadow] = cv2.GC_BGD
    inside, outside = labels % 2 == 1, labels % 2 == 0
    if inside.sum() < 16 or outside.sum() < 16:
        return belief > level
    models = np.zeros((2, 1, 65))
    # GrabCut runs k-means: the same image must give the same mask.
    cv2.setRNGSeed(1)
    bgr = np.ascontiguousarray(small[..., ::-1])
    cv2.grabCut(bgr, labels, (0, 0, 1, 1), models[0], models[1], _ROUNDS, cv2.GC_INIT_WITH_MASK)
    return (labels == cv2.GC_FGD) | (labels == cv2.GC_PR_FGD)


def _level(belief: Array) -> float:
    level, _ = cv2.threshold((belief * 255).astype(np.uint8), 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
    return float(np.clip(level / 255, 0.2, 0.7))


def clean_mask(mask: NDArray[np.bool_], belief: Array) -> NDArray[np.bool_]:
    """Remove improbable specks from a mask, and fill pinholes."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
    if count < 2:
        return mask
    sizes = stats[:, cv2.CC_STAT_AREA].astype(float)
    sizes[0] = 0
    means = np.bincount(labels.ravel(), belief.ravel(), count) / np.maximum(1, stats[:, cv2.CC_STAT_AREA])
    keep = (sizes > _SPECK * sizes.max()) & ((means > 0.3) | (sizes > 0.5 * sizes.max()))
    keep |= (sizes > 0.004 * sizes.max()) & (means > 0.8)
    keep[0] = False
    solid = keep[labels]
    count, labels, stats, _ = cv2.connectedComponentsWithStats((~solid).astype(np.uint8), connectivity=4)
    holes = stats[:, cv2.CC_STAT_AREA].astype(float)
    means = np.bincount(labels.ravel(), belief.ravel(), count) / np.maximum(1.0, holes)
    fill = (holes < 0.002 * mask.size) & (means > 0.25) & (holes < holes.max())
    fill |= holes < 6
    fill[np.unique(labels[solid])] = False
    return solid | fill[labels]
