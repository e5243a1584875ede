"""The scene engine: paints encoded images from a prompt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import Artifact, Context, EngineError, Result, Task
from sixfold.engines.image.output_format import OutputFormat
from sixfold.engines.image.scene import noise, painter, prompt_parser
from sixfold.engines.image.scene.canvas import Image
from sixfold.engines.image.scene.finishing import RenderQuality

_SMALLEST, _LARGEST = 64, 4096
_PAINT_MIN, _PAINT_MAX = 256, 1536
_STAGES = 7
# Random streams are seeded as in version 2, so that images remain the same.
_STREAMS = "2"


def _paint_size(height: int, width: int) -> tuple[int, int]:
    """Return the requested size, limited to the range in which a scene can be painted."""
    short, long = min(height, width), max(height, width)
    scale = 1.0
    if short < _PAINT_MIN:
        scale = min(_PAINT_MIN / short, _PAINT_MAX / long)
    elif long > _PAINT_MAX:
        scale = _PAINT_MAX / long
    return max(48, round(height * scale)), max(48, round(width * scale))


def _enlarge(small: NDArray[Any], height: int, width: int, seed: int) -> NDArray[Any]:
    """Enlarge in strips, with sharpened edges and fine grain at full size."""
    large = cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)
    grain = noise.stream(seed, "grain").integers(-5, 6, (512, 512), dtype=np.int16)
    for top in range(0, height, 512):
        low, high = max(0, top - 8), min(height, top + 520)
        strip = large[low:high]
        soft = cv2.GaussianBlur(strip, (0, 0), 1.4 * width / small.shape[1] / 1.5)
        sharp = cv2.addWeighted(strip, 1.55, soft, -0.55, 0)[top - low : top - low + 512]
        tiles = np.tile(grain, (1, -(-width // 512)))[: sharp.shape[0], :width, None]
        large[top : top + sharp.shape[0]] = np.clip(sharp.astype(np.int16) + tiles, 0, 255).astype(np.uint8)
    return large


def _fit(image: Image, height: int, width: int, seed: int) -> NDArray[Any]:
    pixels = cv2.cvtColor(cv2.convertScaleAbs(image, alpha=255.0), cv2.COLOR_RGB2BGR)
    if pixels.shape[:2] == (height, width):
        return pixels
    if pixels.shape[0] > height:
        return cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)
    return _enlarge(pixels, height, width, seed)


def _encode(image: NDArray[Any], output: OutputFormat) -> bytes:
    options = {
        "png": [cv2.IMWRITE_PNG_COMPRESSION, 1],
        "webp": [cv2.IMWRITE_WEBP_QUALITY, output.quality],
        "jpeg": [cv2.IMWRITE_JPEG_QUALITY, output.quality],
    }
    if output.name not in options:
        return output.encode(np.ascontiguousarray(image[..., ::-1]))
    ok, data = cv2.imencode(f".{output.name}", image, options[output.name])
    if not ok:
        message = f"The image could not be encoded as {output.name}"
        raise EngineError(message)
    return data.tobytes()


def _size(value: object, name: str) -> int:
    size = int(value) if isinstance(value, (int, float)) else 1024
    if not _SMALLEST <= size <= _LARGEST:
        message = f"{name} must be from {_SMALLEST} to {_LARGEST}"
        raise EngineError(message)
    return size


class SceneEngine:
    """Paints a prompt without weights; the same inputs produce the same bytes on every machine."""

    name = "scene-painter"
    version = "10"

    def run(self, task: Task, context: Context) -> Result:
        """Paint `num_images` images of the prompt."""
        inputs = task.inputs
        prompt = str(inputs.get("prompt") or "")
        scene = prompt_parser.parse(prompt, str(inputs.get("negative_prompt") or ""))
        width, height = _size(inputs.get("width", 1024), "width"), _size(inputs.get("height", 1024), "height")
        output = OutputFormat.of(inputs)
        seeds = _seeds(int(inputs.get("seed") or 0), max(1, int(inputs.get("num_images") or 1)))
        artifacts = []
        for index, seed in enumerate(seeds):
            image = _paint(scene, task, seed, (height, width), _steps(context, index, len(seeds)))
            data = _encode(image, output)
            artifacts.append(Artifact(output.content_type, data, {"width": width, "height": height}))
        context.progress(1.0)
        return Result(tuple(artifacts), _record(scene, seeds), "preview", words=scene.words)


def _paint(
    scene: prompt_parser.ParsedScene,
    task: Task,
    seed: int,
    size: tuple[int, int],
    step: Callable[[str], None],
) -> NDArray[Any]:
    key = noise.stable_seed("scene", _STREAMS, task.model, seed, scene.prompt)
    image = painter.paint(scene, task.model, key, _paint_size(*size), step, RenderQuality.of(task.inputs))
    return _fit(image, *size, key)


def _seeds(first: int, count: int) -> list[int]:
    return [first, *(noise.stable_seed("image", first, i) % 2**31 for i in range(1, count))]


def _steps(context: Context, index: int, count: int) -> Callable[[str], None]:
    """Return a callback that reports the overall progress after each stage."""
    done = 0

    def step(_name: str) -> None:
        nonlocal done
        done += 1
        context.progress((index + min(0.98, done / _STAGES)) / count)

    return step


def _record(scene: prompt_parser.ParsedScene, seeds: list[int]) -> dict[str, Any]:
    return {"scene": scene.recognized(), "seeds": seeds}
