"""Lightning in a storm: flashes that light the image, each with a bolt in the sky."""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image.scene import noise, sky
from sixfold.engines.video import yuv
from sixfold.engines.video.camera_moves import CameraPose
from sixfold.engines.video.layers import SourceStill
from sixfold.engines.video.parallax import ParallaxStage
from sixfold.engines.video.yuv import YuvPlanes

Array = NDArray[Any]

_COLOR = yuv.color_of((226, 231, 255))
# The share of the sky in an image from which a bolt is drawn, and the shares of its light.
_MIN_SKY, _HALO, _SHINE = 0.04, 0.45, 0.9
_MIN_LIGHT = 0.01


class Lightning:
    """The flashes of a video; `begins` are their times in seconds."""

    def __init__(self, begins: tuple[float, ...], still: SourceStill, seed: int) -> None:
        self.begins = begins
        self._sky = None if still.sky is None or still.sky.mean() < _MIN_SKY else still.sky
        self._size = still.rgb.shape[1], still.rgb.shape[0]
        self._seed = seed
        # The latest bolt and the number of its flash.
        self._bolt: tuple[int, Array] | None = None

    @classmethod
    def of(cls, seconds: float, still: SourceStill, seed: int, rng: np.random.Generator) -> Lightning:
        """Return the flashes of a video, far enough apart for photosensitive viewers."""
        count = max(1, round(seconds / 4))
        begins = [(index + float(rng.uniform(0.15, 0.7))) * seconds / count for index in range(count)]
        return cls(tuple(begins), still, seed)

    def draw(self, planes: YuvPlanes, stage: ParallaxStage, pose: CameraPose, second: float) -> YuvPlanes:
        """Return the frame with the bolt of the current flash in the sky, seen from the camera's pose."""
        if self._sky is None:
            return planes
        for number, begin in enumerate(self.begins):
            light = min(1.0, 1.3 * _flash(second - begin))
            if light > _MIN_LIGHT:
                matrix = stage.still_matrix(pose, 0.0)
                flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
                mask = cv2.warpAffine(self._drawn(number, self._sky), matrix, planes.size, flags=flags)
                planes = yuv.toward(planes, _COLOR, cv2.convertScaleAbs(mask, alpha=light))
        return planes

    def brighten(self, planes: YuvPlanes, second: float) -> YuvPlanes:
        """Return the frame in the light of the flashes."""
        light = sum(_flash(second - begin) for begin in self.begins)
        if light <= _MIN_LIGHT:
            return planes
        return YuvPlanes(cv2.convertScaleAbs(planes.y, alpha=1 + 0.5 * light, beta=14 * light), planes.uv)

    def _drawn(self, number: int, visible: Array) -> Array:
        """Return a flash's bolt and its glow where the sky is visible, as bytes of the still's size."""
        if self._bolt is not None and self._bolt[0] == number:
            return self._bolt[1]
        width, height = self._size
        mask = cv2.resize(visible.astype(np.float32), self._size, interpolation=cv2.INTER_LINEAR)
        horizon = float(np.flatnonzero(mask.max(1) > 0.5)[-1]) if (mask > 0.5).any() else height / 2
        unit = min(self._size) / 100
        bolt = sky.draw_bolt(noise.stream(self._seed, f"bolt {number}"), (width, height), horizon, unit)
        light = bolt.astype(np.float32) / 255
        halo = np.clip(cv2.GaussianBlur(light, (0, 0), unit * 5) * 5, 0, _HALO)
        shine = np.clip(cv2.GaussianBlur(light, (0, 0), unit * 0.8) * 1.4, 0, _SHINE)
        drawn = cv2.convertScaleAbs(np.maximum(light, np.maximum(halo, shine)) * mask, alpha=255.0)
        self._bolt = (number, drawn)
        return drawn


def _flash(since: float) -> float:
    """Return a flash's brightness `since` seconds after its start: a short and then a longer peak."""
    if since < 0:
        return 0.0
    first = math.exp(-since / 0.05)
    return 0.7 * first + (math.exp(-(since - 0.16) / 0.18) if since >= 0.16 else 0.0)
