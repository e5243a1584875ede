"""The camera engine: decoded output, motion of the image, and no visible borders."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from sixfold.core.catalog.engines import Canceled, Task, UnusableInput
from sixfold.engines.video import camera_moves, encode, interpolate, parallax, yuv
from sixfold.engines.video import layers as video_layers
from sixfold.engines.video.engine import CameraEngine
from sixfold.settings import worker_environment
from tests.harness.cases import nightly_after
from tests.unit.engines.video import videos


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return videos.write_image(tmp_path_factory.mktemp("pictures") / "board.png")


@pytest.mark.parametrize(
    ("expected", "frames", "rate"),
    nightly_after(
        2,
        [
            ({"interpolator_model": "film", "num_interpolated_frames": 1}, 17, 32),
            ({"interpolator_model": "rife", "num_interpolated_frames": 3}, 33, 64),
            ({"interpolator_model": "none", "num_interpolated_frames": 4}, 9, 16),
            ({"interpolator_model": "film", "num_interpolated_frames": 0}, 9, 16),
            ({"num_frames": None, "duration": 0.5, "frames_per_second": 24}, 12, 24),
        ],
    ),
)
def test_frames_rate_and_length_are_exact(
    tmp_path: Path, source: Path, expected: dict[str, Any], frames: int, rate: int
) -> None:
    artifact, _ = videos.render(tmp_path, source, prompt="zoom in", **expected)
    assert artifact.path is not None
    video = videos.decode(artifact.path)
    assert (len(video.frames), video.rate) == (frames, rate)
    assert video.pixels == "yuv420p"
    assert video.size == (artifact.info["width"], artifact.info["height"]) == (720, 480)
    assert artifact.info["fps"] == rate
    assert artifact.info["duration"] == pytest.approx(video.seconds, abs=0.001)
    assert video.sound is None
    assert video.color_count == 1  # BT.709, as its header states


def test_index_precedes_the_media_data(tmp_path: Path, source: Path) -> None:
    artifact, _ = videos.render(tmp_path, source)
    assert artifact.path is not None
    data = artifact.path.read_bytes()
    assert data[4:8] == b"ftyp"
    assert 0 < data.index(b"moov") < data.index(b"mdat")


@pytest.mark.parametrize(
    ("aspect", "size"),
    nightly_after(2, [("auto", (720, 480)), ("16:9", (854, 480)), ("9:16", (480, 854)), ("1:1", (480, 480))]),
)
def test_other_aspect_ratio_is_cropped_to_the_center(
    tmp_path: Path, source: Path, aspect: str, size: tuple[int, int]
) -> None:
    artifact, _ = videos.render(tmp_path, source, aspect_ratio=aspect, num_frames=2, prompt="static camera")
    assert artifact.path is not None
    first = videos.decode(artifact.path).frames[0]
    assert first.shape[:2] == size[::-1]
    pixels = np.asarray(Image.open(source).convert("RGB"))
    scale = max(size[0] / pixels.shape[1], size[1] / pixels.shape[0])
    large = cv2.resize(pixels, (round(pixels.shape[1] * scale), round(pixels.shape[0] * scale)))
    left, top = (large.shape[1] - size[0]) // 2, (large.shape[0] - size[1]) // 2
    middle = large[top : top + size[1], left : left + size[0]]
    assert np.abs(first.astype(int) - middle).mean() < 4


# The image moves right when the camera moves left, and down when it moves up.
MOVES = [
    ("pan left", 1, 0),
    ("pan right", -1, 0),
    ("tilt up", 0, 1),
    ("tilt down", 0, -1),
    ("tracking shot left", 1, 0),
    ("slide right shot", -1, 0),
    ("crane shot up", 0, 1),
]


@pytest.mark.parametrize(("prompt", "right", "down"), nightly_after(3, MOVES))
def test_image_moves_opposite_to_the_camera(
    tmp_path: Path, source: Path, prompt: str, right: int, down: int
) -> None:
    artifact, data = videos.render(tmp_path, source, prompt=f"camera {prompt}", frames_per_second=4)
    assert data["camera"] != []
    assert artifact.path is not None
    frames = videos.decode(artifact.path).frames
    x, y = videos.flow(frames[2], frames[6])
    along, across = (x * right, y) if right else (y * down, x)
    assert along > 0.008
    assert abs(across) < along / 2


@pytest.mark.parametrize(
    ("prompt", "sign"),
    nightly_after(2, [("zoom in", 1), ("zoom out", -1), ("dolly in", 1), ("pull back", -1)]),
)
def test_zoom_changes_the_size(tmp_path: Path, source: Path, prompt: str, sign: int) -> None:
    artifact, _ = videos.render(tmp_path, source, prompt=prompt, frames_per_second=4)
    assert artifact.path is not None
    frames = videos.decode(artifact.path).frames
    assert videos.growth(frames[2], frames[6]) * sign > 0.4


def test_near_objects_move_more_than_far_ones() -> None:
    pose = camera_moves.CameraPose(shift_x=0.03)
    board = np.random.default_rng(1).integers(60, 200, (180, 320, 3), dtype=np.uint8)
    board = cv2.normalize(cv2.GaussianBlur(board, (0, 0), 4), videos.NOTHING, 40, 220, cv2.NORM_MINMAX)
    near = np.zeros((45, 80), np.float32)
    near[:, 40:] = 1.0
    stage = parallax.ParallaxStage(
        video_layers.separate(video_layers.SourceStill(board, near), (80, 45)), (320, 180), 1.3
    )
    here, there = (yuv.to_rgb(stage.frame(each)) for each in (camera_moves.CameraPose(), pose))
    dis = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)
    gray = [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in (here, there)]
    result = dis.calc(gray[0], gray[1], videos.NOTHING)[..., 0]
    assert np.median(result[:, 250:]) > 9
    assert abs(np.median(result[:, :70])) < 2


@pytest.mark.parametrize(
    "prompt",
    nightly_after(
        2,
        [
            "pan left fast",
            "tilt down",
            "orbit right fast",
            "dolly out",
            "drone shot",
            "crane shot down",
            "shaky camera",
        ],
    ),
)
def test_frames_have_no_border_and_no_black(tmp_path: Path, source: Path, prompt: str) -> None:
    artifact, _ = videos.render(tmp_path, source, prompt=prompt, frames_per_second=4)
    assert artifact.path is not None
    for frame in videos.decode(artifact.path).frames:
        assert frame.min() > 40
        edges = (frame[:, :3], frame[:, -3:], frame[:3], frame[-3:])
        assert all(edge.std() > 4 for edge in edges)


def test_hidden_background_is_filled_from_its_surroundings() -> None:
    board = np.full((180, 320, 3), (40, 120, 200), np.uint8)
    board[40:150, 130:190] = (220, 40, 30)
    front = np.zeros((180, 320), np.float32)
    front[40:150, 130:190] = 1
    near = np.where(cv2.resize(front, (80, 45)) > 0.5, 0.9, 0.1).astype(np.float32)
    layers = video_layers.separate(video_layers.SourceStill(board, near, (front,)), (80, 45))
    behind = yuv.to_rgb(layers[0].planes)
    assert np.abs(behind.astype(int) - (40, 120, 200)).max() < 12
    assert len(layers) == 2


def test_same_inputs_and_seed_give_the_same_bytes(tmp_path: Path) -> None:
    def film(name: str, seed: int) -> bytes:
        artifact, _ = videos.render(
            tmp_path / name, prompt="snow falls on a village at dusk", seed=seed, num_frames=4, sound=True
        )
        assert artifact.path is not None
        return artifact.path.read_bytes()

    first, second, other = film("a", 1), film("b", 1), film("c", 2)
    assert first == second
    assert first != other


ENCODED = """
import hashlib, sys
from fractions import Fraction
from pathlib import Path
import cv2, numpy as np
from sixfold.engines.video import encode, yuv
ramp = np.linspace(60, 250, 720)[None, :] - np.linspace(0, 40, 480)[:, None]
rgb = np.repeat(ramp.astype(np.uint8)[..., None], 3, axis=2)
path = Path(sys.argv[1])
with encode.VideoEncoder(path, (720, 480), Fraction(32)) as film:
    for step in range(9):
        film.add(yuv.of_rgb(np.roll(rgb, 2 * step, axis=1)))
