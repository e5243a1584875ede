"""A subject's mask from frame to frame: carried along by the flow, drawn to each frame's own colours.

What moves otherwise than the camera belongs to the subject: frames that come are looked at a little ahead,
and that look, the picture's own signs and the mask that was carried start the first drawing of a shot, and a
new one now and then. Between them only a band round the carried edge is drawn, which is cheap. All of it at a
small size; the edge is drawn at the frame's own, and where nothing moves it rests.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image import saliency
from sixfold.engines.image.matting import confidence as matting_confidence
from sixfold.engines.image.matting import edges, segmentation
from sixfold.engines.video.matting import motion

Array = NDArray[Any]

_EVERY = 12  # frames after which the whole is drawn anew
_BAND = 5  # pixels to each side of a carried edge that are drawn
_FINE_SIDE = 640  # pixels of the longer side at which an edge's softness is found
_KEPT = 0.85  # of what was given before, where nothing moved
_SURE = 0.05  # of full brightness by which a pixel may have changed on its way
_CUT = 0.14  # mean change from which it is another shot
_GLANCE_SIDE = 96  # pixels of the longer side by which a cut is seen
_REST = (0.25, 0.5)  # pixels of flow up to which all is at rest, and from which it moves: grain seems to
_LEFT = 0.9  # of a doubt in ground that was left
_UNSURE = 0.85  # expected overlap up to which a drawing led by what moves is doubted
_AHEAD = 6  # frames that are looked at before they are asked for
_NOTHING: Any = None


class ShotMasks:
    """Tells where a film is cut, from frames in order."""

    def __init__(self) -> None:
        self._before: Array | None = None

    def begins(self, rgb: Array) -> bool:
        """Whether the next frame is the first of a shot."""
        small = saliency.downscale(rgb, _GLANCE_SIDE).astype(np.float32)
        before, self._before = self._before, small
        if before is None or before.shape != small.shape:
            return True
        return float(np.abs(small - before).mean()) / 255 > _CUT


@dataclass(slots=True)
class _CarriedMask:
    """The mask before, where it has moved to; how sure that is, what did move, and what of it is ground."""

    mask: Array
    trust: Array
    gone: Array
    left: NDArray[np.bool_]


class MaskTracker:
    """Gives the alpha of frames that come in order: HxWx3 bytes in, HxW from 0 to 1 out."""

    ahead = _AHEAD

    def __init__(self) -> None:
        self._dis = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_FAST)
        self._coming: deque[Array] = deque()
        self._before: Array | None = None
        self._mask: Array | None = None
        self._given: Array | None = None
        self._since = 0
        self._sure: list[float] = []

    @property
    def confidence(self) -> float:
        """The overlap with the true subject that is to be expected, 0 to 1."""
        return float(np.mean(self._sure)) if self._sure else 0.0

    def see(self, rgb: Array) -> None:
        """Look at a frame that will be asked for later; `ahead` of them help, and none has to."""
        self._coming.append(saliency.downscale(rgb, segmentation.WORK_SIDE))

    def alpha(self, rgb: Array) -> Array:
        """The mask of the next frame."""
        small = self._coming.popleft() if self._coming else saliency.downscale(rgb, segmentation.WORK_SIDE)
        carried = self._carried(small)
        self._since += 1
        if carried is None or self._since >= _EVERY:
            mask = self._drawn(small, carried)
        else:
            mask = _banded(small, carried.mask, carried.left)
        self._mask = cv2.GaussianBlur(mask.astype(np.float32), (0, 0), 0.7)
        self._before = small
        self._given = self._at_rest(edges.soft(rgb, mask, _FINE_SIDE), carried)
        return self._given

    def _drawn(self, small: Array, carried: _CarriedMask | None) -> NDArray[np.bool_]:
        """The whole drawn anew, from all that is known of it.

        What moves by itself may be rain: an unsure drawing that it led gives way to a surer one without it.
        """
        self._since = 0
        hint = None if carried is None else carried.mask * ~carried.left
        only = motion.other(small, self._coming).only
        if only is not None:
            left = self._left(small, only) if carried is None else carried.left
            only = only * (1 - _LEFT * left)
        found = segmentation.cut(small, hint, only)
        if only is not None and matting_confidence.of(found) < _UNSURE:
            found = max(found, segmentation.cut(small, hint), key=matting_confidence.of)
        self._sure.append(matting_confidence.of(found))
        return found.mask

    def _at_rest(self, alpha: Array, carried: _CarriedMask | None) -> Array:
        """The alpha, mostly as it was where nothing moved: a film's grain is no edge."""
        if carried is None or self._given is None:
            return alpha
        size = (alpha.shape[1], alpha.shape[0])
        kept = (_KEPT * carried.trust * (1 - carried.gone)).astype(np.float32)
        return alpha + (self._given - alpha) * cv2.resize(kept, size, interpolation=cv2.INTER_LINEAR)

    def _carried(self, small: Array) -> _CarriedMask | None:
        """The mask before where it has moved to; None where there is none, or after a cut."""
        if self._before is None or self._mask is None or self._before.shape != small.shape:
            return None
        now, then = (cv2.cvtColor(one, cv2.COLOR_RGB2GRAY) for one in (small, self._before))
        flow = cv2.blur(self._dis.calc(now, then, _NOTHING), (5, 5))
        gone = np.clip((np.linalg.norm(flow, axis=2) - _REST[0]) / (_REST[1] - _REST[0]), 0, 1)
        flow *= gone[..., None]
        rows, columns = np.mgrid[: now.shape[0], : now.shape[1]].astype(np.float32)
        at = np.dstack([columns + flow[..., 0], rows + flow[..., 1]])
        seen = _looked(self._before, at)
        changed = np.abs(seen.astype(np.float32) - small).mean(2) / 255
        if float(changed.mean()) > _CUT:
            return None
        mask = _looked(self._mask, at)
        return _CarriedMask(
            mask, np.exp(-((changed / _SURE) ** 2)), gone, self._left(small, mask, self._before)
        )

    def _left(self, small: Array, mask: Array, *before: Array) -> NDArray[np.bool_]:
        """What a mask holds of the ground, by the frame before and two that come."""
        return motion.left(small, mask, [*before, *list(self._coming)[:3:2]], self._dis)


