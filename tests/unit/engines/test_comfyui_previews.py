"""Partial images of the engine on ComfyUI, several source images, and its queue."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from PIL import Image

from sixfold.core.gpu import run_clock
from sixfold.core.gpu.run_clock import RunClock
from tests.unit.engines.test_comfyui import ComfySetup, Context, comfy_setup, decode


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[ComfySetup]:
    async with comfy_setup(tmp_path) as built:
        yield built


@dataclass
class Watching(Context):
    """A context that records partial images."""

    images: list[bytes] = field(default_factory=list[bytes])

    def preview(self, image: bytes) -> None:
        self.images.append(image)


async def test_requested_number_of_previews_is_sent(setup: ComfySetup) -> None:
    setup.context = watching = Watching(setup.folder)
    await setup.run(prompt="a lake", width=64, height=64, seed=1, partial_images=3)
    assert len(watching.images) == 3
    assert all(Image.open(io.BytesIO(image)).format == "JPEG" for image in watching.images)
    watching.images.clear()
    await setup.run(prompt="a lake", width=64, height=64, seed=2)
    assert watching.images == []


async def test_several_images_are_uploaded_as_one_sheet(setup: ComfySetup) -> None:
    files = setup.file(Image.new("RGB", (96, 64), (200, 30, 30)))
    for number, size in enumerate([(64, 64), (32, 128)]):
        path = setup.folder / f"more{number}.png"
        Image.new("RGB", size, (30, 30, 200)).save(path)
        files[f"more_images.{number:03}"] = path
    result = await setup.run("style-transfer", files, style_prompt="ukiyo-e", format="png", seed=1)
    # At the height of the tallest, 128: 192 + 128 + 32 pixels wide.
    assert decode(result).size == (352, 128)


async def test_time_in_the_queue_of_comfyui_is_no_run_time(setup: ComfySetup) -> None:
    hold = setup.comfy.hold("KSampler")
    inputs = {"prompt": "a lake", "width": 64, "height": 64, "format": "png"}
    first = asyncio.create_task(setup.run(**inputs, seed=1))
    async with asyncio.timeout(60) as limit:
        await hold.reached.wait()
        clock = RunClock(limit)
        run_clock.current.set(clock)
        second = asyncio.create_task(setup.run(**inputs, seed=2))
        while not setup.comfy.pending:
            setup.comfy.change_event.clear()
            await setup.comfy.change_event.wait()
        hold.go.set()
        await asyncio.gather(first, second)
    assert clock.waited > 0
