"""Measure converted videos beside ffmpeg's: bytes at equal similarity, similarity and seconds.

FFMPEG=/path/to/ffmpeg .venv/bin/python -m bench encoding

Four clips are made from lossless photographs of scikit-image: panned, zoomed, with noise, and behind a
moving object. Two are videos of the camera engine. ffmpeg runs with its defaults for each format. Because
the output of `media-encode` has another similarity, the source is also encoded at a higher and a lower
quality, and the size at ffmpeg's similarity is interpolated.
"""

from __future__ import annotations

import math
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import skimage.data
from msgspec.structs import replace
from numpy.typing import NDArray

from bench.reporting import Row
from sixfold.core.catalog.engines import Task
from sixfold.engines.encode import presets, probe, transcode
from sixfold.engines.video.encode import MP4, VideoEncoder, VideoKind
from sixfold.engines.video.engine import CameraEngine

TITLE = "Converted videos of three seconds"
Array = NDArray[Any]
_SIZE, _RATE, _FRAMES = (640, 360), Fraction(24), 72
_LOSSLESS = replace(MP4, options={"preset": "ultrafast", "qp": "0"})
_QUALITIES = {"mp4": (20, 23, 26), "webm": (27, 32, 37)}
_EVERY = 3  # frames whose similarity is measured


def _warp(image: Array, center: tuple[float, float], width: float) -> Array:
    scale = _SIZE[0] / width
    shift = [_SIZE[0] / 2 - scale * center[0], _SIZE[1] / 2 - scale * center[1]]
    matrix = np.array([[scale, 0, shift[0]], [0, scale, shift[1]]])
    return cv2.warpAffine(image, matrix, _SIZE, flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT)


def _move(
    image: Array,
    path: tuple[tuple[float, float], tuple[float, float]],
    widths: tuple[float, float],
    noise: float,
) -> Iterator[Array]:
    """Yield the frames of a pan or zoom over an image, with gray noise."""
    rng = np.random.default_rng(1)
    for at in np.linspace(0, 1, _FRAMES):
        center = (np.interp(at, (0, 1), [x for x, _ in path]), np.interp(at, (0, 1), [y for _, y in path]))
        frame = _warp(image, center, float(np.interp(at, (0, 1), widths))).astype(np.float32)
        frame += rng.normal(0, noise, (*frame.shape[:2], 1)) if noise else 0
        yield np.clip(np.rint(frame), 0, 255).astype(np.uint8)


def _object() -> Iterator[Array]:
    """Yield the frames of a disc with a cat that moves before a cup."""
    scene = _warp(skimage.data.coffee(), (300, 200), 600)
    disc = cv2.resize(skimage.data.chelsea()[40:240, 150:350], (150, 150), interpolation=cv2.INTER_AREA)
    y, x = np.mgrid[:150, :150] - 75
    inside = (x * x + y * y < 70 * 70)[..., None]
    for index in range(_FRAMES):
        frame = scene.copy()
        left, top = 20 + 6 * index, 100 + int(60 * math.sin(index / 8))
        part = frame[top : top + 150, left : left + 150]
        part[:] = np.where(inside, disc, part)
        yield frame


def _engine(prompt: str, folder: Path) -> Path:
    """Return a video of the camera engine."""

    class Quiet:
        scratch = folder

        def progress(self, fraction: float) -> None:
            """Ignore the progress."""

        def log(self, line: str) -> None:
            """Ignore the line."""

    inputs = {
        "prompt": prompt,
        "duration": 3,
        "resolution": "480p",
        "aspect_ratio": "16:9",
        "fps": 24,
        "seed": 7,
    }
    (result,) = CameraEngine().run(Task("b", "video-c", inputs, {}), Quiet()).artifacts
    assert result.path is not None
    return result.path


