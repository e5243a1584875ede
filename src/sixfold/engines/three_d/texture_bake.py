"""Baking of the textures of a front and a back sheet into one atlas."""

from __future__ import annotations

from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image import encode
from sixfold.engines.three_d.glb import Material
from sixfold.engines.three_d.subject import MeshSubject

Array = NDArray[Any]
Pixels = NDArray[Any]  # bytes

_MARGIN = 0.015  # margin around the outline, as a fraction of the square
_BUMPS = 2.2  # strength of the normal map
_ROUGH = (0.5, 0.9)  # lowest and highest roughness
_BACK_BLUR = 0.05  # as a fraction of the square's side


class Atlas(msgspec.Struct, frozen=True):
    """The layout of the textures: the bounding box of the subject in the square."""

    left: float
    top: float
    width: float
    height: float

    @classmethod
    def of(cls, inside: Array) -> Atlas:
        """Return the atlas for a mask."""
        side = len(inside)
        left, top, width, height = cv2.boundingRect((inside > 0.5).astype(np.uint8))
        low_x, low_y = (max(0.0, at / side - _MARGIN) for at in (left, top))
        high_x, high_y = (min(1.0, at / side + _MARGIN) for at in (left + width, top + height))
        return cls(low_x, low_y, high_x - low_x, high_y - low_y)

    @property
    def stacked(self) -> bool:
        """Whether the back is below the front, as for wide subjects, or beside it."""
        return self.width > self.height

    def coordinates(self, nodes: Array, back: Array) -> Array:
        """Return the texture coordinates of nodes (0 to 1 from the upper left)."""
        own = np.stack([(nodes[:, 0] - self.left) / self.width, (nodes[:, 1] - self.top) / self.height], 1)
        axis = 1 if self.stacked else 0
        own[:, axis] = (own[:, axis] + back) / 2
        return np.clip(own, 0, 1).astype(np.float32)

    def combine(self, front: Array, back: Array, size: int) -> Array:
        """Combine two square maps into a map of `size` x `size` pixels."""
        half = (size, size // 2) if self.stacked else (size // 2, size)
        parts = [self._part(values, half) for values in (front, back)]
        return np.vstack(parts) if self.stacked else np.hstack(parts)

    def _part(self, values: Array, size: tuple[int, int]) -> Array:
        side = len(values)
        scale = (self.width * side / size[0], self.height * side / size[1])
        matrix = np.array([[scale[0], 0, self.left * side], [0, scale[1], self.top * side]], np.float32)
        flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
        return cv2.warpAffine(values, matrix, size, flags=flags, borderMode=cv2.BORDER_REPLICATE)


def bake(subject: MeshSubject, atlas: Atlas, size: int) -> Material:
    """Return a material with textures of color, normals and roughness."""
    colors = atlas.combine(subject.rgb, back_colors(subject), size)
    lightness = cv2.cvtColor(subject.rgb, cv2.COLOR_RGB2GRAY).astype(np.float32) / 255
    flat = np.full((*lightness.shape, 3), (128, 128, 255), np.uint8)
    bumps = atlas.combine(_bumps(lightness), flat, size)
    dull = np.full_like(lightness, _ROUGH[1])
    gloss = atlas.combine(_roughness(lightness), dull, max(256, size // 4))
    packed = np.dstack([np.full_like(gloss, 1.0), np.clip(gloss, 0, 1), np.zeros_like(gloss)])
    return Material(
        # Multiplied by the texture's metalness, which is 0.
        metallic=1.0,
        roughness=1.0,
        texture=encode.encode(colors, format="jpeg", quality=92),
        bumps=encode.encode(bumps, format="jpeg", quality=90),
        gloss=encode.encode(np.rint(packed * 255).astype(np.uint8), format="jpeg", quality=90),
    )


def back_colors(subject: MeshSubject) -> Pixels:
    """Return the colors of the back: the front's, strongly blurred, as its details are unknown."""
    weight = subject.inside[..., None].astype(np.float32)
    sigma = _BACK_BLUR * subject.side
    small = (max(8, subject.side // 8),) * 2
    color = cv2.resize(subject.rgb.astype(np.float32) * weight, small, interpolation=cv2.INTER_AREA)
    share = cv2.resize(weight, small, interpolation=cv2.INTER_AREA)
    color_sum, weight_sum = (cv2.GaussianBlur(values, (0, 0), sigma / 8) for values in (color, share))
    blurred = color_sum / np.maximum(weight_sum, 1e-3)[..., None]
    large = cv2.resize(blurred, (subject.side,) * 2, interpolation=cv2.INTER_CUBIC)
    covered = cv2.GaussianBlur(subject.inside, (0, 0), sigma)[..., None] > 1e-3
    return np.clip(np.rint(np.where(covered, large * 0.94, subject.rgb)), 0, 255).astype(np.uint8)


def _bumps(lightness: Array) -> Pixels:
    """Return a normal map of the fine relief that the image's shading suggests."""
    side = len(lightness)
    fine = cv2.GaussianBlur(lightness, (0, 0), 0.001 * side) - cv2.GaussianBlur(
        lightness, (0, 0), 0.012 * side
    )
    dx, dy = (cv2.Scharr(fine, cv2.CV_32F, *axis, scale=_BUMPS / 16) for axis in ((1, 0), (0, 1)))
    steps = np.dstack([-dx, dy, np.full_like(dx, 0.35)])
    steps /= np.linalg.norm(steps, axis=2, keepdims=True)
    return np.rint((steps * 0.5 + 0.5) * 255).astype(np.uint8)


def _roughness(lightness: Array) -> Array:
    """Return the roughness: high, except in small bright spots, which suggest highlights."""
    spot = (
        np.clip(lightness - cv2.GaussianBlur(lightness, (0, 0), 0.03 * len(lightness)) - 0.12, 0, 0.3) / 0.3
    )
    low, high = _ROUGH
    return cv2.GaussianBlur((high - (high - low) * spot).astype(np.float32), (0, 0), 2)
