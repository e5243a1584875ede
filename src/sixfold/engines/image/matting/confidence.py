"""Estimation of a mask's quality without the true mask."""

from __future__ import annotations

from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image.matting.background import BackgroundModel

Array = NDArray[Any]


class MattingResult(msgspec.Struct, frozen=True):
    """A small image's mask (HxW, bool) with the evidence for it, used to estimate its quality."""

    rgb: Array
    mask: NDArray[np.bool_]
    belief: Array
    ground: BackgroundModel


def features(result: MattingResult) -> Array:
    """Return the features that predict a mask's quality, each about 0 to 1."""
    mask, belief = result.mask, result.belief
    area = float(mask.mean())
    if area == 0 or area == 1:
        return np.zeros(len(_WEIGHTS))
    agree = float(np.minimum(belief, mask).sum() / np.maximum(belief, mask).sum())
    rim = np.concatenate([mask[0], mask[-1], mask[:, 0], mask[:, -1]]).mean()
    difference = float(belief[mask].mean() - belief[~mask].mean())
    plain = float(result.ground.plain)
    return np.array([1.0, agree, float(rim), difference, plain, _contrast(result), _color_overlap(result)])


def _contrast(result: MattingResult) -> float:
    """Return the difference of the colors on both sides of the edge, relative to 0.25."""
    solid = result.mask.astype(np.uint8)
    ball = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (9, 9))
    inner = (solid > 0) & (cv2.erode(solid, ball) == 0)
    outer = (solid == 0) & (cv2.dilate(solid, ball) > 0)
    if not inner.any() or not outer.any():
        return 0.0
    smooth = cv2.GaussianBlur(result.rgb, (0, 0), 1.0)
    near = cv2.GaussianBlur(smooth * solid[..., None], (0, 0), 5.0)
    weight = cv2.GaussianBlur(solid.astype(np.float32), (0, 0), 5.0)[..., None]
    far = (cv2.GaussianBlur(smooth, (0, 0), 5.0) - near) / np.maximum(1 - weight, 1e-3)
    difference = np.linalg.norm(near / np.maximum(weight, 1e-3) - far, axis=2)[inner | outer]
    return float(np.clip(np.quantile(difference, 0.25) / 0.25, 0, 1))


def _color_overlap(result: MattingResult) -> float:
    """Return the overlap of the color histograms inside and outside; it is high if a sky is cut in two."""
    lightness, red, yellow = cv2.split(cv2.cvtColor(result.rgb, cv2.COLOR_RGB2LAB))
    tones = np.clip(lightness / 12.5, 0, 7).astype(int)
    hues = [np.clip((each + 60) / 10, 0, 11).astype(int) for each in (red, yellow)]
    colors = (tones * 12 + hues[0]) * 12 + hues[1]
    inside, outside = (
        np.bincount(colors[side], minlength=8 * 12 * 12) / side.sum() for side in (result.mask, ~result.mask)
    )
    return float(np.minimum(inside, outside).sum())


# Fitted by least squares to the overlaps of 160 composites (seeds 5000 to 5039) and of 20 painted landscapes,
# where every cut is wrong. bench/matting.py measures on other seeds.
_WEIGHTS = np.array([-4.19, 3.15, -2.06, 3.88, 0.72, 1.15, -10.03])


def estimate(result: MattingResult) -> float:
    """Return the expected overlap with the true subject, 0 to 1."""
    values = features(result)
    if not values.any():
        return 0.0
    return float(1 / (1 + np.exp(-values @ _WEIGHTS)))