def _photographs() -> Mapping[str, Callable[[], Iterator[Array]]]:
    data: Any = skimage.data
    return {
        "coffee, pan": lambda: _move(data.coffee(), ((200, 180), (400, 220)), (380, 380), 0),
        "chelsea, zoom, noise 4": lambda: _move(data.chelsea(), ((230, 150), (250, 120)), (440, 220), 4),
        "motorcycle, pan, noise 2": lambda: _move(
            data.stereo_motorcycle()[0], ((200, 150), (560, 300)), (400, 400), 2
        ),
        "cat before coffee": _object,
    }


def planes(path: Path) -> list[Array]:
    """Return the luma of every third frame."""
    with av.open(str(path)) as container:
        frames = [frame.to_ndarray()[: frame.height] for frame in container.decode(video=0)]
    return [frame.astype(np.float32) for frame in frames[::_EVERY]]


def _similarity(left: Array, right: Array) -> float:
    def blur(pixels: Array) -> Array:
        return np.asarray(cv2.GaussianBlur(pixels, (11, 11), 1.5))[5:-5, 5:-5]

    means = blur(left), blur(right)
    both = means[0] * means[1]
    spread = blur(left * left) + blur(right * right) - means[0] ** 2 - means[1] ** 2
    similar = (2 * both + 6.5025) * (2 * (blur(left * right) - both) + 58.5225)
    return float((similar / ((means[0] ** 2 + means[1] ** 2 + 6.5025) * (spread + 58.5225))).mean())


def score(source: list[Array], path: Path) -> float:
    return float(np.mean([_similarity(*pair) for pair in zip(source, planes(path), strict=True)]))


def _convert(source: Path, name: str, crf: int, target: Path) -> float:
    """Convert a file as `media-encode` does, at the quality `crf`; return the duration in seconds."""

    def kind_of(size: tuple[int, int], frames: int) -> VideoKind:
        kind, _ = presets.kind(name, size, frames)
        return replace(kind, options={**kind.options, "crf": str(crf)})

    begun = time.perf_counter()
    transcode.transcode(probe.part(source, {}), kind_of, target, lambda shape: shape, lambda _fraction: None)
    return time.perf_counter() - begun


def rows_of(name: str, source: Path, folder: Path, program: str) -> Iterator[Row]:
    truth = planes(source)
    for format_, qualities in _QUALITIES.items():
        peer, target = folder / f"peer.{format_}", folder / f"own.{format_}"
        begun = time.perf_counter()
        command = [program, "-v", "error", "-y", "-i", str(source), "-an", str(peer)]
        subprocess.run(command, check=True)
        peer_seconds, peer_score = time.perf_counter() - begun, score(truth, peer)
        points: list[tuple[float, float, float]] = []
        for quality in qualities:
            seconds = _convert(source, format_, quality, target)
            points.append((score(truth, target), math.log(target.stat().st_size), seconds))
        own, size, seconds = points[1]
        scores, sizes, _ = zip(*sorted(points), strict=True)
        ratio = math.exp(float(np.interp(peer_score, scores, sizes))) / peer.stat().st_size
        yield Row(
            f"{name}, {format_}",
            ratio,
            "of ffmpeg's bytes",
            note=f"{math.exp(size):,.0f} bytes, SSIM {own:.4f}, {seconds:.1f} s; ffmpeg "
            f"{peer.stat().st_size:,} bytes, {peer_score:.4f}, {peer_seconds:.1f} s",
        )


def rows() -> list[Row]:
    """Compare every clip in both formats; return an empty list without ffmpeg."""
    program = os.environ.get("FFMPEG", "")
    if not program:
        return []
    results: list[Row] = []
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        sources: dict[str, Path] = {}
        for number, (name, clip) in enumerate(_photographs().items()):
            sources[name] = folder / f"source{number}.mp4"
            with VideoEncoder(sources[name], _SIZE, _RATE, kind=_LOSSLESS) as video:
                for frame in clip():
                    video.add(frame)
        for number, prompt in enumerate(("waves on a beach at sunset", "a forest in the rain")):
            scratch = folder / str(number)
            scratch.mkdir()
            sources[f"engine: {prompt}"] = _engine(prompt, scratch)
        for name, source in sources.items():
            results += rows_of(name, source, folder, program)
    return results
