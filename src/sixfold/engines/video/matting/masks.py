"""Tracking of a subject's mask from frame to frame by optical flow and segmentation.

Motion that differs from the camera's belongs to the subject, so a few frames are read ahead. A full
segmentation from motion, image cues and the tracked mask starts each shot and is repeated at a fixed
interval. In between, only a band around the tracked edge is segmented, which is cheap. All this happens at a
reduced size; the edge is refined at full size and remains unchanged where the image is at rest.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image import saliency
from sixfold.engines.image.matting import confidence as matting_confidence
from sixfold.engines.image.matting import edges, segmentation
from sixfold.engines.video.matting import motion

Array = NDArray[Any]

# Frames between full segmentations.
_FULL_EVERY = 12
# Pixels on each side of a tracked edge that are segmented again.
_BAND = 5
# The longer side, in pixels, at which soft edges are computed.
_SOFT_SIDE = 640
# The weight of the previous alpha where the image is at rest.
_HOLD = 0.85
# The change of brightness, relative to full brightness, at which the trust in a pixel has dropped to 1/e.
_CHANGE = 0.05
# The mean change from which a frame belongs to another shot.
_CUT = 0.14
# The longer side, in pixels, at which cuts are detected.
_CUT_SIDE = 96
# The flow in pixels below which a pixel is at rest, because grain causes flow, and above which it moves.
_REST = (0.25, 0.5)
# The strength of the exclusion of uncovered background.
_UNCOVERED = 0.9
# Segmentations that use motion are checked if their expected overlap is below this value.
_UNSURE = 0.85
# Number of frames that are read ahead.
_AHEAD = 6
_NOTHING: Any = None


class ShotMasks:
    """A detector of cuts in a sequence of frames."""

    def __init__(self) -> None:
        self._before: Array | None = None

    def begins(self, rgb: Array) -> bool:
        """Return whether the next frame is the first frame of a shot."""
        small = saliency.downscale(rgb, _CUT_SIDE).astype(np.float32)
        before, self._before = self._before, small
        if before is None or before.shape != small.shape:
            return True
        return float(np.abs(small - before).mean()) / 255 > _CUT


class _TrackedMask(msgspec.Struct):
    """The previous mask moved along the flow, its trust, the moving regions and the uncovered background."""

    mask: Array
    trust: Array
    moving: Array
    uncovered: NDArray[np.bool_]


class MaskTracker:
    """Computes the alpha (HxW, 0 to 1) of frames (HxWx3 bytes) in order."""

    ahead = _AHEAD

    def __init__(self) -> None:
        self._dis = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_FAST)
        self._previews: deque[Array] = deque()
        self._before: Array | None = None
        self._mask: Array | None = None
        self._alpha: Array | None = None
        self._since = 0
        self._confidences: list[float] = []

    @property
    def confidence(self) -> float:
        """The expected overlap with the true subject, 0 to 1."""
        return float(np.mean(self._confidences)) if self._confidences else 0.0

    def preview(self, rgb: Array) -> None:
        """Store a later frame; up to `ahead` stored frames improve the masks."""
        self._previews.append(saliency.downscale(rgb, segmentation.WORK_SIDE))

    def alpha(self, rgb: Array) -> Array:
        if not self._previews:
            self.preview(rgb)
        small = self._previews.popleft()
        tracked = self._track(small)
        self._since += 1
        if tracked is None or self._since >= _FULL_EVERY:
            mask = self._segment(small, tracked)
        else:
            mask = _segment_band(small, tracked.mask, tracked.uncovered)
        self._mask = cv2.GaussianBlur(mask.astype(np.float32), (0, 0), 0.7)
        self._before = small
        self._alpha = self._stabilize(edges.soft_alpha(rgb, mask, _SOFT_SIDE), tracked)
        return self._alpha

    def _segment(self, small: Array, tracked: _TrackedMask | None) -> NDArray[np.bool_]:
        """Segment the full frame from all available cues.

        An uncertain result that used motion is compared with a result that ignores motion, because rain also
        moves.
        """
        self._since = 0
        hint = None if tracked is None else tracked.mask * ~tracked.uncovered
        only = motion.independent(small, self._previews).only
        if only is not None:
            uncovered = self._uncovered(small, only) if tracked is None else tracked.uncovered
            only = only * (1 - _UNCOVERED * uncovered)
        result = segmentation.cut(small, hint, only)
        if only is not None and matting_confidence.estimate(result) < _UNSURE:
            result = max(result, segmentation.cut(small, hint), key=matting_confidence.estimate)
        self._confidences.append(matting_confidence.estimate(result))
        return result.mask

    def _stabilize(self, alpha: Array, tracked: _TrackedMask | None) -> Array:
        """Blend the alpha with the previous alpha where the image is at rest, so that grain does not show."""
        if tracked is None or self._alpha is None:
            return alpha
        size = (alpha.shape[1], alpha.shape[0])
        weight = (_HOLD * tracked.trust * (1 - tracked.moving)).astype(np.float32)
        return alpha + (self._alpha - alpha) * cv2.resize(weight, size, interpolation=cv2.INTER_LINEAR)

    def _track(self, small: Array) -> _TrackedMask | None:
        """Return the previous mask moved along the flow, or None at the start of a shot."""
        if self._before is None or self._mask is None or self._before.shape != small.shape:
            return None
        gray, previous_gray = (cv2.cvtColor(one, cv2.COLOR_RGB2GRAY) for one in (small, self._before))
        flow = cv2.blur(self._dis.calc(gray, previous_gray, _NOTHING), (5, 5))
        moving = np.clip((np.linalg.norm(flow, axis=2) - _REST[0]) / (_REST[1] - _REST[0]), 0, 1)
        flow *= moving[..., None]
        rows, columns = np.mgrid[: gray.shape[0], : gray.shape[1]].astype(np.float32)
        at = np.dstack([columns + flow[..., 0], rows + flow[..., 1]])
        moved_frame = _remap(self._before, at)
        change = np.abs(moved_frame.astype(np.float32) - small).mean(2) / 255
        if float(change.mean()) > _CUT:
            return None
        mask = _remap(self._mask, at)
        return _TrackedMask(
            mask, np.exp(-((change / _CHANGE) ** 2)), moving, self._uncovered(small, mask, self._before)
        )

    def _uncovered(self, small: Array, mask: Array, *before: Array) -> NDArray[np.bool_]:
        """Return the background within a mask, detected with the previous frame and two later frames."""
        return motion.uncovered(small, mask, [*before, *list(self._previews)[:3:2]], self._dis)


def _segment_band(small: Array, mask: Array, uncovered: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Segment the frame again in a band around the tracked edge, and in the `uncovered` background."""
    binary_mask = (mask > 0.5).astype(np.uint8)
    ball = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * _BAND + 1, 2 * _BAND + 1))
    labels = np.where(binary_mask > 0, cv2.GC_PR_FGD, cv2.GC_PR_BGD).astype(np.uint8)
    labels[cv2.erode(binary_mask, ball) > 0] = cv2.GC_FGD
    labels[cv2.dilate(binary_mask, ball) == 0] = cv2.GC_BGD
    labels[uncovered] = cv2.GC_PR_BGD
    inside, outside = labels % 2 == 1, labels % 2 == 0
    if inside.sum() < 16 or outside.sum() < 16:
        return binary_mask > 0
    models = np.zeros((2, 1, 65))
    # GrabCut uses k-means; a fixed seed makes the masks reproducible.
    cv2.setRNGSeed(1)
    bgr = np.ascontiguousarray(small[..., ::-1])
    cv2.grabCut(bgr, labels, (0, 0, 1, 1), models[0], models[1], 1, cv2.GC_INIT_WITH_MASK)
    return segmentation.clean_mask((labels == cv2.GC_FGD) | (labels == cv2.GC_PR_FGD), mask)


def _remap(image: Array, at: Array) -> Array:
    return cv2.remap(
        image, at, np.empty((0, 0), np.float32), cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE
    )
