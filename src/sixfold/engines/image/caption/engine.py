"""A caption without a model: measured, and honest about it."""

from __future__ import annotations

from sixfold.core.catalog.engines import Context, Result, Task, UnusableInput
from sixfold.engines.image import decode
from sixfold.engines.image.caption import caption_text, measure


class CaptionEngine:
    """Says of `image_url` (or `image`) what can be measured."""

    name = "captioning"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        """`text`, and the facts that it is made of; `preview`: what an image means, nothing here knows."""
        path = task.files.get("image_url") or task.files.get("image")
        if path is None:
            raise UnusableInput("There is no picture to describe.")
        context.progress(0.05)
        facts = measure.measured(decode.decode(path))
        context.progress(0.9)
        palette = [
            {"name": color.name, "hex": color.hex, "share": round(color.share, 3)} for color in facts.palette
        ]
        boxes = [
            {name: round(getattr(face, name)) for name in ("left", "top", "right", "bottom")}
            for face in facts.faces
        ]
        data = {
            "text": caption_text.caption(facts),
            "kind": caption_text.kind(facts),
            "width": facts.width,
            "height": facts.height,
            "palette": palette,
            "brightness": round(facts.light, 3),
            "contrast": round(facts.contrast, 3),
            "colourfulness": round(facts.colorfulness, 3),
            "sharpness": round(facts.sharpness, 3),
            "faces": boxes,
            "lettering": facts.lettering,
        }
        return Result(data=data, quality="preview")
