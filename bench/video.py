"""Measure videos without weights: seconds per video, frames per second, interpolation and sound.

    .venv/bin/python -m bench video
    .venv/bin/python -m bench.video --sheet FILE.webp     draws four frames each of several videos

All run on one core, with OpenCV limited to one thread. Seconds are CPU time, so that other work on the
machine has little effect.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from bench.reporting import Row
from bench.style import painted
from sixfold.core.catalog.engines import Task
from sixfold.engines.audio.ambience import loudness, track
from sixfold.engines.audio.ambience.loop_buffer import RATE
from sixfold.engines.image.scene import prompt_parser
from sixfold.engines.image.scene.finishing import AS_IT_IS
from sixfold.engines.video import camera_moves, encode, interpolate, parallax, source_image, yuv
from sixfold.engines.video import layers as video_layers
from sixfold.engines.video.engine import CameraEngine

TITLE = "Videos, on one core"
HD = (1280, 720)
Array = NDArray[Any]

# A prompt, and the band in Hz that holds most of its sound's power.
SOUNDS = (
    ("a windy mountain pass", 20, 900),
    ("a blizzard on the tundra", 20, 900),
    ("waves on a beach", 40, 2500),
    ("the ocean at night", 40, 2500),
    ("a stream in spring", 300, 7000),
    ("a waterfall", 300, 7000),
    ("rain on a window", 600, 16000),
    ("a downpour in the jungle", 600, 16000),
    ("thunder", 20, 400),
    ("lightning over the plains", 20, 700),
    ("a campfire", 20, 8000),
    ("birds in a garden", 1500, 8000),
    ("birdsong at dawn", 1500, 8000),
    ("crickets in the grass", 3300, 5600),
    ("a crowded market", 150, 3500),
    ("an audience in a stadium", 150, 3500),
    ("city traffic", 20, 1500),
    ("a highway", 20, 1500),
    ("a coral reef", 20, 700),
    ("a teapot", 60, 1500),
)
SHEET = (
    ("a lighthouse above a stormy sea at dusk, slow pan left", 3),
    ("a fox in an autumn forest, orbit left", 5),
    ("mountain lake at sunrise, dolly in", 2),
    ("snow falls on a village at night, crane shot up", 4),
    ("a campfire in the desert at night, embers rise, zoom in", 9),
    ("sakura petals drift over a garden, tracking shot right", 6),
)


class _Quiet:
    """Run context with a folder, which ignores progress and logs."""

    def __init__(self, folder: str) -> None:
        self.scratch = Path(folder)

    def progress(self, fraction: float) -> None:
        """Ignore the progress."""

    def log(self, line: str) -> None:
        """Ignore the line."""


def _make(folder: str, source: Array | None, **inputs: Any) -> Path:
    files: dict[str, Path] = {}
    if source is not None:
        files["image_url"] = Path(folder) / "source.png"
        Image.fromarray(source).save(files["image_url"])
    task = Task("bench", "video-a", {"seed": 1, "resolution": "720p", **inputs}, files)
    path = CameraEngine().run(task, _Quiet(folder)).artifacts[0].path
    if path is None:
        raise SystemExit("no film was made")
    return path


def _film(name: str, source: Array | None, **inputs: Any) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        path = _make(folder, source, **inputs)
        seconds = time.process_time() - began
        with av.open(str(path), "r") as container:
            frames = container.streams.video[0].frames
        note = f"{frames} frames, {frames / seconds:.0f} a second, {path.stat().st_size / 2**20:.1f} MiB"
    return Row(name, seconds, "s", note=note)


def _stages() -> list[Row]:
    """Measure one frame of 1280 x 720 by stage."""
    rows: list[Row] = []
    photograph = source_image.from_image(painted(), HD)
    scene = source_image.paint(
        prompt_parser.parse("a fox in an autumn forest"), 1, HD, lambda _stage: None, AS_IT_IS
    )
    path = camera_moves.MovePath(camera_moves.parse("orbit left"), 5.0, 1)
    poses = [path.at(step / 23) for step in range(24)]
    frames: list[yuv.YuvPlanes] = []
    for name, still in (("a photograph", photograph), ("a painted scene", scene)):
        layers = video_layers.separate(still, parallax.grid(HD))
        stage = parallax.ParallaxStage(layers, HD, 1.1)
        began = time.process_time()
        frames = [stage.frame(pose) for pose in poses]
        each = (time.process_time() - began) / len(poses) * 1e3
        rows.append(Row(f"a frame of {name}", each, "ms", note=f"plates: {len(layers)}"))
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        with encode.VideoEncoder(Path(folder) / "film.mp4", HD, Fraction(24)) as film:
            for frame in frames:
                film.add(frame)
        rows.append(Row("a frame encoded", (time.process_time() - began) / len(frames) * 1e3, "ms"))
    return rows


def _decibels(found: Array, truth: Array) -> float:
    return float(10 * np.log10(255**2 / ((found.astype(np.float32) - truth) ** 2).mean()))


def _interpolation() -> list[Row]:
    """Compare interpolated frames with the true frames of a known motion with occlusion."""
    still = source_image.paint(
        prompt_parser.parse("a fox in an autumn forest"), 1, (854, 480), lambda _stage: None, AS_IT_IS
    )
    path = camera_moves.MovePath(camera_moves.parse("fast tracking shot left, zoom in"), 5.0, 1)
    stage = parallax.ParallaxStage(video_layers.separate(still, parallax.grid((854, 480))), (854, 480), 1.2)
    maker, ours, blended, seconds = interpolate.FrameInterpolator(), [], [], 0.0
    for begin in (0.2, 0.35, 0.5, 0.65):
        first, truth, last = (yuv.to_rgb(stage.frame(path.at(begin + step * 0.0125))) for step in range(3))
        began = time.process_time()
        ours.append(_decibels(next(maker.frames(first, last, 1)), truth))
        seconds += time.process_time() - began
        blended.append(_decibels(cv2.addWeighted(first, 0.5, last, 0.5, 0), truth))
    gain = float(np.mean(ours) - np.mean(blended))
    return [
        Row("interpolation, 854 x 480", float(np.mean(ours)), "dB", note=f"{gain:+.1f} dB over blending"),
        Row("interpolation, a frame", seconds / 4 * 1e3, "ms"),
    ]


def _sounds() -> list[Row]:
    right, levels, seconds = 0, [], 0.0
    for prompt, low, high in SOUNDS:
        began = time.process_time()
        sound = track.render(prompt, 5.0, 1)
        seconds += time.process_time() - began
        power = np.abs(np.fft.rfft(sound.mean(0))) ** 2
        hertz = np.fft.rfftfreq(sound.shape[1], 1 / RATE)
        right += bool(power[(hertz >= low) & (hertz < high)].sum() > 0.75 * power.sum())
        levels.append(loudness.integrated(sound))
    spread = f"{min(levels):.1f} to {max(levels):.1f} LUFS"
    return [
        Row("prompts whose sound is in its band", right, f"of {len(SOUNDS)}", note=spread),
        Row("five seconds of sound", seconds / len(SOUNDS), "s"),
    ]


def rows() -> list[Row]:
    """Run all measurements on one core."""
    threads = cv2.getNumThreads()
    cv2.setNumThreads(1)
    try:
        source = painted()
        usual = {"num_frames": 81, "frames_per_second": 16}
        between = {"interpolator_model": "film", "num_interpolated_frames": 1}
        return [
            _film("video-a, default inputs", source, prompt="slow pan left", **usual, **between),
            _film("video-a without interpolation", source, prompt="slow pan left", **usual),
            _film("a video from text, 720p, 5 s", None, prompt="a fox in an autumn forest", duration=5),
            *_stages(),
            *_interpolation(),
            *_sounds(),
        ]
    finally:
        cv2.setNumThreads(threads)


def sheet(target: Path) -> None:
    """Draw four frames of each video of `SHEET`, captioned with its prompt."""
    cell, caption = (400, 225), 22
    board = Image.new("RGB", (4 * cell[0], len(SHEET) * (cell[1] + caption)), "white")
    draw = ImageDraw.Draw(board)
    for row, (prompt, seed) in enumerate(SHEET):
        with tempfile.TemporaryDirectory() as folder:
            path = _make(folder, None, prompt=prompt, seed=seed, num_frames=49, frames_per_second=10)
            with av.open(str(path), "r") as container:
                frames = [frame.to_image() for frame in container.decode(video=0)]
        top = row * (cell[1] + caption)
        draw.text((8, top + 5), prompt, fill="black")
        for column in range(4):
            visible = frames[column * (len(frames) - 1) // 3].resize(cell, Image.Resampling.LANCZOS)
            board.paste(visible, (column * cell[0], top + caption))
    board.save(target, quality=82)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A contact sheet of films.")
    parser.add_argument("--sheet", type=Path, required=True)
    sheet(parser.parse_args().sheet)
