"""Remake the pictures of the README and the docs with the product itself: `make gallery`."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import cv2
import numpy as np

from sixfold.app import bootstrap
from sixfold.core.accounts import accounts
from sixfold.core.catalog.engines import Task
from sixfold.core.predictions.service import PredictionRequest
from sixfold.engines.image.scene import shapes
from sixfold.engines.image.scene.engine import SceneEngine
from sixfold.settings import Settings

PICTURES = Path("docs/pictures")
WANTED = {
    "lighthouse.webp": ("create_image", "a lighthouse at sunset over a calm sea", 1360, 768, 7),
}
ASKED = [
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


class _Quiet:
    """A context that nobody asks."""

    scratch = Path()  # this engine writes no file

    def progress(self, fraction: float) -> None:
        """Take no note."""

    def log(self, line: str) -> None:
        """Say nothing."""


def _sheet(name: str, prompts: list[tuple[str, str]], size: tuple[int, int], columns: int) -> None:
    """Small pictures of many prompts, side by side."""
    cells = []
    for model, prompt in prompts:
        inputs = {"prompt": prompt, "width": size[0] * 2, "height": size[1] * 2, "seed": 11}
        result = SceneEngine().run(Task("gallery", model, inputs), _Quiet())
        picture = cv2.imdecode(np.frombuffer(result.artifacts[0].data, np.uint8), cv2.IMREAD_COLOR)
        cells.append(cv2.resize(np.asarray(picture), size, interpolation=cv2.INTER_AREA))
    cells += [np.full_like(cells[0], 255)] * (-len(cells) % columns)
    rows = [np.hstack(cells[at : at + columns]) for at in range(0, len(cells), columns)]
    data = cv2.imencode(".webp", np.vstack(rows), [cv2.IMWRITE_WEBP_QUALITY, 78])[1].tobytes()
    (PICTURES / name).write_bytes(data)
    print(f"{PICTURES / name}  {len(data):,} bytes")


def sheets() -> None:
    """What the painter makes of much that is asked for, and every thing that it draws."""
    _sheet("scene-asked.webp", ASKED, (320, 240), 4)
    drawn = [(name, shape) for name, shape in shapes.library().items() if shape.words]
    _sheet(
        "scene-subjects.webp", [("ra1", f"{name}, {s.home[0]}, noon") for name, s in drawn], (105, 105), 16
    )


async def main() -> None:
    """Order every picture and keep its bytes, manifest included."""
    sheets()
    with tempfile.TemporaryDirectory() as folder:
        async with bootstrap.running(bootstrap.build(Settings(data_dir=Path(folder)))) as product:
            owner = await product.database.write(accounts.create("gallery@localhost", operator=True))
            for name, (model, prompt, width, height, seed) in WANTED.items():
                inputs = {"prompt": prompt, "width": width, "height": height, "seed": seed}
                order = PredictionRequest(owner.owner, model, inputs, "gallery", "req_gallery")
                result = await product.predictions.wait(await product.predictions.submit(order), 60)
                if result.output is None:
                    raise SystemExit(f"{name} was not made: {result.error}")
                data = await product.blobs.get(result.output.files[0].blob)
                (PICTURES / name).write_bytes(data)
                print(f"{PICTURES / name}  {len(data):,} bytes")


if __name__ == "__main__":
    asyncio.run(main())
