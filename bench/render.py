"""Measure a timeline rendered at 720p: frames per second, memory, and flicker of a cut-out subject.

.venv/bin/python -m bench render

The project has two videos of 1280 x 720 with a crossfade of a second, an image with alpha that fades in,
and a title; the output is MP4 with audio. The ffmpeg command line and moviepy, where installed, render the
same project with the same encoder, preset, quality and number of threads; they receive the title as an image.
All three decode on all cores.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from bench.reporting import Row, calibration
from sixfold.core.catalog import timeline
from sixfold.core.catalog.engines import Task
from sixfold.engines.image.matting import segmentation
from sixfold.engines.video import encode
from sixfold.engines.video.matting.masks import MaskTracker
from sixfold.engines.video.timeline import sprites, text
from sixfold.engines.video.timeline.engine import TimelineEngine

Array = NDArray[Any]

TITLE = "A timeline rendered at 1280 x 720"
HD, RATE = (1280, 720), 30
SECONDS, LONG = 12, 60
_THREADS = 2  # threads of the encoder, as in Sixfold
_QUALITY = ("-c:v", "libx264", "-preset", "veryfast", "-crf", "19", "-threads", str(_THREADS), "-c:a", "aac")


class _Context:
    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch

    def progress(self, fraction: float) -> None:
        """Ignore the progress."""

    def log(self, line: str) -> None:
        """Ignore the line."""


def films(folder: Path) -> None:
    """Write two videos of moving texture with a tone each, an image with alpha, and a sound."""
    rng = np.random.default_rng(1)
    for name, seconds in (("a", SECONDS / 2 + 1), ("b", SECONDS / 2 + 1)):
        board = cv2.resize(
            rng.integers(0, 255, (30, 60, 3), dtype=np.uint8), (1600, 900), interpolation=cv2.INTER_CUBIC
        )
        frames = round(seconds * RATE)
        tone = 0.3 * np.sin(np.arange(round(seconds * 48_000)) / 48_000 * 2 * np.pi * 330)
        wave = np.repeat(tone[None], 2, axis=0).astype(np.float32)
        with encode.VideoEncoder(
            folder / f"{name}.mp4", HD, Fraction(RATE), encode.AudioSource.of(wave)
        ) as film:
            for at in range(frames):
                film.add(np.ascontiguousarray(board[at // 3 : at // 3 + 720, at : at + 1280]))
    disc = np.zeros((240, 240, 4), np.uint8)
    cv2.circle(disc, (120, 120), 110, (240, 200, 40, 255), -1, cv2.LINE_AA)
    Image.fromarray(disc).save(folder / "logo.png")


def project(seconds: float) -> dict[str, Any]:
    """Return a project of `seconds`; in longer projects the videos alternate."""
    half = SECONDS / 2
    clips = [
        {
            "url": "ab"[number % 2],
            "start": number * half,
            "duration": half,
            **({"transition": {"type": "crossfade", "duration": 1}} if number else {}),
        }
        for number in range(round(seconds / half))
    ]
    logo = {"url": "logo", "duration": seconds, "x": 1000, "y": 40, "width": 240, "height": 240, "fade_in": 1}
    title = {"text": "A title that stays", "duration": seconds, "x": 60, "y": 600, "style": {"font_size": 60}}
    tracks = [("video", clips), ("image", [logo]), ("text", [title])]
    size = {"width": HD[0], "height": HD[1], "fps": RATE}
    return {**size, "tracks": [{"type": kind, "clips": visible} for kind, visible in tracks]}


def render_sixfold(folder: Path, seconds: float) -> None:
    whole = timeline.check(project(seconds))
    ends = {"a": "a.mp4", "b": "b.mp4", "logo": "logo.png"}
    files = {name: folder / ends[url] for name, url in timeline.urls(whole).items()}
    scratch = folder / "ours"
    scratch.mkdir(exist_ok=True)
    task = Task(
        "bench", "render", {"project": timeline.without_urls(timeline.with_durations(whole, {}))}, files
    )
    TimelineEngine().run(task, _Context(scratch))


def render_ffmpeg() -> list[str]:
    half = SECONDS / 2
    graph = (
        f"[0:v]trim=0:{half + 1}[a];[1:v]trim=0:{half}[b];[a][b]xfade=duration=1:offset={half}[ab];"
        f"[2:v]format=rgba,fade=in:d=1:alpha=1[logo];[ab][logo]overlay=1000:40:shortest=1[l];"
        f"[l][3:v]overlay=60:600:shortest=1,format=yuv420p[v];[0:a][1:a]acrossfade=d=1[s]"
    )
    stills = [
        part for name in ("logo", "title") for part in ("-loop", "1", "-r", str(RATE), "-i", f"{name}.png")
    ]
    command = ["ffmpeg", "-y", "-v", "error", "-i", "a.mp4", "-i", "b.mp4", *stills, "-filter_complex", graph]
    command += ["-map", "[v]", "-map", "[s]", "-t", str(SECONDS), *_QUALITY, "ffmpeg.mp4"]
    return command


def render_moviepy(folder: Path) -> None:
    moviepy = importlib.import_module("moviepy")
    vfx = moviepy.vfx

    half = SECONDS / 2
    first = moviepy.VideoFileClip(str(folder / "a.mp4")).subclipped(0, half + 1)
    second = moviepy.VideoFileClip(str(folder / "b.mp4")).subclipped(0, half).with_start(half)
    second = second.with_effects([vfx.CrossFadeIn(1)])
    logo = moviepy.ImageClip(str(folder / "logo.png"), duration=SECONDS).with_position((1000, 40))
    title = moviepy.ImageClip(str(folder / "title.png"), duration=SECONDS).with_position((60, 600))
    logo = logo.with_effects([vfx.CrossFadeIn(1)])
    whole = moviepy.CompositeVideoClip([first, second, logo, title], size=HD).with_duration(SECONDS)
    inputs = ["-crf", "19", "-pix_fmt", "yuv420p"]
    how: dict[str, Any] = {"preset": "veryfast", "threads": _THREADS, "ffmpeg_params": inputs}
    whole.write_videofile(str(folder / "moviepy.mp4"), fps=RATE, logger=None, **how)


_MOVIEPY = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from bench import render
render.render_moviepy(Path(sys.argv[2]))
"""


