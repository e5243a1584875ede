"""What steps and guidance mean to a painter who takes no steps: how far it finishes, how strongly it colors.

Four of each leave an image as it is. Each doubling of the steps draws out what is fine in it, each halving
leaves it softer; each doubling of the guidance says colors and contrast louder, each halving more quietly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sixfold.engines.image.scene.canvas import Image, blur
from sixfold.engines.image.scene.finishing import vivid

_MIDDLE = 4.0  # what changes nothing
_FINISH, _FINEST, _SOFTEST = 0.12, 0.6, -0.3  # of the fine detail: for a doubling, and at most
_COLOR, _CONTRAST = 0.10, 0.04  # for a doubling
_LEAST = 0.5  # of guidance: none at all is no quieter
_FINE = 0.14  # hundredths of the short side that count as fine


@dataclass(frozen=True, slots=True)
class RenderQuality:
    """An order's `steps` and `guidance`, None where it says nothing of them."""

    steps: float | None = None
    guidance: float | None = None

    @classmethod
    def of(cls, inputs: Mapping[str, Any]) -> RenderQuality:
        """What checked inputs say, in the words of images or in those of films."""
        return cls(
            _number(inputs, "steps", "num_inference_steps"), _number(inputs, "guidance", "guidance_scale")
        )

    def applied(self, image: Image) -> Image:
        """A painted image, float RGB in 0..1, finished and colored so far."""
        if self.steps is not None and self.steps != _MIDDLE:
            share = float(np.clip(_FINISH * math.log2(max(1.0, self.steps) / _MIDDLE), _SOFTEST, _FINEST))
            fine = image - blur(image, max(0.8, _FINE * min(image.shape[:2]) / 100))
            image = np.clip(image + fine * np.float32(share), 0, 1)
        if self.guidance is not None and self.guidance != _MIDDLE:
            louder = math.log2(max(_LEAST, self.guidance) / _MIDDLE)
            image = vivid(image, 1 + _COLOR * louder)
            image = np.clip((image - 0.5) * np.float32(1 + _CONTRAST * louder) + np.float32(0.5), 0, 1)
        return image


AS_IT_IS = RenderQuality()


def _number(inputs: Mapping[str, Any], *names: str) -> float | None:
    found = next((inputs[name] for name in names if inputs.get(name) is not None), None)
    return None if found is None else float(found)
