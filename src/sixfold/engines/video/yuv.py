"""Frames as Y and UV planes in the encoder's format (4:2:0, BT.709, video range).

Videos are rendered in these planes: warping them costs half as much as warping RGB, and frames need no
conversion. `YuvPlanes.y` is (height, width), `YuvPlanes.uv` (height / 2, width / 2, 2), both bytes; the sides
are even.
"""

from __future__ import annotations

from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

BLACK, NEUTRAL = 16, 128
_KR, _KB = 0.2126, 0.0722


def _matrix() -> Array:
    """Return the 3 x 4 matrix from RGB in 0..255 to Y'CbCr in video range."""
    luma = np.array([_KR, 1 - _KR - _KB, _KB])
    blue = (np.array([0, 0, 1]) - luma) / (2 * (1 - _KB))
    red = (np.array([1, 0, 0]) - luma) / (2 * (1 - _KR))
    rows = np.stack([luma * 219 / 255, blue * 224 / 255, red * 224 / 255])
    return np.column_stack([rows, [BLACK, NEUTRAL, NEUTRAL]]).astype(np.float32)


_TO_YUV = _matrix()
_TO_YUVA = np.vstack([_TO_YUV / [1, 1, 1, 255], [0, 0, 0, 1]]).astype(np.float32)
_TO_RGB = np.linalg.inv(np.vstack([_TO_YUV, [0, 0, 0, 1]]))[:3].astype(np.float32)


class YuvPlanes(msgspec.Struct, frozen=True):
    """The Y and UV planes of a frame."""

    y: Array
    uv: Array

    @property
    def size(self) -> tuple[int, int]:
        """The width and height in pixels."""
        return self.y.shape[1], self.y.shape[0]


def of_rgb(rgb: Array) -> YuvPlanes:
    """Convert RGB bytes (height, width, 3); an odd last row or column is dropped."""
    even = rgb[: rgb.shape[0] & ~1, : rgb.shape[1] & ~1]
    ycc = cv2.transform(np.ascontiguousarray(even), _TO_YUV)
    half = (even.shape[1] // 2, even.shape[0] // 2)
    return YuvPlanes(
        np.ascontiguousarray(ycc[..., 0]), cv2.resize(ycc[..., 1:], half, interpolation=cv2.INTER_AREA)
    )


def toward(planes: YuvPlanes, color: tuple[int, int, int], mask: Array) -> YuvPlanes:
    """Blend planes toward a color (Y, U, V) by a mask of bytes."""
    width, height = planes.size
    half = cv2.resize(mask, (width // 2, height // 2), interpolation=cv2.INTER_AREA)
    uv = cv2.merge([_toward(planes.uv[..., index], color[index + 1], half) for index in (0, 1)])
    return YuvPlanes(_toward(planes.y, color[0], mask), uv)


def _toward(values: Array, target: int, mask: Array) -> Array:
    keep = cv2.multiply(values, cv2.bitwise_not(mask), scale=1 / 255)
    return cv2.add(keep, cv2.multiply(mask, np.full_like(mask, target), scale=1 / 255))


def of_premultiplied(rgba: Array) -> Array:
    """Convert premultiplied RGBA to premultiplied Y, U, V and alpha, all at full size."""
    return cv2.transform(rgba, _TO_YUVA)


def of_frame(frame: Any) -> tuple[Array, ...]:
    """Return views of the planes of a decoded 8-bit frame."""
    return tuple(
        np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: plane.height, : plane.width]
        for plane in frame.planes
    )


def to_rgb(planes: YuvPlanes) -> Array:
    """Convert the planes to RGB bytes."""
    chroma = cv2.resize(planes.uv, planes.size, interpolation=cv2.INTER_LINEAR)
    return cv2.transform(np.dstack([planes.y, chroma]), _TO_RGB)


def color_of(rgb: tuple[int, int, int]) -> tuple[int, int, int]:
    """Convert an RGB color to Y, U and V."""
    y, u, v = (_TO_YUV @ np.array([*rgb, 1], np.float32)).round().astype(int).tolist()
    return y, u, v