print(hashlib.sha256(path.read_bytes()).hexdigest())
"""


@pytest.mark.nightly
def test_memory_contents_do_not_change_a_video(tmp_path: Path) -> None:
    def film(fill: int) -> str:
        environment = {**worker_environment(), "MALLOC_PERTURB_": str(fill)}
        command = [sys.executable, "-c", ENCODED, str(tmp_path / f"{fill}.mp4")]
        return subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout

    assert len({film(fill) for fill in (0, 85, 165, 255)}) == 1


@pytest.mark.parametrize(
    ("prompt", "moving"),
    nightly_after(
        2,
        [
            ("snow falls on a village", "snow"),
            ("a harbour in the rain", "rain"),
            ("sakura petals drift over a garden", "petals"),
            ("embers above a campfire", "sparks"),
            ("a lake at noon", "water"),
            ("a foggy forest", "mist"),
            ("a stormy sea", "lightning"),
        ],
    ),
)
def test_named_elements_move_with_a_static_camera(tmp_path: Path, prompt: str, moving: str) -> None:
    artifact, data = videos.render(
        tmp_path, prompt=f"{prompt}, static camera", num_frames=5, frames_per_second=4
    )
    assert moving in data["moving"]
    assert artifact.path is not None
    frames = videos.decode(artifact.path).frames
    assert np.abs(frames[0].astype(int) - frames[-1]).mean() > 0.15


def test_static_camera_gives_equal_frames(tmp_path: Path, source: Path) -> None:
    artifact, data = videos.render(tmp_path, source, prompt="static camera", num_frames=5)
    assert (data["camera"], data["moving"]) == ([[]], [])
    assert artifact.path is not None
    frames = videos.decode(artifact.path).frames
    assert np.abs(frames[1].astype(int) - frames[-1]).max() < 20


@pytest.mark.nightly
def test_video_has_a_stereo_track_of_equal_length(tmp_path: Path) -> None:
    artifact, data = videos.render(
        tmp_path, prompt="waves on a beach", num_frames=None, duration=1.5, frames_per_second=24, sound=True
    )
    assert artifact.path is not None
    video = videos.decode(artifact.path)
    assert video.sound is not None
    assert video.sound[:2] == (encode.AUDIO_RATE, 2)
    assert video.sound[2] == pytest.approx(1.5, abs=0.05)
    assert video.seconds == pytest.approx(1.5)
    assert "sea +0 dB" in data["sound"]


def test_progress_rises_per_frame_and_cancel_stops_between(tmp_path: Path, source: Path) -> None:
    recorder = videos.Recorder(tmp_path, cancel_at=0.5)
    inputs = {"prompt": "zoom in", "seed": 1, "num_frames": 40, "frames_per_second": 16, "resolution": "480p"}
    with pytest.raises(Canceled):
        CameraEngine().run(Task("t", "video-a", inputs, {"image_url": source}), recorder)
    assert recorder.fractions == sorted(recorder.fractions)
    assert 0.5 <= recorder.fractions[-1] < 0.56
    assert len(recorder.fractions) > 15


def test_unreadable_image_is_a_client_error(tmp_path: Path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 64)
    with pytest.raises(UnusableInput):
        videos.render(tmp_path, bad)


@pytest.mark.parametrize("size", [(40, 30), (1, 1), (3000, 60), (33, 900)])
def test_image_of_any_size_becomes_a_video(tmp_path: Path, size: tuple[int, int]) -> None:
    odd = videos.write_image(tmp_path / "odd.png", size)
    artifact, _ = videos.render(tmp_path, odd, prompt="orbit left", num_frames=3)
    assert artifact.path is not None
    assert len(videos.decode(artifact.path).frames) == 3


@pytest.mark.nightly
def test_memory_does_not_grow_with_length(tmp_path: Path, source: Path) -> None:
    def peak(frames: int) -> int:
        tracemalloc.start()
        videos.render(tmp_path, source, prompt="zoom in", num_frames=frames)
        result = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return result

    peak(3)
    # Only a few frames wait for the encoder, however long the video is.
    assert peak(60) < 1.25 * peak(6)


def test_interpolation_is_closer_to_the_original_than_blending(source: Path) -> None:
    rgb = cv2.resize(np.asarray(Image.open(source).convert("RGB")), (480, 320))
    stage = parallax.ParallaxStage(
        video_layers.separate(video_layers.SourceStill(rgb, np.full((80, 120), 0.5, np.float32)), (120, 80)),
        (480, 320),
        1.2,
    )
    first, truth, last = (
        yuv.to_rgb(stage.frame(camera_moves.CameraPose(pan_x=0.02 * step, zoom=1 + 0.01 * step)))
        for step in range(3)
    )
    result = next(interpolate.FrameInterpolator().frames(first, last, 1))
    blended = cv2.addWeighted(first, 0.5, last, 0.5, 0)

    def decibels(image: Any) -> float:
        return float(10 * np.log10(255**2 / ((image.astype(float) - truth) ** 2).mean()))

    assert decibels(result) > decibels(blended) + 4


def test_interpolated_frames_are_ordered_between_neighbors(source: Path) -> None:
    rgb = cv2.resize(np.asarray(Image.open(source).convert("RGB")), (480, 320))
    right = np.roll(rgb, 12, axis=1)
    frames = [rgb, *interpolate.FrameInterpolator().frames(rgb, right, 3), right]
    ways = [videos.flow(rgb, frame)[0] * 480 for frame in frames]
    assert ways == pytest.approx([0, 3, 6, 9, 12], abs=0.8)
    assert list(interpolate.FrameInterpolator().frames(rgb, right, 0)) == []
