"""A prior for people: a detected face implies a surrounding head and a body below it.

A dark coat in front of a dark wall is not salient, but a head implies a body.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.engines.image import face_detection
from sixfold.engines.image.face_detection import DetectedFace

Array = NDArray[Any]
Pixels = NDArray[np.uint8]

# Smallest height of a portrait's face, as a fraction of the image's height.
_MIN_FACE = 0.12
# The same for a face near marks of a user, and the probability that limits the region of the person.
_MIN_MARKED_FACE, _MIN_PERSON = 0.08, 0.25
# Smallest fraction of a box that its people cover; smaller regions belong to patterns or crowds.
_MIN_SHARE = 0.3
# Probability of the middle of a body, and of its arms and shoulders.
_CORE, _LIKELY = 0.9, 0.6
# Softness of a body's outline, as a fraction of the face.
_SOFT = 0.12
# Reach of held objects from the body, as a fraction of the face.
_ARM = 0.8
# Weight of salient objects elsewhere, such as flags, lamps and furniture.
_BESIDE = 0.4
# Half widths and depths below the chin, in units of the face; the last one extends to the image's border.
_MIDDLE = ((0.3, 0.0), (0.35, 0.25), (0.75, 0.7), (0.85, 1.6))
_BODY = ((0.45, -0.1), (0.6, 0.3), (1.35, 0.75), (1.6, 2.0))


def apply_prior(belief: Array, detected: Iterable[DetectedFace]) -> Array:
    """Return the belief (HxW, 0 to 1), updated if the faces are large enough for a portrait."""
    height = belief.shape[0]
    faces = [face for face in detected if face.bottom - face.top >= _MIN_FACE * height]
    if not faces:
        return belief
    whole = np.maximum.reduce([_person(belief.shape, face) for face in faces])
    reach = round(_ARM * max(face.right - face.left for face in faces))
    near = cv2.dilate(whole, np.ones((2 * reach + 1, 2 * reach + 1), np.uint8)) / _LIKELY
    near = cv2.GaussianBlur(np.minimum(near, 1.0), (0, 0), max(1.0, reach / 3))
    return np.maximum(belief * (_BESIDE + (1 - _BESIDE) * near), whole)


def region(small: Pixels, box: tuple[int, int, int, int]) -> NDArray[np.bool_] | None:
    """Return the region (HxW) of people whose faces are in a box (left, top, right, bottom).

    None if there are no such faces, or if the people cover only a small part of the box.
    """
    height, width = small.shape[:2]
    left, top, right, bottom = box
    faces = [
        face
        for face in face_detection.find(small)
        if left <= face.left < face.right <= right
        and top <= face.top < face.bottom <= bottom
        and face.bottom - face.top >= _MIN_MARKED_FACE * height
    ]
    if not faces:
        return None
    people = np.maximum.reduce([_person((height, width), face) for face in faces]) > _MIN_PERSON
    return people if people[top:bottom, left:right].mean() >= _MIN_SHARE else None


def _person(shape: tuple[int, int], face: DetectedFace) -> Array:
    across, down = face.right - face.left, face.bottom - face.top
    middle = (face.left + face.right) / 2
    likely, core = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for part, outline in ((likely, _BODY), (core, _MIDDLE)):
        rows = [(half * across, face.bottom + depth * down) for half, depth in outline]
        rows.append((rows[-1][0], max(rows[-1][1], float(shape[0]))))
        left = [(middle - half, row) for half, row in rows]
        right = [(middle + half, row) for half, row in reversed(rows)]
        cv2.fillPoly(part, [np.rint([*left, *right]).astype(np.int32)], 1.0)
    head = (middle, face.top + 0.46 * down), (1.0 * across, 1.25 * down), 0.0
    cv2.ellipse(likely, head, 1.0, -1)
    cv2.ellipse(core, (head[0], (0.75 * across, 0.95 * down), 0.0), 1.0, -1)
    soft = max(1.0, _SOFT * across)
    likely, core = (cv2.GaussianBlur(part, (0, 0), soft) for part in (likely, core))
    return np.maximum(_LIKELY * likely, _CORE * core)