def _banded(small: Array, mask: Array, left: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """A carried mask whose edge is drawn to the frame's colours, in a band round where it is.

    What was `left` behind is inside of what was carried: there colours decide as well.
    """
    solid = (mask > 0.5).astype(np.uint8)
    ball = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * _BAND + 1, 2 * _BAND + 1))
    labels = np.where(solid > 0, cv2.GC_PR_FGD, cv2.GC_PR_BGD).astype(np.uint8)
    labels[cv2.erode(solid, ball) > 0] = cv2.GC_FGD
    labels[cv2.dilate(solid, ball) == 0] = cv2.GC_BGD
    labels[left] = cv2.GC_PR_BGD
    inside, outside = labels % 2 == 1, labels % 2 == 0
    if inside.sum() < 16 or outside.sum() < 16:
        return solid > 0
    models = np.zeros((2, 1, 65))
    cv2.setRNGSeed(1)  # k-means inside: the same frames give the same masks
    bgr = np.ascontiguousarray(small[..., ::-1])
    cv2.grabCut(bgr, labels, (0, 0, 1, 1), models[0], models[1], 1, cv2.GC_INIT_WITH_MASK)
    return segmentation.clean_mask((labels == cv2.GC_FGD) | (labels == cv2.GC_PR_FGD), mask)


def _looked(picture: Array, at: Array) -> Array:
    return cv2.remap(
        picture,
        at,
        np.empty((0, 0), np.float32),
        cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REPLICATE,
    )
