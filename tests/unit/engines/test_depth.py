"""Depth: heuristic and model estimates, maps and parallax videos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image.depth import heuristic, maps
from sixfold.engines.video.depth_effects import DepthEngine, OnnxDepthEngine
from tests.unit.engines import engine_runs, onnx_model, onnx_tiny
from tests.unit.engines.video import videos


def landscape() -> Any:
    """Write an image of sky, ground and an object."""
    rgb = np.empty((144, 192, 3), np.float32)
    rgb[:70] = np.linspace((120, 170, 230), (200, 215, 235), 70)[:, None]
    rng = np.random.default_rng(2)
    rgb[70:] = np.array((90, 120, 60)) + rng.normal(0, 14, (74, 192, 1))
    cv2.circle(rgb, (96, 88), 26, (200, 40, 30), -1)
    return np.clip(rgb, 0, 255).astype(np.uint8)


def run_depth(folder: Path, engine: Any, **inputs: Any) -> Any:
    """Return the result of a run on the landscape."""
    return engine_runs.run(engine, folder, inputs, image=engine_runs.saved(folder / "in.png", landscape()))


def test_object_is_nearer_than_ground_and_sky_is_far() -> None:
    near = heuristic.nearness(landscape())
    assert near.shape == (144, 192)
    assert near[90, 96] > near[80, 10] + 0.2
    assert near[90, 96] > near[10, 96] + 0.5
    assert near[140, 10] > near[74, 10]
    assert near[:30].max() < 0.35


def test_each_map_is_a_png_of_image_size_that_strength_changes(tmp_path: Path) -> None:
    seen = {}
    for effect in maps.MAPS:
        weak, strong = (run_depth(tmp_path, DepthEngine(), effect=effect, strength=s)[0] for s in (0.2, 1.0))
        seen[effect] = [engine_runs.pixels(each).astype(int) for each in (weak, strong)]
        assert (weak.content_type, dict(weak.info)) == ("image/png", {"width": 192, "height": 144})
    for weak, strong in (seen["depth"], seen["heatmap"]):
        assert strong.std() > 1.2 * weak.std()
    gray = seen["depth"][1]
    assert (gray[..., 0] == gray[..., 1]).all()
    assert np.ptp(seen["heatmap"][1], axis=2).max() > 100


def test_normals_have_unit_length_and_surface_direction() -> None:
    x = np.linspace(-1, 1, 96, dtype=np.float32)
    ball = np.sqrt(np.clip(0.8 - x[None] ** 2 - x[:, None] ** 2, 0, 1))
    directions = maps.normals(ball, 0.4).astype(float) / 127.5 - 1
    assert np.abs(np.linalg.norm(directions, axis=2) - 1).max() < 0.02
    # The surface right of the center faces right.
    assert directions[48, 70, 0] > 0.2 > -0.2 > directions[48, 25, 0]
    # The surface above the center faces up.
    assert directions[25, 48, 1] > 0.2 > -0.2 > directions[70, 48, 1]
    assert directions[48, 48, 2] > 0.98


def test_parallax_is_a_looping_video_of_the_requested_length(tmp_path: Path) -> None:
    source = engine_runs.saved(tmp_path / "in.png", cv2.GaussianBlur(landscape(), (0, 0), 2))
    wish = {"effect": "parallax", "strength": 1.0, "seconds": 1}
    artifact, result, _ = engine_runs.run(DepthEngine(), tmp_path, wish, image=source)
    assert (artifact.content_type, result.quality) == ("video/mp4", "preview")
    assert artifact.path is not None
    video = videos.decode(artifact.path)
    assert len(video.frames) == 24
    assert video.frames[0].shape == (144, 192, 3)
    gaps = [np.abs(frame.astype(int) - video.frames[0]).mean() for frame in video.frames]
    assert gaps[-1] < 0.6 * max(gaps)
    weak, _, _ = engine_runs.run(DepthEngine(), tmp_path, {**wish, "strength": 0.1}, image=source)
    assert weak.path is not None
    still = videos.decode(weak.path).frames
    assert max(np.abs(frame.astype(int) - still[0]).mean() for frame in still) < 0.7 * max(gaps)


def test_depth_model_runs_at_its_own_size(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")
    onnx_model.write(tmp_path / "depth.onnx", (1.0, 0.0, 0.0), side="n")
    engine = OnnxDepthEngine(weights=str(tmp_path), side=70)
    artifact, result, _ = run_depth(tmp_path, engine, effect="depth", strength=0.55)
    gray = engine_runs.pixels(artifact)[..., 0].astype(int)
    assert (result.quality, engine.version) == ("full", "1/depth")
    # A red object is near for this model, which reads the red channel.
    assert gray[88, 96] > gray[110, 20] + 60
    fixed = onnx_model.write(tmp_path / "fixed.onnx", (0.0, 0.0, 1.0), side=28)
    gray = engine_runs.pixels(run_depth(tmp_path, OnnxDepthEngine(source=str(fixed)), effect="depth")[0])[
        ..., 0
    ]
    assert int(gray[20, 96]) > int(gray[130, 96])
    other = onnx_tiny.enlarger(tmp_path / "large.onnx", 2)
    with pytest.raises(EngineError, match="is not a depth model"):
        run_depth(tmp_path, OnnxDepthEngine(source=str(other), side=56), effect="depth")
