"""What can be shown of a picture's depth: a camera that sways before it, or its nearness as a map."""

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
from sixfold.engines.video import encode as films
from sixfold.engines.video import layers, parallax, source_image
from sixfold.engines.video.camera_moves import CameraPose
from sixfold.engines.video.layers import SourceStill

Array = NDArray[Any]

_RATE = Fraction(24)
_FILM_SIDE = 1280  # pixels of a film's longer side at most
_SWAY, _LIFT, _CLOSER = 0.06, 0.03, 0.10  # at full strength: shares of the frame, and how much nearer
_STRENGTH, _SECONDS = 0.55, 3


class DepthEstimator(Protocol):
    """Estimates how near each pixel is."""

    def nearness(self, rgb: Array) -> Array:
        """Nearness of a picture's pixels, float32 HxW, 0 far to 1 near."""
        ...


class DepthEngine:
    """Shows the depth of `image` as `effect` says, guessed without weights."""

    name = "depth-guess"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """An MP4 for `parallax`, else a PNG of the picture's size."""
        return run(task, context, heuristic, "preview")


class OnnxDepthEngine:
    """The same with a model file.

    Options: `source` (the file, or a folder that holds one) or `weights` (the folder of installed models),
    and `side`, the short side that a model of open size is given.
    """

    name = "weights-depth"

    def __init__(self, *, source: str = "", weights: str = "", side: int = 0) -> None:
        from sixfold.engines.image.depth.onnx import DepthModel

        self._model = DepthModel(source or weights, side)
        self.version = f"1/{self._model.stem}"

    def run(self, task: Task, context: Context) -> Result:
        """An MP4 for `parallax`, else a PNG of the picture's size."""
        return run(task, context, self._model, "full")


def run(task: Task, context: Context, teller: DepthEstimator, quality: Quality) -> Result:
    """The whole task, by whoever tells nearness."""
    path = task.files.get("image") or task.files.get("image_url")
    if path is None:
        raise EngineError("Depth needs a picture.")
    effect = str(task.inputs.get("effect") or "parallax")
    strength = float(task.inputs.get("strength") or _STRENGTH)
    if effect == "parallax":
        seconds = int(task.inputs.get("seconds") or _SECONDS)
        return _swayed(
            source_image.opened(path, 2 * _FILM_SIDE), teller, (strength, seconds), context, quality
        )
    picture = decode.decode(path)
    near = teller.nearness(picture.rgb)
    context.progress(0.7)
    data = encode.encode(maps.MAPS[effect](near, strength), picture.alpha, format="png")
    info = {"width": picture.width, "height": picture.height}
    return Result((Artifact("image/png", data, info),), {"effect": effect}, quality)


def _swayed(
    rgb: Array, teller: DepthEstimator, wish: tuple[float, int], context: Context, quality: Quality
) -> Result:
    """A film that ends where it begins, of a camera that goes once round."""
    strength, seconds = wish
    size = _film_size(rgb)
    picture = source_image.covering(rgb, size)
    still = source_image.sent(picture, size)
    near = _gentle(teller.nearness(picture), quality)
    context.progress(0.15)
    count = round(seconds * _RATE)
    poses = [_pose(index / count, strength) for index in range(count)]
    stage = parallax.ParallaxStage(
        layers.apart(SourceStill(still.rgb, near, still.fronts), parallax.grid(size)),
        size,
        parallax.margin(poses, size),
    )
    target = context.scratch / "parallax.mp4"
    with films.VideoEncoder(target, size, _RATE) as film:
        for index, pose in enumerate(poses):
            film.add(stage.frame(pose))
            context.progress(0.15 + 0.84 * (index + 1) / count)
    info = {"width": size[0], "height": size[1], "duration": float(seconds), "fps": int(_RATE)}
    return Result((Artifact("video/mp4", b"", info, target),), {"effect": "parallax"}, quality)


def _gentle(near: Array, quality: Quality) -> Array:
    """A guess is softened: where it is wrong, straight lines at least stay nearly straight."""
    share = 0.04 if quality == "preview" else 0.008
    return cv2.GaussianBlur(near.astype(np.float32), (0, 0), share * max(near.shape))


def _pose(share: float, strength: float) -> CameraPose:
    """The camera at a share of its round: it sways to the side, rises, and comes a little closer."""
    turn = 2 * math.pi * share
    return CameraPose(
        shift_x=_SWAY * strength * math.sin(turn),
        shift_y=_LIFT * strength * math.sin(turn) * math.cos(turn),
        approach=_CLOSER * strength * (1 - math.cos(turn)) / 2,
    )


def _film_size(rgb: Array) -> tuple[int, int]:
    height, width = rgb.shape[:2]
    scale = min(1.0, _FILM_SIDE / max(height, width))
    return max(16, 2 * round(width * scale / 2)), max(16, 2 * round(height * scale / 2))
