"""Background removal without weights."""

from __future__ import annotations

import numpy as np

from sixfold.core.catalog.engines import Artifact, Context, EngineError, Quality, Result, Task
from sixfold.engines.image import decode, encode
from sixfold.engines.image.decode import DecodedImage
from sixfold.engines.image.matting import edges, guided, segmentation
from sixfold.engines.image.matting.edges import Array

# Confidence above which a cutout is as good as a model's.
FULL_FROM = 0.85
# Confidence below which the image is unlikely to contain a subject.
NONE_BELOW = 0.4


class MattingEngine:
    """Cuts out the subject of `image_url` (or `image`), which `box`, `points` or `mask` can mark."""

    name = "matting"
    version = "6"

    def run(self, task: Task, context: Context) -> Result:
        """Return a PNG with soft alpha at the image's size; the quality is `full` if confidence is high."""
        image = source(task)
        marks = guided.read(task, (image.width, image.height))
        context.progress(0.15)
        alpha, confidence = segmentation.alpha(image.rgb) if marks is None else guided.alpha(image.rgb, marks)
        context.progress(0.7)
        if confidence < FULL_FROM:
            reason = "no subject stands out" if confidence < NONE_BELOW else "the subject is hard to separate"
            marking = "mark the subject with box, points or mask" if marks is None else "add points or a mask"
            context.log(
                f"{reason} from the background (confidence {confidence:.2f}): "
                f"check the edges, {marking}, or run `sixfold engines add matting`"
            )
        quality: Quality = "full" if confidence >= FULL_FROM else "preview"
        result = build_result(image, alpha, confidence, quality)
        context.progress(1.0)
        return result


def source(task: Task) -> DecodedImage:
    """Return the image of a task; raises `UnusableInput` if it cannot be read."""
    path = task.files.get("image_url") or task.files.get("image")
    if path is None:
        raise EngineError("image_url is required.")
    return decode.decode(path)


def build_result(image: DecodedImage, alpha: Array, confidence: float, quality: Quality) -> Result:
    """Return the subject as a PNG with clean colors; its alpha is multiplied by that of the image."""
    rgb = edges.decontaminate(image.rgb, alpha)
    cover = np.rint(alpha * 255).astype(np.uint8)
    if image.alpha is not None:
        cover = np.rint(cover * (image.alpha / np.float32(255))).astype(np.uint8)
    # The removed background must not remain in the file.
    rgb = np.where(cover[..., None] > 0, rgb, np.uint8(0))
    info = {"width": image.width, "height": image.height}
    data = {"confidence": round(float(confidence), 3)}
    return Result((Artifact("image/png", encode.encode(rgb, cover, format="png"), info),), data, quality)
