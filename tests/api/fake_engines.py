"""Fake engine of minimal images, so that API tests do not wait for rendering."""

from __future__ import annotations

import hashlib
import io
import threading
import time
from typing import Any

from msgspec.structs import replace
from PIL import Image

from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task

_ENCODINGS = {"png": "PNG", "webp": "WEBP", "jpeg": "JPEG"}
_SMALL = 300
_NEVER = threading.Event()


class DotEngine:
    """Engine of one color by prompt and seed; `FAIL` in a prompt fails, `SLOW` waits to be canceled.

    `LATE` takes a fifth of a second. Large images are small files that claim the requested size.
    """

    name = "dot"
    version = "1"

    def run(self, task: Task, context: Context) -> Result:
        inputs = task.inputs
        prompt = str(inputs.get("prompt", inputs.get("style_prompt", "")))
        context.log(f"painting for {task.model}")
        self.obey_prompt(prompt, context)
        sizes = [tuple(map(int, str(size).split("x"))) for size in inputs.get("target_sizes", ())]
        if sizes:
            dots = [self._dot({"width": w, "height": h}, prompt, at) for at, (w, h) in enumerate(sizes)]
            return Result(tuple(replace(dot, info={**dot.info, "method": "crop"}) for dot in dots))
        count = int(inputs.get("num_images", 1))
        return Result(tuple(self._dot(inputs, prompt, number) for number in range(count)))

    def obey_prompt(self, prompt: str, context: Context) -> None:
        if "FAIL" in prompt:
            raise EngineError("The paint has run out")
        ends = time.monotonic() + (60 if "SLOW" in prompt else 0.2 if "LATE" in prompt else 0)
        while time.monotonic() < ends:
            context.progress(0.5)
            _NEVER.wait(0.005)

    def _dot(self, inputs: Any, prompt: str, number: int) -> Artifact:
        width, height = int(inputs.get("width", 32)), int(inputs.get("height", 32))
        digest = hashlib.sha256(f"{prompt}|{inputs.get('seed')}|{number}".encode()).digest()
        size = (width, height) if max(width, height) <= _SMALL else (16, 16)
        image = Image.new("RGB", size, (digest[0], digest[1], digest[2]))
        file = io.BytesIO()
        kind = str(inputs.get("format", "png"))
        image.save(file, _ENCODINGS[kind])
        info: dict[str, Any] = {"width": width, "height": height}
        # Metadata of a video; rendering its frames would only take time.
        if "frames_per_second" in inputs:
            info |= {"duration": 1.0, "fps": inputs["frames_per_second"]}
        return Artifact(f"image/{kind}", file.getvalue(), info)
