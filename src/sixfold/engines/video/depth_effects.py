"""Engines that show the depth of an image as a parallax video or as a map."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Artifact, Context, EngineError, Quality, Result, Task
from sixfold.engines.image import decode, encode
from sixfold.engines.image.depth import heuristic, maps
from sixfold.engines.video import encode as video_encode
from sixfold.engines.video import layers, parallax, source_image
from sixfold.engines.video.camera_moves import CameraPose
from sixfold.engines.video.layers import SourceStill

Array = NDArray[Any]

_RATE = Fraction(24)
_MAX_SIDE = 1280
# The camera's motion at full strength: sideways and upward in fractions of the frame, and toward the image.
_SWAY, _LIFT, _APPROACH = 0.06, 0.03, 0.10
_STRENGTH, _SECONDS = 0.55, 3


class DepthEstimator(Protocol):
    """Estimates the nearness of each pixel."""

    def nearness(self, rgb: Array) -> Array:
        """Return the nearness of an image's pixels, float32 HxW, 0 far to 1 near."""
        ...


class DepthEngine:
    """Applies a depth `effect` to `image`, with depth estimated without weights."""

    name = "depth-guess"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """Return an MP4 for `parallax`, else a PNG of the image's size."""
        return run(task, context, heuristic, "preview")


class OnnxDepthEngine:
    """Applies a depth `effect` with depth from a model file.

    Options: `source` (the file, or a folder that contains one) or `weights` (the folder of installed models),
    and `side`, the short side of the input of a model without a fixed size.
    """

    name = "weights-depth"

    def __init__(self, *, source: str = "", weights: str = "", side: int = 0) -> None:
        from sixfold.engines.image.depth.onnx import DepthModel

        self._model = DepthModel(source or weights, side)
        self.version = f"1/{self._model.stem}"

    def run(self, task: Task, context: Context) -> Result:
        """Return an MP4 for `parallax`, else a PNG of the image's size."""
        return run(task, context, self._model, "full")


def run(task: Task, context: Context, estimator: DepthEstimator, quality: Quality) -> Result:
    path = task.files.get("image") or task.files.get("image_url")
    if path is None:
        raise EngineError("`image` is required.")
    effect = str(task.inputs.get("effect") or "parallax")
    strength = float(task.inputs.get("strength") or _STRENGTH)
    if effect == "parallax":
        seconds = int(task.inputs.get("seconds") or _SECONDS)
        return _parallax_video(
            source_image.open_rgb(path, 2 * _MAX_SIDE), estimator, (strength, seconds), context, quality
        )
    image = decode.decode(path)
    near = estimator.nearness(image.rgb)
    context.progress(0.7)
    data = encode.encode(maps.MAPS[effect](near, strength), image.alpha, format="png")
    info = {"width": image.width, "height": image.height}
    return Result((Artifact("image/png", data, info),), {"effect": effect}, quality)


def _parallax_video(
    rgb: Array, estimator: DepthEstimator, options: tuple[float, int], context: Context, quality: Quality
) -> Result:
    """Render a looping video in which the camera completes one round.

    `options` are the strength and the duration in seconds.
    """
    strength, seconds = options
    size = _video_size(rgb)
    image = source_image.crop_to_fill(rgb, size)
    still = source_image.from_image(image, size)
    near = _smooth(estimator.nearness(image), quality)
    context.progress(0.15)
    count = round(seconds * _RATE)
    poses = [_pose(index / count, strength) for index in range(count)]
    stage = parallax.ParallaxStage(
        layers.separate(SourceStill(still.rgb, near, still.fronts), parallax.grid(size)),
        size,
        parallax.margin(poses, size),
    )
    target = context.scratch / "parallax.mp4"
    with video_encode.VideoEncoder(target, size, _RATE) as video:
        for index, pose in enumerate(poses):
            video.add(stage.frame(pose))
            context.progress(0.15 + 0.84 * (index + 1) / count)
    info = {"width": size[0], "height": size[1], "duration": float(seconds), "fps": int(_RATE)}
    return Result((Artifact("video/mp4", b"", info, target),), {"effect": "parallax"}, quality)


def _smooth(near: Array, quality: Quality) -> Array:
    """Blur the depth, more for a heuristic estimate, so that errors do not bend straight lines visibly."""
    share = 0.04 if quality == "preview" else 0.008
    return cv2.GaussianBlur(near.astype(np.float32), (0, 0), share * max(near.shape))


def _pose(share: float, strength: float) -> CameraPose:
    turn = 2 * math.pi * share
    return CameraPose(
        shift_x=_SWAY * strength * math.sin(turn),
        shift_y=_LIFT * strength * math.sin(turn) * math.cos(turn),
        approach=_APPROACH * strength * (1 - math.cos(turn)) / 2,
    )


def _video_size(rgb: Array) -> tuple[int, int]:
    height, width = rgb.shape[:2]
    scale = min(1.0, _MAX_SIDE / max(height, width))
    return max(16, 2 * round(width * scale / 2)), max(16, 2 * round(height * scale / 2))
