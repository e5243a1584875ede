"""Captions without a model, from measurements only."""

from __future__ import annotations

from sixfold.core.catalog.engines import Context, Result, Task, UnusableInput
from sixfold.engines import prompt_words
from sixfold.engines.image import decode
from sixfold.engines.image.caption import caption_text, measure


class CaptionEngine:
    """Describes `image_url` (or `image`) by its measurable properties."""

    name = "captioning"
    version = "2"

    def run(self, task: Task, context: Context) -> Result:
        """Return `text` and the measurements; the quality is `preview`, as objects are not recognized."""
        path = task.files.get("image_url") or task.files.get("image")
        if path is None:
            raise UnusableInput("image_url is required.")
        context.progress(0.05)
        facts = measure.measure(decode.decode(path))
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
        words = prompt_words.of_spans(prompt_words.fold(str(task.inputs.get("prompt") or "")), ())
        return Result(data=data, quality="preview", words=words)
