"""Several source images on one sheet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sixfold.core.catalog.engines import Task, UnusableInput
from sixfold.engines.image import sheet


@dataclass
class Scratch:
    """A context with a folder."""

    scratch: Path

    def progress(self, fraction: float) -> None: ...

    def log(self, line: str) -> None: ...


def task(folder: Path, *sizes: tuple[int, int], mode: str = "RGB") -> Task:
    """Return a task with images of these sizes, each in a different gray."""
    files: dict[str, Path] = {}
    for number, size in enumerate(sizes):
        path = folder / f"{number}.webp"
        Image.new("L", size, 40 * number).convert(mode).save(path, lossless=True)
        files[sheet.SOURCE if not number else f"more_images.{number - 1:03}"] = path
    return Task("t", "style-transfer", {}, files)


def test_single_image_is_unchanged(tmp_path: Path) -> None:
    alone = task(tmp_path, (30, 20))
    assert sheet.merge(alone, Scratch(tmp_path)) is alone


def test_images_of_a_row_have_one_height_and_their_order(tmp_path: Path) -> None:
    merged = sheet.merge(task(tmp_path, (30, 20), (40, 40)), Scratch(tmp_path))
    assert list(merged.files) == [sheet.SOURCE]
    with Image.open(merged.files[sheet.SOURCE]) as image:
        pixels = np.asarray(image)
    assert pixels.shape == (40, 100, 3)
    assert (pixels[20, 10, 0], pixels[20, 90, 0]) == (0, 40)


@pytest.mark.parametrize("count", [5, 16])
def test_many_images_have_several_rows_and_a_limited_size(tmp_path: Path, count: int) -> None:
    merged = sheet.merge(task(tmp_path, *[(800, 800)] * count), Scratch(tmp_path))
    with Image.open(merged.files[sheet.SOURCE]) as image:
        width, height = image.size
    assert max(width, height) == 2048
    assert height > width / 2


def test_unreadable_image_is_refused(tmp_path: Path) -> None:
    broken = task(tmp_path, (30, 20), (30, 20))
    broken.files["more_images.000"].write_bytes(b"nothing")
    with pytest.raises(UnusableInput):
        sheet.merge(broken, Scratch(tmp_path))
