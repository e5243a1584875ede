"""Scaling of images with the same results as ComfyUI."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
from PIL import Image

from sixfold.engines.workflow_nodes.frame_split import check_size
from sixfold.engines.workflow_nodes.values import Frames


def scaled(image: Frames, width: int, height: int, method: str, crop: str = "disabled") -> Frames:
    """Return images at a size; `crop="center"` crops to the aspect ratio first."""
    check_size(len(image), width, height, image.shape[-1])
    if crop == "center":
        image = _crop_center(image, width, height)
    if image.shape[1:3] == (height, width):
        return image
    scale = _METHODS.get(method, _bilinear)
    return np.stack([scale(np.ascontiguousarray(pixels), width, height) for pixels in image])


def _crop_center(image: Frames, width: int, height: int) -> Frames:
    rows, columns = image.shape[1:3]
    x = y = 0
    if columns / rows > width / height:
        x = round((columns - columns * (width / height) / (columns / rows)) / 2)
    elif columns / rows < width / height:
        y = round((rows - rows * (columns / rows) / (width / height)) / 2)
    return image[:, y : rows - y, x : columns - x]


def _nearest(pixels: Frames, width: int, height: int) -> Frames:
    rows, columns = pixels.shape[:2]
    across = np.minimum(((np.arange(width) + 0.5) * columns / width).astype(np.intp), columns - 1)
    down = np.minimum(((np.arange(height) + 0.5) * rows / height).astype(np.intp), rows - 1)
    return pixels[down[:, None], across]


def _by_cv2(flag: int) -> Callable[[Frames, int, int], Frames]:
    def resized(pixels: Frames, width: int, height: int) -> Frames:
        return cv2.resize(pixels, (width, height), interpolation=flag).reshape(height, width, -1)

    return resized


_bilinear = _by_cv2(cv2.INTER_LINEAR)


def _area(pixels: Frames, width: int, height: int) -> Frames:
    """Average the pixels that each new pixel covers (adaptive average pooling)."""
    return _pool(_pool(pixels, height, 0), width, 1)


def _pool(pixels: Frames, count: int, axis: int) -> Frames:
    length = pixels.shape[axis]
    at = np.arange(count)
    begins, ends = at * length // count, -(-(at + 1) * length // count)
    sums = np.insert(np.cumsum(pixels, axis=axis, dtype=np.float64), 0, 0, axis=axis)
    shape = [-1 if each == axis else 1 for each in range(pixels.ndim)]
    counted = (ends - begins).reshape(shape)
    return ((np.take(sums, ends, axis) - np.take(sums, begins, axis)) / counted).astype(np.float32)


def _lanczos(pixels: Frames, width: int, height: int) -> Frames:
    """Scale by Lanczos's filter in 8-bit values, as ComfyUI does."""
    bytes_ = np.clip(pixels * np.float32(255), 0, 255).astype(np.uint8)
    image = bytes_[..., 0] if bytes_.shape[-1] == 1 else bytes_
    resized = Image.fromarray(image).resize((width, height), Image.Resampling.LANCZOS)
    return np.asarray(resized, np.float32).reshape(height, width, -1) / np.float32(255)


_METHODS: dict[str, Callable[[Frames, int, int], Frames]] = {
    "nearest-exact": _nearest,
    "bilinear": _bilinear,
    "area": _area,
    "bicubic": _by_cv2(cv2.INTER_CUBIC),
    "lanczos": _lanczos,
}
