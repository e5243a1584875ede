"""Generate the images of the README and the documentation with the models themselves: `make gallery`."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray

from sixfold.app import bootstrap
from sixfold.core.accounts import accounts
from sixfold.core.catalog.engines import Task
from sixfold.core.predictions.service import PredictionRequest
from sixfold.engines.image.scene import shapes
from sixfold.engines.image.scene.engine import SceneEngine
from sixfold.engines.video.engine import CameraEngine
from sixfold.settings import Settings

PICTURES = Path("docs/pictures")
IMAGES = {"lighthouse.webp": ("create_image", "a lighthouse at sunset over a calm sea", 1360, 768, 7)}
PROMPTS = [
    ("photoreal", "a red mug on a white background"),
    ("ra2", "portrait of a young woman with red hair"),
    ("ra2", "a blue cat with a red scarf"),
    ("photoreal", "a hamburger with fries"),
    ("ra2", "cyberpunk city street at night with neon signs in the rain"),
    ("photoreal", "a modern living room with a sofa and plants"),
    ("ra2", "isometric city"),
    ("ra2", "an astronaut riding a horse on the moon"),
    ("ra2", 'logo for a coffee shop called "Brew"'),
    ("ra2", "a wooden sign that says OPEN"),
    ("ra2", "the word HELLO in neon letters"),
    ("ra2", "five balloons in the sky"),
    ("ra2", "two kittens in a basket"),
    ("ra2", "a robot playing the piano"),
    ("ra2", "portrait of an old sailor"),
    ("photoreal", "a birthday cake with candles"),
]
VIDEOS = (
    "a red car drives through the desert at sunset",
    "a lighthouse above a stormy sea at dusk, slow pan left",
    "a knight rides a horse through a meadow, static camera",
    "snow falls on a village at night, crane shot up",
    "a campfire in the forest at night, embers rise, zoom in",
    "sakura petals drift over a garden, tracking shot right",
)
# Width and height of a frame, height of the text above each row, and number of frames per row.
FRAME, TITLE_PIXELS, FRAMES = (300, 168), 22, 4


class _NullContext:
    """Run context that ignores progress and logs."""

    def __init__(self, scratch: Path = Path()) -> None:
        self.scratch = scratch

    def progress(self, fraction: float) -> None:
        """Ignore the progress."""

    def log(self, line: str) -> None:
        """Ignore the line."""


def _sheet(name: str, prompts: list[tuple[str, str]], size: tuple[int, int], columns: int) -> None:
    """Write a grid of small images, one for each prompt, painted at three times their size."""
    cells = []
    for model, prompt in prompts:
        inputs = {"prompt": prompt, "width": size[0] * 3, "height": size[1] * 3, "seed": 11}
        result = SceneEngine().run(Task("gallery", model, inputs), _NullContext())
        image = cv2.imdecode(np.frombuffer(result.artifacts[0].data, np.uint8), cv2.IMREAD_COLOR)
        cells.append(cv2.resize(np.asarray(image), size, interpolation=cv2.INTER_AREA))
    cells += [np.full_like(cells[0], 255)] * (-len(cells) % columns)
    rows = [np.hstack(cells[at : at + columns]) for at in range(0, len(cells), columns)]
    _save(name, np.vstack(rows))


def sheets() -> None:
    """Write the grids of example prompts and of all subjects that the painter can draw."""
    _sheet("scene-asked.webp", PROMPTS, (280, 210), 4)
    subjects = [(name, shape) for name, shape in shapes.library().items() if shape.words]
    _sheet(
        "scene-subjects.webp", [("ra1", f"{name}, {s.home[0]}, noon") for name, s in subjects], (70, 70), 16
    )


def videos() -> None:
    """Write four frames of each example video, below its prompt."""
    rows = []
    for prompt in VIDEOS:
        with tempfile.TemporaryDirectory() as folder:
            inputs = {
                "prompt": prompt,
                "seed": 11,
                "duration": 4,
                "resolution": "480p",
                "aspect_ratio": "16:9",
            }
            result = CameraEngine().run(Task("gallery", "video-text", inputs), _NullContext(Path(folder)))
            with av.open(str(result.artifacts[0].path)) as container:
                frames = [frame.to_ndarray(format="bgr24") for frame in container.decode(video=0)]
        picks = np.linspace(0, len(frames) - 1, FRAMES).round().astype(int)
        row = np.hstack([cv2.resize(frames[pick], FRAME, interpolation=cv2.INTER_AREA) for pick in picks])
        title = np.full((TITLE_PIXELS, row.shape[1], 3), 255, np.uint8)
        cv2.putText(title, prompt, (4, 15), cv2.FONT_HERSHEY_SIMPLEX, 0.45, (40, 40, 40), 1, cv2.LINE_AA)
        rows += [title, row]
    _save("videos.webp", np.vstack(rows))


def _save(name: str, sheet: NDArray[Any]) -> None:
    data = cv2.imencode(".webp", sheet, [cv2.IMWRITE_WEBP_QUALITY, 60])[1].tobytes()
    (PICTURES / name).write_bytes(data)
    print(f"{PICTURES / name}  {len(data):,} bytes")


async def main() -> None:
    """Generate every image and write its bytes, including the manifest."""
    sheets()
    videos()
    with tempfile.TemporaryDirectory() as folder:
        async with bootstrap.running(bootstrap.build(Settings(data_dir=Path(folder)))) as product:
            owner = await product.database.write(accounts.create("gallery@localhost", operator=True))
            for name, (model, prompt, width, height, seed) in IMAGES.items():
                inputs = {"prompt": prompt, "width": width, "height": height, "seed": seed}
                request = PredictionRequest(owner.owner, model, inputs, "gallery", "req_gallery")
                result = await product.predictions.wait(await product.predictions.submit(request), 60)
                if result.output is None:
                    raise SystemExit(f"{name} failed: {result.error}")
                data = await product.blobs.get(result.output.files[0].blob)
                (PICTURES / name).write_bytes(data)
                print(f"{PICTURES / name}  {len(data):,} bytes")


if __name__ == "__main__":
    asyncio.run(main())
