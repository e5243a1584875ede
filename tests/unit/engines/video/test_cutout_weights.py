"""Video matting by tiny ONNX models: a recurrent one and an image model."""

from __future__ import annotations

import json
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sixfold.core.catalog.engines import EngineError, Task
from sixfold.engines.image.matting import selfcheck as test_pictures
from sixfold.engines.video import encode
from sixfold.engines.video.decoder import VideoReader
from sixfold.engines.video.matting import selfcheck
from tests.unit.engines import onnx_model, onnx_tiny
from tests.unit.engines.video.videos import Recorder

pytest.importorskip("onnxruntime", reason="the extra `onnx` is not installed")

from sixfold.engines.video.matting.onnx import OnnxVideoMattingEngine


def frame(at: int, ground: int = 128) -> Any:
    """Write a red square in front of gray; return its position."""
    rgb = np.full((48, 64, 3), ground, np.uint8)
    rgb[10:40, at : at + 20] = (250, 0, 0)
    return rgb


def test_recurrent_model_keeps_its_state_until_a_scene_cut(tmp_path: Path) -> None:
    masks = OnnxVideoMattingEngine(source=str(onnx_tiny.recurrent(tmp_path / "rvm.onnx"))).masks()
    first, second = masks.alpha(frame(10)), masks.alpha(frame(11))
    assert first[20, 20] == pytest.approx(0.49, abs=0.01)
    assert second[20, 20] == pytest.approx(0.99, abs=0.01)
    assert first[2, 2] == 0
    after = masks.alpha(frame(40, ground=10))
    assert after[20, 50] == pytest.approx(0.49, abs=0.01)


def test_video_cutout_keeps_size_and_reports_confidence(tmp_path: Path) -> None:
    source = tmp_path / "in.mp4"
    with encode.VideoEncoder(source, (64, 48), Fraction(10)) as video:
        for step in range(5):
            video.add(frame(10 + step))
    engine = OnnxVideoMattingEngine(source=str(onnx_tiny.recurrent(tmp_path / "rvm.onnx")))
    result = engine.run(
        Task("pred_1", "remove-background-video", {}, {"video_url": source}), Recorder(tmp_path)
    )
    (artifact,) = result.artifacts
    assert (artifact.content_type, artifact.info["width"], artifact.info["height"]) == ("video/webm", 64, 48)
    assert 0 <= result.data["confidence"] <= 1
    assert artifact.path is not None
    with closing(VideoReader(artifact.path)) as reel:
        pixels = reel.pixels(reel.at(0.1), (64, 48))
    assert pixels[3, 3, 3] < 90 < 200 < pixels[20, 22, 3]


def test_image_model_cuts_out_frames_with_stable_still_areas(tmp_path: Path) -> None:
    folder = tmp_path / "isnet-tiny"
    folder.mkdir()
    onnx_model.write(folder / "model.onnx", (1.0, -0.5, -0.5))
    (folder / "sixfold.json").write_text(json.dumps({"like": "isnet"}))
    engine = OnnxVideoMattingEngine(weights=str(tmp_path))
    assert not engine.recurrent
    masks = engine.masks()
    rng = np.random.default_rng(3)
    inputs = []
    for _ in range(3):
        noisy = np.clip(frame(20) + rng.normal(0, 4, (48, 64, 3)), 0, 255).astype(np.uint8)
        inputs.append(masks.alpha(noisy))
    assert inputs[2][20, 30] > 0.8 > 0.3 > inputs[2][2, 2]
    assert np.abs(inputs[2] - inputs[1]).mean() < 0.02


def test_new_weights_are_tested_and_useless_ones_refused(tmp_path: Path) -> None:
    good, blind = tmp_path / "good", tmp_path / "blind"
    good.mkdir()
    blind.mkdir()
    onnx_model.write(good / "isnet.onnx", (2.0, -1.0, -1.0), side=64)
    onnx_model.write(blind / "isnet.onnx", (0.0, 0.0, 0.0), bias=0.5, side=64)
    data, line = test_pictures.run(good)
    assert data.startswith(b"\x89PNG")
    assert "separates the subject" in line
    with pytest.raises(EngineError, match="does not separate a subject"):
        test_pictures.run(blind)
    onnx_tiny.recurrent(tmp_path / "rvm.onnx")
    _, line = selfcheck.run(tmp_path / "rvm.onnx")
    assert "keeps state" in line


def test_unfinished_download_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / ".unfinished-rvm"
    folder.mkdir()
    onnx_tiny.recurrent(folder / "rvm.onnx")
    with pytest.raises(EngineError, match="ONNX model not found"):
        OnnxVideoMattingEngine(weights=str(tmp_path))
