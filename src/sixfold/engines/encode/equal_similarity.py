"""Encoding of images in different formats with equal similarity to the original.

The same quality number gives a different result in each encoder. Here it is the quality of a JPEG, whose
structural similarity (SSIM; Wang et al. 2004) to the original is measured; every other format is encoded at
the lowest quality that reaches the same similarity.
"""

from __future__ import annotations

import io

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from sixfold.engines.image import encode
from sixfold.engines.image.decode import Pixels

_LOSSLESS = "png"
_WINDOW, _SIGMA = (11, 11), 1.5
_C1, _C2 = 6.5025, 58.5225  # constants of SSIM for samples from 0 to 255
_CHANNELS = (0.8, 0.1, 0.1)  # the weights of Y, Cb and Cr
_LOWEST, _HIGHEST = 1, 98
# Quality steps to try after the search, because the search uses a faster encoder with slightly other output.
_UP, _DOWN = 2, 4
# The slower settings, which take 2 s per megapixel, save 20 % in size and are used up to this many pixels.
_SMALL_PIXELS = 2_000_000


class EncodedImage(msgspec.Struct, frozen=True):
    """An encoded image, the encoder's quality setting, and the similarity to the original (at most 1)."""

    data: bytes
    quality: int
    similarity: float


class SimilarEncoder:
    """Encodes an image in several formats, each as similar to the original as a JPEG of `quality`."""

    def __init__(self, rgb: Pixels, alpha: Pixels | None, quality: int) -> None:
        self._rgb, self._alpha = rgb, alpha
        self._small = rgb.shape[0] * rgb.shape[1] <= _SMALL_PIXELS
        self._original = _Statistics.of(encode.on_white(rgb, alpha))
        self._jpeg = self._encode("jpeg", quality)

    def encode(self, format_: str) -> EncodedImage:
        if format_ == "jpeg":
            return self._jpeg
        if format_ == _LOSSLESS:
            return EncodedImage(encode.encode(self._rgb, self._alpha, format=format_), 100, 1.0)
        best = self._encode(format_, self._lowest(format_), small=self._small)
        while best.similarity < self._jpeg.similarity and best.quality < _HIGHEST:
            best = self._encode(format_, min(_HIGHEST, best.quality + _UP), small=self._small)
        lower = best
        while lower.similarity >= self._jpeg.similarity and lower.quality > _DOWN:
            best, lower = lower, self._encode(format_, lower.quality - _DOWN, small=self._small)
        return best

    def _lowest(self, format_: str) -> int:
        low, high = _LOWEST, _HIGHEST
        while low < high:
            middle = (low + high) // 2
            if self._encode(format_, middle).similarity >= self._jpeg.similarity:
                high = middle
            else:
                low = middle + 1
        return low

    def _encode(self, format_: str, quality: int, *, small: bool = False) -> EncodedImage:
        data = encode.encode(self._rgb, self._alpha, format=format_, quality=quality, small=small)
        with Image.open(io.BytesIO(data)) as image:
            decoded = np.asarray(image.convert("RGB" if image.mode != "RGBA" else "RGBA"))
        flat = encode.on_white(decoded[..., :3], decoded[..., 3] if decoded.shape[2] == 4 else None)
        return EncodedImage(data, quality, self._original.similarity(flat))


class _Statistics(msgspec.Struct, frozen=True):
    """An image in YCbCr with its local means and variances."""

    pixels: NDArray[np.float32]
    mean: NDArray[np.float32]
    variance: NDArray[np.float32]

    @classmethod
    def of(cls, rgb: Pixels) -> _Statistics:
        pixels = cv2.cvtColor(rgb, cv2.COLOR_RGB2YCrCb).astype(np.float32)
        mean = _blur(pixels)
        variance = np.asarray(_blur(pixels * pixels) - mean * mean, np.float32)
        return cls(pixels, mean, variance)

    def similarity(self, rgb: Pixels) -> float:
        """Return the mean SSIM between this image and another, weighted by channel."""
        other = _Statistics.of(rgb)
        both = self.mean * other.mean
        covariance = _blur(self.pixels * other.pixels) - both
        similar = (2 * both + _C1) * (2 * covariance + _C2)
        different = (self.mean**2 + other.mean**2 + _C1) * (self.variance + other.variance + _C2)
        return float((similar / different).mean((0, 1)) @ np.array(_CHANNELS))


def _blur(channels: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(cv2.GaussianBlur(channels, _WINDOW, _SIGMA), np.float32)
