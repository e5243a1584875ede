"""Pictures as an encoder wants them: lightness at full size, colour at half (4:2:0, BT.709, video range).

The whole film is made in these planes: to warp them costs half of what RGB costs, and no frame has to be
converted. `YuvPlanes.y` is (height, width), `YuvPlanes.uv` (height / 2, width / 2, 2), both of bytes; sides
are even.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

BLACK, NO_COLOUR = 16, 128
_KR, _KB = 0.2126, 0.0722


def _matrix() -> Array:
    """RGB in 0..255 to Y'CbCr in video range, as a 3 x 4 matrix."""
    luma = np.array([_KR, 1 - _KR - _KB, _KB])
    blue = (np.array([0, 0, 1]) - luma) / (2 * (1 - _KB))
    red = (np.array([1, 0, 0]) - luma) / (2 * (1 - _KR))
    rows = np.stack([luma * 219 / 255, blue * 224 / 255, red * 224 / 255])
    return np.column_stack([rows, [BLACK, NO_COLOUR, NO_COLOUR]]).astype(np.float32)


_TO = _matrix()
_WEIGHED = np.vstack([_TO / [1, 1, 1, 255], [0, 0, 0, 1]]).astype(np.float32)
_BACK = np.linalg.inv(np.vstack([_TO, [0, 0, 0, 1]]))[:3].astype(np.float32)


@dataclass(frozen=True, slots=True)
class YuvPlanes:
    """One picture."""

    y: Array
    uv: Array

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.y.shape[1], self.y.shape[0]


def of_rgb(rgb: Array) -> YuvPlanes:
    """A picture of bytes (height, width, 3); an odd last row or column is left out."""
    even = rgb[: rgb.shape[0] & ~1, : rgb.shape[1] & ~1]
    ycc = cv2.transform(np.ascontiguousarray(even), _TO)
    half = (even.shape[1] // 2, even.shape[0] // 2)
    return YuvPlanes(
        np.ascontiguousarray(ycc[..., 0]), cv2.resize(ycc[..., 1:], half, interpolation=cv2.INTER_AREA)
    )


def of_weighed(rgba: Array) -> Array:
    """Weighed RGBA as lightness, two colours and cover, weighed as it is, all at full size."""
    return cv2.transform(rgba, _WEIGHED)


def of_frame(frame: Any) -> tuple[Array, ...]:
    """The planes of a decoded frame of bytes, as they lie in it."""
    return tuple(
        np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: plane.height, : plane.width]
        for plane in frame.planes
    )


def to_rgb(planes: YuvPlanes) -> Array:
    """The picture in RGB bytes."""
    colour = cv2.resize(planes.uv, planes.size, interpolation=cv2.INTER_LINEAR)
    return cv2.transform(np.dstack([planes.y, colour]), _BACK)


def colour_of(rgb: tuple[int, int, int]) -> tuple[int, int, int]:
    """One colour as Y, U and V."""
    y, u, v = (_TO @ np.array([*rgb, 1], np.float32)).round().astype(int).tolist()
    return y, u, v
