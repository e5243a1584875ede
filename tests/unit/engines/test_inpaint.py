"""Inpainting: region, edge softness, continued textures and lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from bench import inpaint
from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines.image.inpaint import fill, masks, onnx
from sixfold.engines.image.inpaint.engine import InpaintEngine
from tests.unit.engines import engine_runs, onnx_tiny

SIDE = 128


def weave() -> Any:
    """A regular texture of stripes and checks."""
    rows, columns = np.indices((SIDE, SIDE))
    lit = 120 + 60 * np.sin(columns * np.pi / 8) + 40 * np.sign(np.sin(rows * np.pi / 12))
    return np.clip(np.dstack([lit, lit * 0.8, 255 - lit]), 0, 255).astype(np.uint8)


def spot(radius: int = 14, middle: tuple[int, int] = (64, 64)) -> Any:
    return cv2.circle(np.zeros((SIDE, SIDE), np.uint8), middle, radius, 255, -1)


def clean(folder: Path, picture: Any, mask: Any, **inputs: Any) -> Any:
    """Return the image after a run."""
    files = {
        "image": engine_runs.saved(folder / "i.png", picture),
        "mask": engine_runs.saved(folder / "m.png", mask),
    }
    artifact, result, _ = engine_runs.run(InpaintEngine(), folder, inputs, **files)
    assert (artifact.content_type, result.quality) == ("image/png", "preview")
    return engine_runs.pixels(artifact)


def test_object_is_removed_and_its_texture_continued(tmp_path: Path) -> None:
    truth, mask = weave(), spot()
    spoilt = truth.copy()
    spoilt[mask > 0] = (255, 0, 255)
    result = clean(tmp_path, spoilt, mask, grow=4, feather=2)
    inside = mask > 0
    assert engine_runs.psnr(result[inside], truth[inside]) > 15
    assert engine_runs.psnr(result[inside], spoilt[inside]) < 8
    assert result[inside].std() > 0.7 * truth[inside].std()


def facade(side: int) -> Any:
    """Windows in rows, each pane a little other than the next, lit from above."""
    rng, image = np.random.default_rng(7), np.full((side, side, 3), (176, 150, 128), np.float32)
    for top in range(6, side, 44):
        for left in range(5, side, 34):
            image[top - 2 : top + 28, left - 2 : left + 22] = 230
            image[top : top + 26, left : left + 20] = np.array((50, 62, 80)) * rng.uniform(0.85, 1.15)
            image[top + 13, left : left + 20] = 230
    return np.clip(image * np.linspace(0.9, 1.08, side)[:, None, None], 0, 255).astype(np.uint8)


def stripes(side: int) -> Any:
    """Slanting stripes of a fractional width."""
    rows, columns = np.indices((side, side))
    return np.where(
        (((columns * 0.8 + rows * 0.6) / 21.7) % 1 < 0.5)[..., None], (30, 60, 120), (230, 220, 190)
    )


def grid(side: int) -> Any:
    rows, columns = np.indices((side, side))
    return np.where(((rows % 31 < 2) | (columns % 37 < 2))[..., None], (40, 40, 60), (210, 220, 200))


def shade(side: int) -> Any:
    """Colors that change softly in both directions."""
    rows, columns = np.indices((side, side)) / side
    return np.dstack([80 + 120 * columns, 120 + 80 * rows, 200 - 60 * columns * rows])


@pytest.mark.parametrize(("drawn", "most"), [(facade, 12), (stripes, 12), (grid, 5), (shade, 4)])
def test_inpaint_continues_patterns_and_soft_shades(drawn: Any, most: float) -> None:
    truth = drawn(600).astype(np.uint8)
    hole = masks.make_hole(cv2.circle(np.zeros((600, 600), np.uint8), (310, 280), 62, 255, -1) > 0, 4, 2)
    spoilt = np.where(hole.mask[..., None], np.array((255, 0, 255), np.uint8), truth)
    result = fill.fill_hole(spoilt, hole)
    plain = cv2.inpaint(spoilt, hole.mask.astype(np.uint8), 4, cv2.INPAINT_TELEA)
    error, drawn_through = (
        float(np.sqrt(((tried[hole.mask].astype(float) - truth[hole.mask]) ** 2).mean()))
        for tried in (result, plain)
    )
    assert error < min(most, 0.7 * drawn_through)


def clouds(side: int) -> Any:
    """A sky with grain that darkens to one side, and a cloud."""
    rng, (rows, columns) = np.random.default_rng(5), np.indices((side, side)) / side
    cloud = 70 * np.exp(-((rows - 0.45) ** 2 + (columns - 0.5) ** 2) / 0.02)
    lit = np.dstack([60 + 90 * columns + cloud, 110 + 80 * columns + cloud, 170 + 50 * rows + 0.5 * cloud])
    return np.clip(lit + rng.normal(0, 4, (side, side, 1)), 0, 255).astype(np.uint8)


def storm(side: int) -> Any:
    """A soft sky: dark on the left, light above, with the grain of a photograph."""
    rng, (rows, columns) = np.random.default_rng(3), np.indices((side, side)) / side
    lit = 90 + 70 * np.tanh(3 * (columns - rows)) + 25 * np.sin(4 * rows + 2 * columns)
    return np.clip(np.dstack([lit, lit + 15, lit + 40]) + rng.normal(0, 0.8, (side, side, 1)), 0, 255)


@pytest.mark.parametrize("middle", [(150, 140), (150, 20)])
def test_hole_in_a_soft_sky_is_filled_without_creases(middle: tuple[int, int]) -> None:
    image = storm(300).astype(np.uint8)
    hole = masks.make_hole(cv2.circle(np.zeros((300, 300), np.uint8), middle, 50, 1, -1) > 0, 4, 3)
    spoilt = np.where(hole.mask[..., None], np.array((255, 0, 255), np.uint8), image)
    filled = fill.fill_hole(spoilt, hole)
    error = np.abs(filled[hole.mask].astype(int) - image[hole.mask])
    soft = cv2.GaussianBlur(filled, (0, 0), 2).astype(int)
    steps = np.maximum(np.abs(np.diff(soft, axis=0))[:, :-1], np.abs(np.diff(soft, axis=1))[:-1]).max(2)
    assert error.mean() < 8
    assert steps[hole.mask[:-1, :-1]].max() <= 3
    assert 0.4 < (filled - cv2.GaussianBlur(filled, (0, 0), 2).astype(float))[hole.mask].std() < 1.6


@pytest.mark.nightly
def test_filled_area_of_a_sky_has_no_visible_edge() -> None:
    image = clouds(500)
    hole = masks.make_hole(cv2.circle(np.zeros((500, 500), np.uint8), (250, 225), 95, 1, -1) > 0, 4, 3)
    filled = masks.blend(image, fill.fill_hole(image, hole), hole.cover)
    inside = cv2.erode(hole.mask.astype(np.uint8), np.ones((13, 13), np.uint8)) > 0
    assert np.abs(filled[inside].astype(int) - image[inside]).mean() > 5
    assert filled[inside].std(0).min() > 4
    assert inpaint.rim(filled, hole) < 3


def test_inpaint_changes_only_the_mask_with_grow_and_feather(tmp_path: Path) -> None:
    image = engine_runs.scenery((SIDE, SIDE))
    away = cv2.distanceTransform(255 - spot(), cv2.DIST_L2, 5)
    for grow, feather in ((0, 0), (8, 6), (20, 12)):
        result = clean(tmp_path, image, spot(), grow=grow, feather=feather)
        changes = np.abs(result.astype(int) - image).max(2) > 0
        assert not changes[away > grow + feather + 2].any()
    hard, soft = masks.make_hole(spot() > 0, 4, 0), masks.make_hole(spot() > 0, 4, 20)
    assert set(np.unique(hard.cover)) == {0.0, 1.0}
    assert 0.05 < ((soft.cover > 0) & (soft.cover < 1)).mean() < 0.9
    assert hard.cover[away <= 4].min() == soft.cover[away <= 4].min() == 1


def test_thin_line_is_removed_from_a_gradient(tmp_path: Path) -> None:
    truth = np.repeat(np.linspace(40, 220, SIDE)[None, :, None], SIDE, 0).repeat(3, 2).astype(np.uint8)
    mask = cv2.line(np.zeros((SIDE, SIDE), np.uint8), (10, 20), (118, 100), 255, 2)
    spoilt = truth.copy()
    spoilt[mask > 0] = 0
    result = clean(tmp_path, spoilt, mask, grow=1, feather=1)
    assert np.abs(result.astype(int) - truth).max() < 12


def test_equal_requests_give_equal_bytes(tmp_path: Path) -> None:
    first, second = (clean(tmp_path, weave(), spot(), grow=2) for _ in range(2))
    assert np.array_equal(first, second)


def test_masks_are_scaled_and_empty_or_full_ones_handled(tmp_path: Path) -> None:
    image = weave()
    image[spot() > 0] = 255
    small = cv2.resize(spot(), (SIDE // 2, SIDE // 2))
    assert (clean(tmp_path, image, small)[spot(8) > 0] < 255).any(1).all()
    assert np.array_equal(clean(tmp_path, image, np.zeros_like(spot())), image)
    with pytest.raises(UnusableInput, match="covers the whole image"):
        clean(tmp_path, image, np.full_like(spot(), 255))


def test_alpha_is_kept(tmp_path: Path) -> None:
    rgba = np.dstack([weave(), np.full((SIDE, SIDE), 90, np.uint8)])
    assert (clean(tmp_path, rgba, spot())[..., 3] == 90).all()


def test_model_fills_only_the_masked_area(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
    onnx_tiny.filler(tmp_path / "lama.onnx")
    engine = onnx.OnnxInpaintEngine(weights=str(tmp_path))
    image = weave() // 2
    files = {
        "image": engine_runs.saved(tmp_path / "i.png", image),
        "mask": engine_runs.saved(tmp_path / "m.png", spot()),
    }
    artifact, result, _ = engine_runs.run(engine, tmp_path, {"grow": 2, "feather": 0}, **files)
    output = engine_runs.pixels(artifact)
    assert (result.quality, engine.version) == ("full", "1/lama")
    assert output[spot(10) > 0].min() > 200
    assert np.array_equal(output[spot(30) == 0], image[spot(30) == 0])


def test_regular_stripes_in_a_smooth_image_are_filled() -> None:
    shading = np.tile(np.linspace(60, 200, 720).astype(np.uint8)[:, None], (720, 1, 3))
    stripes = np.tile(np.arange(720) % 20 < 15, (720, 1))
    filled = fill.fill_hole(shading, masks.make_hole(stripes, 0, 0))
    assert np.abs(filled.astype(int) - shading).max() < 12
