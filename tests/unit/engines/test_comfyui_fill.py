"""Masked areas painted by a ComfyUI, against a loopback server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sixfold.core.catalog.engines import EngineError, Task, UnusableInput
from sixfold.engines.image.inpaint import fill_area
from sixfold.engines.image.output_format import OutputFormat
from tests.fakes.comfyui_nodes import InstalledFiles
from tests.unit.engines.engine_runs import pixels
from tests.unit.engines.test_comfyui import ComfySetup, comfy_setup

BOX = (700, 90, 760, 150)  # left, top, right, bottom of the mask, in an image of 900 x 200


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[ComfySetup]:
    async with comfy_setup(tmp_path) as result:
        yield result


def files(folder: Path, kind: str = "png") -> dict[str, Path]:
    """Return an image of one color in this format, and the mask."""
    Image.new("RGB", (900, 200), (200, 30, 30)).save(folder / f"image.{kind}", quality=100)
    mask = Image.new("L", (900, 200))
    mask.paste(255, BOX)
    mask.save(folder / "mask.png")
    return {"image": folder / f"image.{kind}", "mask": folder / "mask.png"}


@pytest.mark.parametrize("kind", ["png", "webp"])
async def test_only_the_masked_area_changes(setup: ComfySetup, kind: str) -> None:
    sent = files(setup.folder, kind)
    result = await setup.run("image-fill", sent, prompt="a blue boat", seed=1, grow=0, feather=4)
    assert result.artifacts[0].info == {"width": 900, "height": 200}
    image, before = pixels(result.artifacts[0]), np.asarray(Image.open(sent["image"]).convert("RGB"))
    changes = (image != before).any(axis=2)
    rows, columns = np.nonzero(changes)
    assert changes[BOX[1] : BOX[3], BOX[0] : BOX[2]].mean() > 0.9
    assert columns.min() >= BOX[0] - 4
    assert columns.max() < BOX[2] + 4
    assert rows.min() >= BOX[1] - 4
    assert rows.max() < BOX[3] + 4


async def test_masked_area_is_sampled_near_the_model_size(setup: ComfySetup) -> None:
    await setup.run("image-fill", files(setup.folder), prompt="a blue boat", seed=1)
    graph = setup.graph()
    assert graph["ImageScale"]["width"] * graph["ImageScale"]["height"] > 700 * 700
    assert graph["KSampler"]["denoise"] == 1.0
    assert graph["LoadImageMask"]["channel"] == "red"


async def test_error_names_missing_nodes_for_masks(tmp_path: Path) -> None:
    installed = InstalledFiles(lacking=frozenset({"SetLatentNoiseMask"}))
    async with comfy_setup(tmp_path, installed) as setup:
        with pytest.raises(EngineError, match="does not have nodes for masks: update it"):
            await setup.run("image-fill", files(tmp_path), prompt="a boat", seed=1)


async def test_unreadable_result_is_an_engine_error(setup: ComfySetup) -> None:
    sent = files(setup.folder)
    area = fill_area.prepare(Task("t", "image-fill", {}, sent))
    painted = setup.folder / "painted"
    painted.write_bytes(b"no image")
    with pytest.raises(EngineError, match="The model returned an image that cannot be read") as excinfo:
        area.finish(painted, OutputFormat())
    assert not isinstance(excinfo.value, UnusableInput)


async def test_unusable_mask_sends_no_request(setup: ComfySetup) -> None:
    sent = files(setup.folder)
    Image.new("L", (900, 200)).save(sent["mask"])
    with pytest.raises(UnusableInput, match="The mask is empty"):
        await setup.run("image-fill", sent, prompt="a boat", seed=1)
    assert not setup.comfy.history
