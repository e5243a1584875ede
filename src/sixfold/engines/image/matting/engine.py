"""Background removal without weights: a subject on nothing, and how sure that is."""

from __future__ import annotations

import numpy as np

from sixfold.core.catalog.engines import Artifact, Context, EngineError, Quality, Result, Task
from sixfold.engines.image import decode, encode
from sixfold.engines.image.decode import DecodedImage
from sixfold.engines.image.matting import edges, segmentation
from sixfold.engines.image.matting.edges import Array

FULL_FROM = 0.85  # confidence from which a cut is as good as a model's
NONE_BELOW = 0.4  # and below which there is hardly a subject


class MattingEngine:
    """Cuts the subject of `image_url` (or `image`) out."""

    name = "matting"
    version = "2"

    def run(self, task: Task, context: Context) -> Result:
        """A PNG with soft alpha at exactly the image's size; `full` where the cut is sure of itself."""
        picture = source(task)
        context.progress(0.15)
        alpha, confidence = segmentation.alpha(picture.rgb)
        context.progress(0.7)
        if confidence < FULL_FROM:
            what = "no subject stands out" if confidence < NONE_BELOW else "the subject is hard to tell"
            context.log(
                f"{what} from its background (confidence {confidence:.2f}): "
                "look at the edges, or run `sixfold engines add matting`"
            )
        quality: Quality = "full" if confidence >= FULL_FROM else "preview"
        result = finished(picture, alpha, confidence, quality)
        context.progress(1.0)
        return result


def source(task: Task) -> DecodedImage:
    """The image of a task; raises `UnusableInput` when it cannot be read."""
    path = task.files.get("image_url") or task.files.get("image")
    if path is None:
        raise EngineError("Background removal needs a picture.")
    return decode.decode(path)


def finished(picture: DecodedImage, alpha: Array, confidence: float, quality: Quality) -> Result:
    """The subject as a PNG: clean colors, the alpha found times the alpha that the image had."""
    rgb = edges.decontaminated(picture.rgb, alpha)
    cover = np.rint(alpha * 255).astype(np.uint8)
    if picture.alpha is not None:
        cover = np.rint(cover * (picture.alpha / np.float32(255))).astype(np.uint8)
    rgb[cover == 0] = 0  # what was removed is not in the file any more
    info = {"width": picture.width, "height": picture.height}
    data = {"confidence": round(float(confidence), 3)}
    return Result((Artifact("image/png", encode.encode(rgb, cover, format="png"), info),), data, quality)
