"""A subject's mask from frame to frame: carried along by the flow, drawn anew now and then, never jumping.

Where what is seen moved as the flow says, the mask before it counts; where something came into view or the
film was cut, the frame alone does. All of it at a small size; the edge is drawn at the frame's own.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image import saliency
from sixfold.engines.image.matting import certainty, cut, edges

Array = NDArray[Any]

_EVERY = 6  # frames after which the mask is drawn anew
_SHARE = 0.25  # of a new drawing where the flow is sure of the old mask
_KEPT = 0.85  # of what was given before, where nothing moved
_SURE = 0.05  # of full brightness by which a pixel may have changed on its way
_CUT = 0.14  # mean change from which it is another shot
_GLANCE_SIDE = 96  # pixels of the longer side by which a cut is seen
_STEEP = 1.35  # by which a carried edge is drawn together again, as each carrying softens it
_REST = (0.25, 0.5)  # pixels of flow up to which all is at rest, and from which it moves: grain seems to
_NOTHING: Any = None


class Shot:
    """Tells where a film is cut, from frames in order."""

    def __init__(self) -> None:
        self._before: Array | None = None

    def begins(self, rgb: Array) -> bool:
        """Whether the next frame is the first of a shot."""
        small = saliency.reduced(rgb, _GLANCE_SIDE).astype(np.float32)
        before, self._before = self._before, small
        if before is None or before.shape != small.shape:
            return True
        return float(np.abs(small - before).mean()) / 255 > _CUT


class Masks:
    """Gives the alpha of frames that come in order: HxWx3 bytes in, HxW from 0 to 1 out."""

    def __init__(self) -> None:
        self._dis = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_FAST)
        self._before: Array | None = None
        self._mask: Array | None = None
        self._given: Array | None = None
        self._since = 0
        self._sure: list[float] = []

    @property
    def confidence(self) -> float:
        """How sure the drawings were, 0 to 1."""
        return float(np.mean(self._sure)) if self._sure else 0.0

    def alpha(self, rgb: Array) -> Array:
        """The mask of the next frame."""
        small = saliency.reduced(rgb, cut.WORK_SIDE)
        carried = self._carried(small)
        self._since += 1
        if carried is None:
            mask = self._sharpened(small, self._drawn(rgb, None))
        elif self._since >= _EVERY:
            moved, trust, _ = carried
            share = 1 - trust * (1 - _SHARE)
            mask = share * self._sharpened(small, self._drawn(rgb, moved)) + (1 - share) * moved
        else:
            moved, _, gone = carried
            steep = np.clip((moved - 0.5) * _STEEP + 0.5, 0, 1)
            mask = moved + (self._sharpened(small, steep) - moved) * gone
        self._mask = mask.astype(np.float32)
        self._before = small
        self._given = self._at_rest(edges.enlarged(rgb, _settled(self._mask)), carried)
        return self._given

    def _at_rest(self, alpha: Array, carried: tuple[Array, Array, Array] | None) -> Array:
        """The alpha, mostly as it was where nothing moved: a film's grain is no edge."""
        if carried is None or self._given is None:
            return alpha
        _, trust, gone = carried
        size = (alpha.shape[1], alpha.shape[0])
        kept = cv2.resize(
            (_KEPT * trust * (1 - gone)).astype(np.float32), size, interpolation=cv2.INTER_LINEAR
        )
        return alpha + (self._given - alpha) * kept

    @staticmethod
    def _sharpened(small: Array, mask: Array) -> Array:
        """A mask whose edge lies where the picture has one."""
        guide = small.astype(np.float32) / 255
        return np.clip(cv2.ximgproc.guidedFilter(guide, mask.astype(np.float32), 3, 4e-4), 0, 1)

    def _drawn(self, rgb: Array, hint: Array | None) -> Array:
        self._since = 0
        found = cut.cut(rgb, hint)
        self._sure.append(certainty.of(found))
        return cv2.GaussianBlur(found.mask.astype(np.float32), (0, 0), 0.7)

    def _carried(self, small: Array) -> tuple[Array, Array, Array] | None:
        """The mask before where it has moved to, how sure that is, and what did move; None after a cut."""
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
        return _looked(self._mask, at), np.exp(-((changed / _SURE) ** 2)), gone


def _looked(picture: Array, at: Array) -> Array:
    return cv2.remap(
        picture,
        at,
        np.empty((0, 0), np.float32),
        cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REPLICATE,
    )


def _settled(mask: Array) -> Array:
    """The mask without the haze that says neither."""
    return np.clip((mask - 0.3) / 0.4, 0, 1)
