"""Vectorization: rendering resembles the image, and each input changes the paths."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import cv2
import numpy as np
import pytest
from skimage.metrics import structural_similarity

from sixfold.core.provenance import embed
from sixfold.engines.image.vector import engine as vector
from sixfold.engines.image.vector.engine import VectorEngine
from tests.unit.engines import engine_runs

resvg = pytest.importorskip("resvg_py", reason="needs the extra `test`")


def vectorize(folder: Path, picture: Any, **inputs: Any) -> str:
    path = engine_runs.saved(folder / "in.png", picture)
    artifact, result, _ = engine_runs.run(VectorEngine(), folder, inputs, image=path)
    assert (artifact.content_type, result.quality) == ("image/svg+xml", "full")
    assert dict(artifact.info) == {"width": picture.shape[1], "height": picture.shape[0]}
    return artifact.data.decode()


def rasterize(svg: str) -> Any:
    """Return an SVG as RGBA pixels."""
    data = np.frombuffer(bytes(resvg.svg_to_bytes(svg_string=svg)), np.uint8)
    result = cv2.imdecode(data, cv2.IMREAD_UNCHANGED)
    assert result is not None
    return cv2.cvtColor(result, cv2.COLOR_BGRA2RGBA)


def color_count(svg: str) -> int:
    """Return the number of colors of the paths."""
    return len(set(re.findall(r'fill="(#\w+)"', svg)))


@pytest.mark.parametrize(
    ("preset", "least"), [("poster", 0.78), ("logo", 0.7), ("photo", 0.8), ("pixel", 0.65)]
)
def test_rendered_svg_resembles_the_image(tmp_path: Path, preset: str, least: float) -> None:
    image = engine_runs.scenery()
    svg = vectorize(tmp_path, image, preset=preset, speckle=4, color_precision=6)
    rendering = rasterize(svg)
    assert rendering.shape[:2] == image.shape[:2]
    alike: Any = structural_similarity(rendering[..., :3], image, channel_axis=2)
    assert alike > least
    assert ElementTree.fromstring(svg).tag.endswith("svg")  # noqa: S314 - our own file
    assert svg == vectorize(tmp_path, image, preset=preset, speckle=4, color_precision=6)


def test_precision_adds_colors_and_speckle_removes_details(tmp_path: Path) -> None:
    image = engine_runs.scenery()
    counts = [color_count(vectorize(tmp_path, image, color_precision=bits)) for bits in (3, 5, 8)]
    assert counts[0] < counts[1] < counts[2]
    speckled = image.copy()
    speckled[::24, ::24] = 255 - speckled[::24, ::24]
    paths = [
        vectorize(tmp_path, speckled, preset="photo", speckle=size).count("<path") for size in (0, 6, 64)
    ]
    assert paths[0] > paths[1] > paths[2]


def test_pixel_art_has_square_paths_and_gradients_keep_colors(tmp_path: Path) -> None:
    sky = np.linspace((240, 200, 160), (60, 90, 200), 64)[:, None].repeat(64, 1).astype(np.uint8)
    svg = vectorize(tmp_path, sky, preset="pixel", speckle=0)
    assert not re.search(r'd="[^"]*C', svg)
    assert color_count(vectorize(tmp_path, sky)) >= 12


def test_transparent_areas_are_omitted_and_large_size_is_kept(tmp_path: Path) -> None:
    rgba = np.dstack([engine_runs.scenery((64, 64)), np.zeros((64, 64), np.uint8)])
    rgba[16:48, 16:48, 3] = 255
    rendering = rasterize(vectorize(tmp_path, rgba, preset="logo"))
    assert rendering[32, 32, 3] == 255
    assert rendering[4, 4, 3] == 0
    wide = np.full((20, 1800, 3), 90, np.uint8)
    assert 'width="1800" height="20" viewBox="0 0 1600 18"' in vectorize(tmp_path, wide)
    assert "<path" not in vectorize(tmp_path, np.zeros((8, 8, 4), np.uint8))


@pytest.mark.parametrize("preset", list(vector.PRESETS))
def test_an_image_of_one_pixel_keeps_its_color(tmp_path: Path, preset: str) -> None:
    svg = vectorize(tmp_path, np.full((1, 1, 3), (200, 30, 30), np.uint8), preset=preset)
    assert 'fill="#C81E1E"' in svg


def test_svg_with_a_manifest_is_rendered_equally(tmp_path: Path) -> None:
    svg = vectorize(tmp_path, engine_runs.scenery((40, 40)))
    marked = embed.embed(svg.encode(), "image/svg+xml", '{"model":"vectorizer"}')
    assert embed.extract(marked) == '{"model":"vectorizer"}'
    assert np.array_equal(rasterize(marked.decode()), rasterize(svg))


def test_presets_equal_those_of_the_contract() -> None:
    assert set(vector.PRESETS) == {"poster", "logo", "photo", "pixel"}
