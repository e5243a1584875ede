"""Face detection with the Haar cascades of OpenCV 4: frontal faces and both profiles."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image import saliency

Pixels = NDArray[np.uint8]

WORK_SIDE = 480
# Smallest face, as a fraction of the short side.
_SMALLEST = 0.05
_NEIGHBORS = {"haarcascade_frontalface_default.xml": 7, "haarcascade_profileface.xml": 8}
_OVERLAP = 0.3
_SKIN = 0.22


class DetectedFace(msgspec.Struct, frozen=True):
    """A box around a face, in pixels of the searched image."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def area(self) -> float:
        """Area in square pixels."""
        return (self.right - self.left) * (self.bottom - self.top)

    def head(self, width: int, height: int) -> DetectedFace:
        """Return the box of the whole head with hair and chin, clipped to an image of this size."""
        across, down = self.right - self.left, self.bottom - self.top
        return DetectedFace(
            max(0.0, self.left - 0.25 * across),
            max(0.0, self.top - 0.45 * down),
            min(float(width), self.right + 0.25 * across),
            min(float(height), self.bottom + 0.30 * down),
        )


def find(rgb: Pixels) -> tuple[DetectedFace, ...]:
    """Return the faces of an HxWx3 image, largest first, without matches that lack skin tones."""
    small = saliency.downscale(rgb, WORK_SIDE)
    scale = max(rgb.shape[:2]) / max(small.shape[:2])
    gray = cv2.equalizeHist(cv2.cvtColor(small, cv2.COLOR_RGB2GRAY))
    boxes = _boxes(gray, "haarcascade_frontalface_default.xml", mirrored=False)
    for mirrored in (False, True):
        boxes += _boxes(gray, "haarcascade_profileface.xml", mirrored=mirrored)
    faces: list[DetectedFace] = []
    for box in sorted(boxes, key=lambda face: -face.area):
        if _has_skin(small, box) and not any(_overlap(box, other) > _OVERLAP for other in faces):
            faces.append(box)
    return tuple(
        DetectedFace(f.left * scale, f.top * scale, f.right * scale, f.bottom * scale) for f in faces
    )


@cache
def _cascade(name: str) -> Any:
    # OpenCV 5 does not include cascades; `pyproject.toml` pins an older version.
    return cv2.CascadeClassifier(str(Path(cv2.__file__).parent / "data" / name))


def _boxes(gray: NDArray[Any], name: str, *, mirrored: bool) -> list[DetectedFace]:
    smallest = max(20, round(min(gray.shape) * _SMALLEST))
    searched = cv2.flip(gray, 1) if mirrored else gray
    matches = _cascade(name).detectMultiScale(
        searched, scaleFactor=1.15, minNeighbors=_NEIGHBORS[name], minSize=(smallest, smallest)
    )
    width = gray.shape[1]
    faces = [DetectedFace(float(x), float(y), float(x + w), float(y + h)) for x, y, w, h in matches]
    if mirrored:
        return [DetectedFace(width - face.right, face.top, width - face.left, face.bottom) for face in faces]
    return faces


def _has_skin(rgb: Pixels, face: DetectedFace) -> bool:
    box = rgb[round(face.top) : round(face.bottom), round(face.left) : round(face.right)]
    if not box.size:
        return False
    planes = cv2.cvtColor(box, cv2.COLOR_RGB2YCrCb)
    red, blue = planes[..., 1].astype(int), planes[..., 2].astype(int)
    gray = (abs(red - 128) < 4) & (abs(blue - 128) < 4)
    if gray.mean() > 0.8:
        # The image is black and white, so skin tones cannot be checked.
        return True
    return bool(((red > 134) & (red < 178) & (blue > 78) & (blue < 130)).mean() > _SKIN)


def _overlap(first: DetectedFace, other: DetectedFace) -> float:
    across = min(first.right, other.right) - max(first.left, other.left)
    down = min(first.bottom, other.bottom) - max(first.top, other.top)
    if across <= 0 or down <= 0:
        return 0.0
    return across * down / min(first.area, other.area)
