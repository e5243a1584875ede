"""GIFs of videos: colors of moving and static regions, without flicker."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageSequence

from sixfold.core.catalog import timeline
from sixfold.core.catalog.engines import Task
from sixfold.engines.encode.engine import EncodeEngine
from sixfold.engines.video.encode import VideoEncoder
from sixfold.engines.video.gif import MAX_COLORS, write_gif
from sixfold.engines.video.timeline.engine import TimelineEngine
from tests.harness.cases import nightly_after
from tests.unit.engines.video.videos import Recorder

Array = NDArray[Any]
Factory = Callable[[Path, Path], Path]
WIDTH, HEIGHT, FRAMES = 480, 270, 25
RATE = Fraction(25, 2)
SIDE = 16


def landscape() -> Array:
    """Return a smooth background of about ten thousand muted colors."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    channels = (40 + x * 120 // WIDTH, 60 + y * 100 // HEIGHT, 90 + (x + y) * 60 // (WIDTH + HEIGHT))
    return np.stack(channels, -1).astype(np.uint8)


def texture() -> Array:
    """Return a rough background like a photograph of gravel, in browns and greens."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    grain = np.random.default_rng(11).normal(0, 14, (HEIGHT, WIDTH))
    tone = 110 + 40 * np.sin(x / 37) * np.cos(y / 23) + grain
    return np.clip(np.stack([tone * 0.95, tone, tone * 0.55], -1), 0, 255).astype(np.uint8)


def with_square(ground: Array, color: tuple[int, int, int], number: int) -> Array:
    frame = ground.copy()
    left = 8 + number * (WIDTH - SIDE - 16) // FRAMES // 2 * 2
    frame[60 : 60 + SIDE, left : left + SIDE] = color
    return frame


def moving_square(path: Path, ground: Array, color: tuple[int, int, int]) -> Path:
    """Return the frames of a small square that moves over a background."""
    with VideoEncoder(path, (WIDTH, HEIGHT), RATE, None) as video:
        for number in range(FRAMES):
            video.add(with_square(ground, color, number))
    return path


def render(folder: Path, video: Path) -> Path:
    clip = {"url": "v", "width": WIDTH, "height": HEIGHT, "duration": float(FRAMES / RATE)}
    tracks = [{"type": "video", "clips": [clip]}]
    project = timeline.check({"width": WIDTH, "height": HEIGHT, "fps": float(RATE), "tracks": tracks})
    files = dict.fromkeys(timeline.urls(project), video)
    project = timeline.without_urls(timeline.with_durations(project, {}))
    task = Task("t", "render", {"project": project, "format": "gif"}, files)
    (result,) = TimelineEngine().run(task, Recorder(folder)).artifacts
    assert result.path is not None
    return result.path


def encode(folder: Path, video: Path) -> Path:
    task = Task("t", "media-encode", {"operation": "gif", "width": WIDTH}, {"media": video})
    (result,) = EncodeEngine().run(task, Recorder(folder)).artifacts
    assert result.path is not None
    return result.path


def decode(path: Path) -> list[Array]:
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def error(first: Array, second: Array) -> float:
    """Return the mean difference of two regions, in levels."""
    return float(np.abs(first.astype(int) - second.astype(int)).mean())


SCENES = {"gradient": (landscape, (255, 20, 230), 3.0), "gravel": (texture, (20, 90, 255), 5.0)}


@pytest.mark.parametrize("scene", nightly_after(1, SCENES))
@pytest.mark.parametrize("make", [render, encode])
def test_gif_keeps_the_colors_of_moving_and_still_parts(tmp_path: Path, make: Factory, scene: str) -> None:
    ground, color, limit = SCENES[scene]
    video = moving_square(tmp_path / "video.mp4", ground(), color)
    frames, true = decode(make(tmp_path, video)), decode(video)
    assert len(frames) == len(true) == FRAMES
    for number, (frame, original) in enumerate(zip(frames, true, strict=True)):
        left = 8 + number * (WIDTH - SIDE - 16) // FRAMES // 2 * 2
        square = np.s_[62 : 58 + SIDE, left + 2 : left + SIDE - 2]
        assert error(frame[square], original[square]) < 8
        assert error(frame[90:], original[90:]) < limit


@pytest.mark.parametrize("make", nightly_after(1, [render, encode]))
def test_the_background_of_a_gif_does_not_flicker(tmp_path: Path, make: Factory) -> None:
    video = moving_square(tmp_path / "video.mp4", landscape(), (255, 20, 230))
    frames = np.stack(decode(make(tmp_path, video)))[:, 100:]
    moved = np.abs(np.diff(frames.astype(int), axis=0)).max(axis=3) > 0
    assert moved.mean() < 0.002


@pytest.mark.parametrize("make", nightly_after(1, [render, encode]))
def test_the_same_video_gives_the_same_gif(tmp_path: Path, make: Factory) -> None:
    video = moving_square(tmp_path / "video.mp4", texture(), (255, 20, 20))
    first = make(tmp_path, video).read_bytes()
    assert make(tmp_path, video).read_bytes() == first


def write(folder: Path, frames: list[Array], rate: int = 10) -> Path:
    path = folder / "written.gif"
    write_gif(path, (WIDTH, HEIGHT), Fraction(rate), lambda: iter(frames))
    return path


def test_an_object_seen_in_the_last_frames_only_keeps_its_color(tmp_path: Path) -> None:
    ground = landscape()
    spot = ground.copy()
    spot[200:206, 300:306] = (250, 240, 0)
    frames = decode(write(tmp_path, [ground] * 30 + [spot] * 2))
    assert error(frames[31][200:206, 300:306], spot[200:206, 300:306]) < 4
    assert (frames[0][:190] == frames[31][:190]).all()


def test_a_still_region_of_exact_colors_is_exact_in_every_frame(tmp_path: Path) -> None:
    ground = np.full((HEIGHT, WIDTH, 3), (17, 99, 201), np.uint8)
    ground[:, WIDTH // 2 :] = (240, 238, 230)
    frames = [with_square(ground, (255, 0, 0), number) for number in range(FRAMES)]
    gif_frames = decode(write(tmp_path, frames))
    assert all((frame == true).all() for frame, true in zip(gif_frames, frames, strict=True))


@pytest.mark.nightly
def test_each_scene_has_a_palette_of_its_own(tmp_path: Path) -> None:
    ground = landscape()
    turns = [ground, 255 - ground, ground[..., ::-1] // 2, ground[..., [1, 2, 0]] // 2 + 120]
    frames = [turn for turn in turns for _ in range(8)]
    path = write(tmp_path, frames)
    assert max(error(*pair) for pair in zip(decode(path), frames, strict=True)) < 2.5
    with Image.open(path) as image:
        for frame, true in zip(ImageSequence.Iterator(image), frames, strict=True):
            assert error(np.asarray(frame.convert("RGB")), true) < 2.5


@pytest.mark.nightly
def test_short_flash_shares_the_palette_of_its_scene(tmp_path: Path) -> None:
    ground = landscape()
    frames = [ground, 255 - ground] * 10
    gif_frames = decode(write(tmp_path, frames, rate=50))
    assert max(error(*pair) for pair in zip(gif_frames, frames, strict=True)) < 4
    assert (
        len(np.unique(np.concatenate([frame.reshape(-1, 3) for frame in gif_frames]), axis=0)) <= MAX_COLORS
    )


def test_noise_of_a_still_background_is_not_shown(tmp_path: Path) -> None:
    ground, rng = landscape().astype(int), np.random.default_rng(5)
    frames = [(ground + rng.integers(-1, 2, ground.shape)).astype(np.uint8) for _ in range(12)]
    gif_frames = decode(write(tmp_path, frames))
    assert all((frame == gif_frames[0]).all() for frame in gif_frames)


@pytest.mark.nightly
def test_memory_does_not_grow_with_the_number_of_frames(tmp_path: Path) -> None:
    ground = landscape()

    def peak(count: int) -> int:
        def frames() -> Iterator[Array]:
            for number in range(count):
                yield with_square(ground, (255, 0, 0), number % FRAMES)

        tracemalloc.start()
        write_gif(tmp_path / "long.gif", (WIDTH, HEIGHT), Fraction(10), frames)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(2)
    assert peak(60) < 1.1 * peak(12) + 500_000
