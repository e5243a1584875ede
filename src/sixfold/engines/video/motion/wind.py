"""Plants that sway in the wind: a displacement of the leaves and grass in an image."""

from __future__ import annotations

import math
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image.scene.prompt_parser import ParsedScene
from sixfold.engines.video.layers import SourceStill
from sixfold.engines.video.motion import motion_words
from sixfold.engines.video.parallax import Ripple

Array = NDArray[Any]

_PLANTED = frozenset({"forest", "meadow", "garden", "village", "river", "lake", "mountains", "beach"})
# Hues (0 to 180) of green plants, and of dry ones: yellow or brown, and in autumn also red.
_GREEN = (26, 92)
_DRY, _RED = ((10, 25),), ((0, 9), (170, 180))
_MIN_SATURATION, _MIN_VALUE = 50, 30
# The smallest share of an image that sways.
_MIN_SHARE = 0.02
# The largest displacement in fractions of the height.
_REACH = 0.018


class Sway(msgspec.Struct, frozen=True):
    """The plants of an image (0 to 1, on the coarse grid), and the phases of the waves that move them."""

    plants: Array
    phases: tuple[float, float, float]

    @classmethod
    def of(
        cls,
        scene: ParsedScene,
        text: str,
        still: SourceStill,
        size: tuple[int, int],
        rng: np.random.Generator,
    ) -> Sway | None:
        """Return the sway of an image's plants, or None if there are none; `size` is that of the grid."""
        if not (_PLANTED & set(scene.places) or motion_words.PLANTS.search(text)):
            return None
        hsv = cv2.cvtColor(cv2.resize(still.rgb, size, interpolation=cv2.INTER_AREA), cv2.COLOR_RGB2HSV)
        near = cv2.resize(still.near, size, interpolation=cv2.INTER_AREA)
        # What is twice as far moves half as much.
        plants = _of_hues(hsv, _GREEN) * np.clip(1.8 * near, 0, 1)
        is_autumn = scene.season == "autumn"
        if is_autumn or motion_words.DRY.search(text):
            # Mountains, which do not move, have the same colors.
            close = np.clip(5 * (near - 0.35), 0, 1)
            for hues in (*_DRY, *(_RED if is_autumn else ())):
                plants += _of_hues(hsv, hues) * close
        for other in (still.sky, still.water):
            if other is not None:
                plants *= 1 - np.clip(cv2.resize(other.astype(np.float32), size), 0, 1)
        if plants.mean() < _MIN_SHARE:
            return None
        # Soft borders, since the image would tear beside what stands still.
        plants = cv2.GaussianBlur(plants, (0, 0), max(1.0, size[0] / 120))
        first, second, third = (float(rng.uniform(0, math.tau)) for _ in range(3))
        return cls(plants, (first, second, third))

    def at(self, second: float, strength: float) -> Ripple:
        """Return the displacement at a time; negative `strength` is wind from the right."""
        height, width = self.plants.shape
        columns = np.linspace(0, width / height, width, dtype=np.float32)[None, :]
        rows = np.linspace(0, 1, height, dtype=np.float32)[:, None]
        direction = math.copysign(1.0, strength)
        gust = 0.65 + 0.35 * math.sin(1.1 * second + self.phases[0])
        slow = np.sin(columns * (4.5 * direction) + rows * 1.5 - np.float32(2.6 * second + self.phases[1]))
        quick = np.sin(columns * (23 * direction) + rows * 9 - np.float32(6.4 * second + self.phases[2]))
        shift = (0.4 * direction + 0.6 * slow + 0.35 * quick) * self.plants
        shift *= np.float32(abs(strength) * gust * _REACH)
        return Ripple(shift, np.abs(shift) * np.float32(0.25))


def _of_hues(hsv: Array, hues: tuple[int, int]) -> Array:
    """Return 1 for the pixels with a hue in a range, and 0 for others."""
    low, high = (hues[0], _MIN_SATURATION, _MIN_VALUE), (hues[1], 255, 255)
    return cv2.inRange(hsv, np.array(low), np.array(high)).astype(np.float32) / 255
