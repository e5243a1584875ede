"""Self-check of newly installed stem separation weights: the stems of a test mix must add up to the mix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.audio.files import Array
from sixfold.engines.audio.stems.onnx import MODEL_RATE, SOURCES, OnnxStemEngine
from sixfold.engines.image import encode

_SECONDS = 2.0
# The fraction of the mix's power that may be missing from the sum of the stems.
_MAX_RESIDUAL = 0.5
_WIDTH, _HEIGHT = 480, 60  # pixels per stem


def run(folder: Path, report: Callable[[float], None] = lambda _fraction: None) -> tuple[bytes, str]:
    """Return a PNG of the stems' loudness over time and a line with the result; raises `EngineError`."""
    engine = OnnxStemEngine(source=str(folder))
    mix = _mix()
    parts = engine.parts(mix, report)
    residual = float(((parts.sum(0) - mix) ** 2).mean() / (mix**2).mean())
    if not residual < _MAX_RESIDUAL:
        raise EngineError("Self-check failed: the sum of the stems differs from the mix.")
    rows = np.concatenate([_row(part) for part in parts])
    data = encode.encode(np.dstack([rows] * 3), None, format="png")
    return data, f"{engine.version[2:]}: {len(SOURCES)} stems add up to {1 - residual:.0%} of the mix"


def _mix() -> Array:
    """Return a bass note, a beat and a tone with vibrato, (2, samples)."""
    time = np.arange(round(_SECONDS * MODEL_RATE), dtype=np.float32) / MODEL_RATE
    beat = np.random.default_rng(1).standard_normal(time.size) * np.exp(-30 * (time % 0.5))
    voice = np.sin(2 * np.pi * 330 * time + 3 * np.sin(2 * np.pi * 5 * time))
    wave = 0.3 * np.sin(2 * np.pi * 65 * time) + 0.2 * beat + 0.2 * voice
    return np.stack([wave, wave * 0.9]).astype(np.float32)


def _row(part: Array) -> Array:
    """Return a bar chart of a stem's loudness, one row of the image."""
    loud = cv2.resize(np.abs(part).mean(0)[None], (_WIDTH, 1), interpolation=cv2.INTER_AREA)
    rows = np.linspace(1, 0, _HEIGHT, dtype=np.float32)[:, None]
    return np.where(rows < loud / 0.4, 220, 30).astype(np.uint8)
