"""Masked areas painted by tiny random pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sixfold.core.catalog.engines import UnusableInput
from tests.unit.engines.diffusers.conftest import Listener, Weights, open_engine, pixels, task

pytestmark = pytest.mark.weights

HOLE = (slice(30, 60), slice(620, 660))  # rows, columns


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """An image of 700 x 80 pixels, wider than the area of a small mask, and a mask near its right end."""
    ramp = np.tile(np.linspace(0, 255, 700, dtype=np.uint8), (80, 1))
    Image.fromarray(np.dstack([ramp, ramp[:, ::-1], np.full_like(ramp, 90)])).save(tmp_path / "image.png")
    marked = np.zeros((80, 700), np.uint8)
    marked[HOLE] = 255
    Image.fromarray(marked).save(tmp_path / "mask.png")
    return {"image": tmp_path / "image.png", "mask": tmp_path / "mask.png"}


def fill(engine: Any, files: dict[str, Path], **inputs: Any) -> np.ndarray[Any, Any]:
    return pixels(
        engine.run(task("image-fill", files, grow=0, feather=4, format="png", **inputs), Listener())
    )


@pytest.mark.parametrize("name", ["sd", "sdxl", "flux"])
def test_only_the_masked_area_changes(weights: Weights, files: dict[str, Path], name: str) -> None:
    engine = open_engine(weights, name)
    before = np.asarray(Image.open(files["image"]))
    image = fill(engine, files)
    assert image.shape == before.shape
    changes = (image != before).any(axis=2)
    rows, columns = np.nonzero(changes)
    assert changes[HOLE].mean() > 0.9
    assert (rows.min() >= 26, rows.max() < 64, columns.min() >= 616, columns.max() < 664) == (True,) * 4


def test_fill_depends_on_prompt_and_seed(engine: Any, files: dict[str, Path]) -> None:
    first = fill(engine, files)
    assert (fill(engine, files) == first).all()
    assert (fill(engine, files, prompt="a blue boat")[HOLE] != first[HOLE]).any()
    assert (fill(engine, files, seed=8)[HOLE] != first[HOLE]).any()


def test_transparent_pixels_of_a_mask_are_filled(engine: Any, files: dict[str, Path], tmp_path: Path) -> None:
    image = fill(engine, files)
    alpha = 255 - np.asarray(Image.open(files["mask"]))
    Image.fromarray(np.dstack([np.zeros((80, 700, 3), np.uint8), alpha])).save(tmp_path / "alpha.png")
    other = files | {"mask": tmp_path / "alpha.png"}
    assert (fill(engine, other, mask_by="transparency") == image).all()


def test_empty_mask_is_refused(engine: Any, files: dict[str, Path], tmp_path: Path) -> None:
    Image.new("L", (700, 80)).save(tmp_path / "black.png")
    with pytest.raises(UnusableInput, match="The mask is empty"):
        fill(engine, files | {"mask": tmp_path / "black.png"})