def _render_title(folder: Path) -> None:
    whole = timeline.parse(
        timeline.without_urls(timeline.with_durations(timeline.check(project(SECONDS)), {}))
    )
    result: sprites.Sprite = text.of(whole.tracks[2].clips[0], whole)
    cover = np.zeros_like(result.pixels[..., :1]) if result.cover is None else result.cover[..., :1]
    Image.fromarray(np.dstack([np.full_like(result.pixels, 255), cover])).save(folder / "title.png")


_ALONE = """
import sys
from pathlib import Path
from bench import render
render.render_sixfold(Path(sys.argv[1]), float(sys.argv[2]))
status = Path("/proc/self/status").read_text()  # a child's rusage begins with its parent's peak
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
"""


def _memory(folder: Path, seconds: float) -> Row:
    done = subprocess.run(
        [sys.executable, "-c", _ALONE, str(folder), str(seconds)], check=True, capture_output=True, text=True
    )
    return Row(f"peak memory, {seconds:g} s of video", int(done.stdout) / 1024, "MiB")


# A child's rusage starts with the peak of its parent, so a small process starts the measured one.
_WATCHED = """
import os, sys
child = os.spawnvp(os.P_NOWAIT, sys.argv[1], sys.argv[1:])
_, status, used = os.wait4(child, 0)
print(used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def _peer(name: str, folder: Path, command: Sequence[str]) -> list[Row]:
    """Run a peer in a separate process; return its speed and peak memory."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _WATCHED, *command], cwd=folder, check=True, capture_output=True, text=True
    )
    seconds = time.perf_counter() - began
    note = f"{SECONDS} s of video in {seconds:.1f} s"
    peak = int(done.stdout.split()[-1]) / 1024
    return [
        Row(name, SECONDS * RATE / seconds, "frames/s", note=note),
        Row(f"{name}: peak memory", peak, "MiB"),
    ]


def _measure_time(name: str, make: Callable[[], None]) -> Row:
    began = time.perf_counter()
    make()
    seconds = time.perf_counter() - began
    return Row(name, SECONDS * RATE / seconds, "frames/s", note=f"{SECONDS} s of video in {seconds:.1f} s")


def _flicker() -> list[Row]:
    """Return the change of a still subject's mask between frames under film grain."""
    rng = np.random.default_rng(2)
    still = np.full((360, 640, 3), (185, 190, 200), np.float32)
    cv2.circle(still, (320, 180), 110, (180, 60, 40), -1, cv2.LINE_AA)
    frames = [np.clip(still + rng.normal(0, 5, still.shape), 0, 255).astype(np.uint8) for _ in range(18)]
    masks = MaskTracker()
    carried = [masks.alpha(frame) for frame in frames]
    alone = [segmentation.alpha(frame)[0] for frame in frames]
    results = [
        float(np.mean([np.abs(one - other).mean() for one, other in itertools.pairwise(remaining)]))
        for remaining in (carried, alone)
    ]
    note = f"{results[1] * 1000:.2f} where each frame is cut alone"
    return [Row("flicker of a still subject's mask", results[0] * 1000, "‰ of alpha", note=note)]


def rows() -> list[Row]:
    """Return frames per second beside the peers, memory by length, and flicker."""
    result = calibration()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        films(folder)
        _render_title(folder)
        result.append(_measure_time("Sixfold", lambda: render_sixfold(folder, SECONDS)))
        if shutil.which("ffmpeg"):
            result += _peer("ffmpeg, command line", folder, render_ffmpeg())
        if importlib.util.find_spec("moviepy"):
            result += _peer("moviepy", folder, [sys.executable, "-c", _MOVIEPY, str(Path.cwd()), str(folder)])
        result += [_memory(folder, SECONDS), _memory(folder, LONG)]
    return result + _flicker()
