"""The source image for style transfer: pixels, scale, and cached analyses."""

from __future__ import annotations

import zlib
from functools import cached_property

import cv2
import numpy as np

from sixfold.engines.image.styles import textures
from sixfold.engines.image.styles.textures import Array


class Canvas:
    """An image to be restyled; `rgb` is HxWx3 float32 from 0 to 1.

    `unit` is the long side divided by 1024, so that a stroke has the same relative size in any image; `rough`
    scales brushes, dots and tiles.
    """

    def __init__(self, rgb: Array, seed: int, rough: float = 1.0) -> None:
        self.rgb = rgb
        self.seed = seed
        self.unit = max(rgb.shape[:2]) / 1024.0
        self.rough = rough

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.rgb.shape[0], self.rgb.shape[1]

    def px(self, length: float) -> float:
        """Convert a length for an image of 1024 pixels, such as a brush size, to pixels of this image."""
        return length * self.unit * self.rough

    def rng(self, purpose: str) -> np.random.Generator:
        """Return a separate random generator for each purpose, so that recipes do not affect each other."""
        return np.random.default_rng([self.seed, zlib.crc32(purpose.encode())])

    @cached_property
    def gray(self) -> Array:
        """Luminance, 0 to 1."""
        return cv2.cvtColor(self.rgb, cv2.COLOR_RGB2GRAY)

    @cached_property
    def tone(self) -> Array:
        """The luminance, stretched so that the darkest and the lightest percent become black and white."""
        return textures.stretch(self.gray)

    @cached_property
    def abstract(self) -> Array:
        """The image with textures smoothed away and edges preserved."""
        guide = np.rint(self.rgb * 255).astype(np.uint8)
        flat = cv2.ximgproc.dtFilter(guide, guide, 14 * self.unit, 42, mode=cv2.ximgproc.DTF_NC, numIters=3)
        return flat.astype(np.float32) / 255

    @cached_property
    def flow(self) -> Array:
        """Directions along edges as HxWx2 unit vectors; a slow swirl elsewhere."""
        return textures.flow(cv2.cvtColor(self.abstract, cv2.COLOR_RGB2GRAY), 5 * self.unit, self.rng("flow"))

    @cached_property
    def edges(self) -> Array:
        """Edge strength of the abstracted image, 0 to 1."""
        gray = cv2.GaussianBlur(self.abstract, (0, 0), max(0.6, 1.2 * self.unit))
        across = cv2.Sobel(gray, cv2.CV_32F, 1, 0)
        down = cv2.Sobel(gray, cv2.CV_32F, 0, 1)
        strength = np.sqrt(across * across + down * down).max(axis=2)
        return np.clip(strength / max(0.05, float(np.quantile(strength[::4, ::4], 0.985))), 0, 1)
