"""Compositing: a video's planes pass through unchanged, and both canvas formats show the same."""

from __future__ import annotations

from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sixfold.core.catalog import timeline
from sixfold.engines.video import encode, yuv
from sixfold.engines.video.decoder import VideoReader
from sixfold.engines.video.timeline import clip_timing, compositing
from sixfold.engines.video.timeline.compositing import FORMATS, Planes
from sixfold.engines.video.timeline.compositor import Compositor
from sixfold.engines.video.timeline.sprites import Sprite
from sixfold.engines.video.yuv import YuvPlanes

SIZE = (64, 48)


def make_texture(seed: int, size: tuple[int, int] = SIZE) -> np.ndarray[Any, Any]:
    across, down = np.meshgrid(np.arange(size[0]), np.arange(size[1]))
    parts = [128 + 90 * np.sin(across / (7 + seed + part) + down / 9 + part) for part in range(3)]
    return np.stack(parts, axis=-1).astype(np.uint8)


def to_rgb(canvas: Planes) -> np.ndarray[Any, Any]:
    if len(canvas) == 1:
        return canvas[0].astype(int)
    return yuv.to_rgb(YuvPlanes(canvas[0], np.dstack(canvas[1:]))).astype(int)


@pytest.fixture(scope="module")
def reel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a video with our own encoder."""
    path = tmp_path_factory.mktemp("reel") / "a.mp4"
    with encode.VideoEncoder(path, SIZE, Fraction(10)) as video:
        for number in range(4):
            video.add(make_texture(number))
    return path


@pytest.mark.parametrize(("fit", "box"), [("contain", {}), ("cover", {"width": 64, "height": 32})])
def test_video_without_overlays_is_unchanged(reel: Path, fit: str, box: dict[str, int]) -> None:
    clip = {"url": "a", "duration": 0.4, "fit": fit, **box}
    text = {"width": 64, "height": 48, "fps": 10, "tracks": [{"type": "video", "clips": [clip]}]}
    project = timeline.parse(timeline.without_urls(timeline.with_durations(timeline.check(text), {})))
    tracks = clip_timing.of(project, {timeline.file_name(0, 0): reel})
    top, rows = (8, 32) if box else (0, 48)
    with (
        closing(Compositor(project, tracks, SIZE, FORMATS["mp4"])) as stage,
        closing(VideoReader(reel)) as own,
    ):
        for second in (0.0, 0.1, 0.2, 0.3):
            expected = yuv.of_frame(own.at(second))
            for step, result, plane in zip((1, 2, 2), stage.frame(second), expected, strict=True):
                visible_rows = slice(0, rows // step), slice(top // step, (top + rows) // step)
                assert np.array_equal(result[visible_rows[0]], plane[visible_rows[1]])


PLACES = [(0, 0), (7, 4), (6, 5), (9, 11), (-5, -3), (50, 37)]


@pytest.mark.parametrize(("left", "top"), PLACES)
@pytest.mark.parametrize("opacity", [1.0, 0.4])
def test_sprite_is_equal_on_both_canvas_formats(left: int, top: int, opacity: float) -> None:
    pixels = make_texture(5, (21, 17))
    cover = np.broadcast_to(np.linspace(0, 255, 21).astype(np.uint8)[None, :, None], pixels.shape)
    weighed = (pixels * (cover / 255)).astype(np.uint8)
    for sprite in (Sprite(pixels, left, top), Sprite(weighed, left, top, np.ascontiguousarray(cover))):
        images = []
        for kind in ("gif", "mp4"):
            paper = FORMATS[kind]
            canvas = paper.fill(SIZE, (40, 80, 160))
            compositing.draw(paper, canvas, paper.layer(sprite), opacity)
            images.append(to_rgb(canvas))
        apart = np.abs(images[0] - images[1])
        assert apart.mean() < 2.5
        assert np.median(apart) <= 2
