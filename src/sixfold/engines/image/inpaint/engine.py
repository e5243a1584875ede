"""Inpainting without weights."""

from __future__ import annotations

from collections.abc import Callable

from sixfold.core.catalog.engines import Artifact, Context, Quality, Result, Task
from sixfold.engines.image import encode
from sixfold.engines.image.decode import DecodedImage
from sixfold.engines.image.inpaint import fill, masks
from sixfold.engines.image.inpaint.masks import MaskHole, Pixels

Fill = Callable[[Pixels, MaskHole], Pixels]


class InpaintEngine:
    """Fills the white parts of `mask` in `image`, grown by `grow` pixels and softened by `feather` pixels."""

    name = "inpainter"
    version = "4"

    def run(self, task: Task, context: Context) -> Result:
        """Return a PNG of the image's size; pixels outside the soft edge are unchanged."""
        return run(task, context, fill.fill_hole, "preview")


def run(task: Task, context: Context, fill_in: Fill, quality: Quality) -> Result:
    """Run an inpainting task with a function that fills the hole."""
    image, hole = masks.read(task)
    context.progress(0.1)
    rgb = image.rgb
    if hole is None:
        context.log("the mask has no white area: the image is unchanged")
    else:
        rgb = masks.blend(rgb, fill_in(rgb, hole), hole.cover)
    context.progress(0.9)
    return Result((_artifact(image, rgb),), {}, quality)


def _artifact(image: DecodedImage, rgb: Pixels) -> Artifact:
    data = encode.encode(rgb, image.alpha, format="png")
    return Artifact("image/png", data, {"width": image.width, "height": image.height})
