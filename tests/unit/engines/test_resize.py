"""Smart resize: exact sizes, the least destructive method, and protected subjects."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sixfold.core.catalog.engines import Task
from sixfold.engines.image import decode
from sixfold.engines.image.resize import canvas, seams
from sixfold.engines.image.resize.engine import ResizeEngine
from sixfold.engines.image.resize.plan import DetectedRegion, ResizePlan, find_region, plan
from tests.corpora import composites
from tests.unit.engines.engine_runs import RunContext


def scene(columns: tuple[int, int], size: tuple[int, int] = (120, 200)) -> np.ndarray:
    """Return a red block between two columns on an even gray background."""
    rgb = np.full((*size, 3), 140, np.uint8)
    rgb[30:90, columns[0] : columns[1]] = (200, 30, 30)
    return rgb


def saliency(
    box: tuple[float, float, float, float], heads: tuple[tuple[float, float, float, float], ...] = ()
) -> DetectedRegion:
    worth = np.zeros((100, 160), np.float32)
    worth[int(box[1] * 100) : int(box[3] * 100), int(box[0] * 160) : int(box[2] * 160)] = 1
    return DetectedRegion(worth, np.full((100, 160), 0.5, np.float32), box, heads)


@pytest.mark.parametrize(
    "size", [(200, 120), (120, 120), (60, 120), (400, 60), (16, 16), (4000, 17), (37, 211)]
)
def test_every_size_is_exact(size: tuple[int, int]) -> None:
    rgb = scene((150, 190))
    way = plan(find_region(rgb), (200, 120), size)
    assert canvas.apply(rgb, way, size).shape == (size[1], size[0], 3)
    assert canvas.apply(rgb[..., 0], way, size, fill=False).shape == (size[1], size[0])


def test_equal_aspect_ratio_is_only_scaled() -> None:
    assert plan(saliency((0.4, 0.4, 0.6, 0.6)), (160, 100), (320, 200)).method == "scale"


def test_a_crop_follows_its_subject() -> None:
    for low, high in ((0.05, 0.3), (0.4, 0.6), (0.7, 0.95)):
        way = plan(saliency((low, 0.2, high, 0.8)), (160, 100), (100, 100))
        assert way.method == "crop"
        assert way.box[0] <= low + 0.01
        assert way.box[2] >= high - 0.01


def test_two_subjects_apart_are_brought_together_by_seams() -> None:
    both = saliency((0.02, 0.2, 0.98, 0.8))
    both.importance[:, 30:130] = 0
    way = plan(both, (160, 100), (120, 100))
    assert way.method == "seam-carving"
    assert way.carved is not None
    assert way.carved.lost < 0.01


def test_image_with_a_face_is_extended_not_carved() -> None:
    box = (0.02, 0.2, 0.98, 0.8)
    both = saliency(box, ((0.05, 0.3, 0.2, 0.6),))
    both.importance[:, 30:130] = 0
    assert plan(both, (160, 100), (120, 100)).method == "extend"


def test_a_wide_subject_in_a_tall_shape_gets_more_canvas() -> None:
    way = plan(saliency((0.05, 0.3, 0.95, 0.7)), (160, 100), (90, 160))
    assert way.method == "extend"
    rgb = np.random.default_rng(1).integers(0, 255, (100, 160, 3), np.uint8)
    out = canvas.apply(rgb, way, (90, 160))
    mask = canvas.apply(np.full((100, 160), 255, np.uint8), way, (90, 160), fill=False)
    assert not mask[0].any()
    assert mask[80].all()
    assert out[0].any()


def test_seams_keep_the_column_order_and_important_areas() -> None:
    gray = np.full((40, 60), 0.5, np.float32)
    importance = np.zeros((40, 60), np.float32)
    importance[:, 20:40] = 1
    carved = seams.carve(gray, importance, 45)
    assert carved.columns.shape == (40, 45)
    assert (np.diff(carved.columns, axis=1) > 0).all()
    inside = (carved.columns * 60 > 20) & (carved.columns * 60 < 40)
    assert abs(inside.sum(1).mean() - 20) < 2
    assert carved.lost == 0


def test_off_center_subject_is_kept() -> None:
    known = composites.composite(7, "plain", (240, 400), share=0.5, at=0.2)
    way = plan(find_region(known.rgb), (400, 240), (240, 240))
    canvas_alpha = canvas.apply(known.alpha, way, (240, 240), fill=False)
    assert canvas_alpha.sum() > 0.95 * known.alpha.sum()


def test_an_extension_has_no_visible_seam() -> None:
    ramp = np.linspace(60, 200, 160)[None, :, None] + np.zeros((100, 160, 3))
    out = canvas.apply(ramp.astype(np.uint8), ResizePlan("extend"), (160, 220)).astype(int)
    steps = [abs(out[row + 1] - out[row]).mean() for row in range(50, 170)]
    assert max(steps) < 6


def test_extension_keeps_sky_above_ground() -> None:
    land = np.empty((100, 160, 3), np.uint8)
    land[:60], land[60:] = (90, 150, 220), (70, 120, 60)
    out = canvas.apply(land, ResizePlan("extend"), (480, 100)).astype(int)
    for column in (0, 80, 400, 479):
        assert abs(out[15, column] - (90, 150, 220)).max() < 20
        assert abs(out[90, column] - (70, 120, 60)).max() < 20


def run(
    folder: Path, image: Image.Image, kind: str, sizes: list[str]
) -> list[tuple[str, decode.DecodedImage]]:
    """Return the result for an image in a file of this format."""
    image.save(folder / "in", kind)
    task = Task("t", "smart-resize", {"target_sizes": sizes}, {"image_url": folder / "in"})
    result = ResizeEngine().run(task, RunContext(folder)).artifacts
    assert all(artifact.path is not None for artifact in result)
    return [(each.content_type, decode.decode(each.path)) for each in result if each.path is not None]


def test_format_and_alpha_of_a_file_are_kept(tmp_path: Path) -> None:
    image = Image.fromarray(composites.composite(1, "plain", (120, 200)).rgb)
    kinds = {kind: run(tmp_path, image, kind, ["64x64"])[0][0] for kind in ("JPEG", "WEBP", "PNG", "BMP")}
    assert kinds == {"JPEG": "image/jpeg", "WEBP": "image/webp", "PNG": "image/png", "BMP": "image/png"}
    image.putalpha(Image.new("L", image.size, 90))
    ((_, cut),) = run(tmp_path, image, "PNG", ["100x60"])
    assert cut.alpha is not None
    assert abs(int(cut.alpha.max()) - 90) <= 1


def test_equal_images_give_equal_bytes(tmp_path: Path) -> None:
    image = Image.fromarray(composites.composite(1, "textured", (120, 200)).rgb)
    first, second = (run(tmp_path, image, "PNG", ["64x64", "150x40"]) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert np.array_equal(one[1].rgb, other[1].rgb)


def test_larger_targets_cover_the_whole_size_without_a_border(tmp_path: Path) -> None:
    image = Image.fromarray(np.full((30, 40, 3), 255, np.uint8))
    ((_, large),) = run(tmp_path, image, "PNG", ["800x600"])
    assert (large.rgb == 255).all()
