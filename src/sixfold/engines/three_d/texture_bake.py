"""Textures of a thing of two sheets: the front as it was seen, the back as it may be, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image import encode
from sixfold.engines.three_d.glb import Material
from sixfold.engines.three_d.subject import MeshSubject

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes

_MARGIN = 0.015  # of the square, beyond the outline
_BUMPS = 2.2  # how deep fine detail is taken to be
_ROUGH = (0.5, 0.9)  # what shines most and least
_UNSEEN = 0.05  # of the square: how far the back's colours are drawn into each other


@dataclass(frozen=True, slots=True)
class Atlas:
    """Where the sheets lie: the part of the square that holds the thing, and whether they lie stacked."""

    left: float
    top: float
    width: float
    height: float

    @classmethod
    def of(cls, inside: Array) -> Atlas:
        """The atlas of a thing."""
        side = len(inside)
        left, top, width, height = cv2.boundingRect((inside > 0.5).astype(np.uint8))
        low_x, low_y = (max(0.0, at / side - _MARGIN) for at in (left, top))
        high_x, high_y = (min(1.0, at / side + _MARGIN) for at in (left + width, top + height))
        return cls(low_x, low_y, high_x - low_x, high_y - low_y)

    @property
    def stacked(self) -> bool:
        """Whether the back lies below the front, as for what is wide."""
        return self.width > self.height

    def coordinates(self, nodes: Array, back: Array) -> Array:
        """Where in the texture nodes lie (0 to 1 from the upper left)."""
        own = np.stack([(nodes[:, 0] - self.left) / self.width, (nodes[:, 1] - self.top) / self.height], 1)
        axis = 1 if self.stacked else 0
        own[:, axis] = (own[:, axis] + back) / 2
        return np.clip(own, 0, 1).astype(np.float32)

    def painted(self, front: Array, back: Array, size: int) -> Array:
        """Two square maps in one of `size` x `size` pixels."""
        half = (size, size // 2) if self.stacked else (size // 2, size)
        parts = [self._part(values, half) for values in (front, back)]
        return np.vstack(parts) if self.stacked else np.hstack(parts)

    def _part(self, values: Array, size: tuple[int, int]) -> Array:
        side = len(values)
        scale = (self.width * side / size[0], self.height * side / size[1])
        matrix = np.array([[scale[0], 0, self.left * side], [0, scale[1], self.top * side]], np.float32)
        how = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
        return cv2.warpAffine(values, matrix, size, flags=how, borderMode=cv2.BORDER_REPLICATE)


def baked(subject: MeshSubject, atlas: Atlas, size: int) -> Material:
    """The material: colours, fine relief and shine, each a texture."""
    colours = atlas.painted(subject.rgb, unseen(subject), size)
    lightness = cv2.cvtColor(subject.rgb, cv2.COLOR_RGB2GRAY).astype(np.float32) / 255
    flat = np.full((*lightness.shape, 3), (128, 128, 255), np.uint8)
    bumps = atlas.painted(_bumps(lightness), flat, size)
    shine = np.full_like(lightness, _ROUGH[1])
    gloss = atlas.painted(_roughness(lightness), shine, max(256, size // 4))
    packed = np.dstack([np.full_like(gloss, 1.0), np.clip(gloss, 0, 1), np.zeros_like(gloss)])
    return Material(
        metallic=1.0,  # times the texture's, which is none
        roughness=1.0,
        texture=encode.encode(colours, format="jpeg", quality=92),
        bumps=encode.encode(bumps, format="jpeg", quality=90),
        gloss=encode.encode(np.rint(packed * 255).astype(np.uint8), format="jpeg", quality=90),
    )


def unseen(subject: MeshSubject) -> Pixels:
    """The colours of the back: the front's, drawn into each other, as no detail of it is known."""
    weight = subject.inside[..., None].astype(np.float32)
    sigma = _UNSEEN * subject.side
    small = (max(8, subject.side // 8),) * 2
    colour = cv2.resize(subject.rgb.astype(np.float32) * weight, small, interpolation=cv2.INTER_AREA)
    share = cv2.resize(weight, small, interpolation=cv2.INTER_AREA)
    soft, thin = (cv2.GaussianBlur(values, (0, 0), sigma / 8) for values in (colour, share))
    drawn = soft / np.maximum(thin, 1e-3)[..., None]
    large = cv2.resize(drawn, (subject.side,) * 2, interpolation=cv2.INTER_CUBIC)
    known = cv2.GaussianBlur(subject.inside, (0, 0), sigma)[..., None] > 1e-3
    return np.clip(np.rint(np.where(known, large * 0.94, subject.rgb)), 0, 255).astype(np.uint8)


def _bumps(lightness: Array) -> Pixels:
    """Directions of the fine relief that shades of a picture speak of."""
    side = len(lightness)
    fine = cv2.GaussianBlur(lightness, (0, 0), 0.001 * side) - cv2.GaussianBlur(
        lightness, (0, 0), 0.012 * side
    )
    dx, dy = (cv2.Scharr(fine, cv2.CV_32F, *way, scale=_BUMPS / 16) for way in ((1, 0), (0, 1)))
    steps = np.dstack([-dx, dy, np.full_like(dx, 0.35)])
    steps /= np.linalg.norm(steps, axis=2, keepdims=True)
    return np.rint((steps * 0.5 + 0.5) * 255).astype(np.uint8)


def _roughness(lightness: Array) -> Array:
    """Dull, but where a small bright spot speaks of a shine."""
    spot = (
        np.clip(lightness - cv2.GaussianBlur(lightness, (0, 0), 0.03 * len(lightness)) - 0.12, 0, 0.3) / 0.3
    )
    low, high = _ROUGH
    return cv2.GaussianBlur((high - (high - low) * spot).astype(np.float32), (0, 0), 2)
