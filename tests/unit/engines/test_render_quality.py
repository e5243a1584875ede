"""Quality inputs of images and videos from prompts without weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.catalog.engines import Task
from sixfold.engines.image.scene.engine import SceneEngine
from sixfold.engines.image.scene.finishing import RenderQuality
from sixfold.engines.video.engine import CameraEngine
from sixfold.settings import Settings
from tests.harness.cases import nightly_after
from tests.unit.engines import engine_runs
from tests.unit.engines.engine_runs import RunContext
from tests.unit.engines.video import videos

PICTURES = {"anime-image": 512, "fast-image-space": 256, "fast-image-native": 256}
CATALOGUE = app_catalog.catalog(Settings(), app_catalog.price_table(Settings()))


def paint(folder: Path, template: str, **fields: Any) -> Any:
    """Return a template's image from validated and translated inputs."""
    model = CATALOGUE[template]
    usual = {
        "prompt": "a village in spring",
        "seed": 3,
        "width": PICTURES[template],
        "height": PICTURES[template],
    }
    task = Task("t", template, {**model.for_engine(model.check({**usual, **fields})), "format": "png"})
    return engine_runs.pixels(SceneEngine().run(task, RunContext(folder)).artifacts[0]).astype(np.float32)


def fineness(picture: Any) -> float:
    return float(np.abs(picture - cv2.GaussianBlur(picture, (0, 0), 1.0)).mean())


def color(picture: Any) -> float:
    return float(np.ptp(picture, axis=2).mean())


@pytest.mark.parametrize("template", nightly_after(1, ["fast-image-space", "fast-image-native"]))
def test_more_steps_add_detail_to_an_image(tmp_path: Path, template: str) -> None:
    few, more = (fineness(paint(tmp_path, template, num_inference_steps=steps)) for steps in (1, 12))
    assert more > 1.1 * few


def test_each_step_changes_the_image() -> None:
    image = engine_runs.scenery((64, 64)).astype(np.float32) / 255
    images = {
        (RenderQuality(steps=n).apply(image) * 255).round().astype(np.uint8).tobytes() for n in range(1, 51)
    }
    assert len(images) == 50


@pytest.mark.nightly
def test_more_guidance_makes_colors_stronger(tmp_path: Path) -> None:
    quiet, usual, loud = (
        color(paint(tmp_path, "anime-image", guidance_scale=guidance)) for guidance in (1, 4, 8)
    )
    assert quiet < 0.95 * usual < 0.95 * loud


def film(folder: Path, **inputs: Any) -> tuple[Any, dict[str, Any]]:
    """Return the frames of a short text-to-video run and its data."""
    model = CATALOGUE["video-t2v"]
    usual = {"prompt": "a boat on a lake, the camera pans left", "num_frames": 17, "seed": 5}
    folder.mkdir()
    task = Task("t", "video-t2v", model.for_engine(model.check({**usual, **inputs})))
    result = CameraEngine(by_words=True).run(task, RunContext(folder))
    assert result.artifacts[0].path is not None
    return np.stack(videos.decode(result.artifacts[0].path).frames), dict(result.data)


@pytest.mark.nightly
def test_video_reuses_frames_with_little_visible_difference(tmp_path: Path) -> None:
    spared, response = film(tmp_path / "spared")
    full_video, plain = film(tmp_path / "whole", cache_accel=False)
    assert response["reused_frames"] == 8
    assert "reused_frames" not in plain
    assert not np.array_equal(spared, full_video)
    assert (
        min(
            engine_runs.psnr(first, second)
            for first, second in zip(spared[1::2], full_video[1::2], strict=True)
        )
        > 34
    )


@pytest.mark.nightly
def test_steps_and_guidance_change_a_text_to_video(tmp_path: Path) -> None:
    usual, _ = film(tmp_path / "usual")
    fine, _ = film(tmp_path / "fine", steps=50)
    loud, _ = film(tmp_path / "loud", guidance=10)
    assert fineness(fine[0].astype(np.float32)) > fineness(usual[0].astype(np.float32))
    assert color(loud[0].astype(np.float32)) > color(usual[0].astype(np.float32))
