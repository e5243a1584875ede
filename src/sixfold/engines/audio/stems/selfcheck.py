"""The first mix that newly added weights take apart: four parts that together are it again."""

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
_REST = 0.5  # of the mix's power: what may be missing from the parts together
_WIDTH, _HEIGHT = 480, 60  # of each part's row


def run(folder: Path, report: Callable[[float], None] = lambda _fraction: None) -> tuple[bytes, str]:
    """A PNG of the parts' loudness over time and the line that says how it went; raises `EngineError`."""
    engine = OnnxStemEngine(source=str(folder))
    mix = _mix()
    parts = engine.parts(mix, report)
    rest = float(((parts.sum(0) - mix) ** 2).mean() / (mix**2).mean())
    if not rest < _REST:
        raise EngineError("The weights take no mix apart: their parts together are something else.")
    rows = np.concatenate([_row(part) for part in parts])
    data = encode.encode(np.dstack([rows] * 3), None, format="png")
    return data, f"{engine.version[2:]} gives {len(SOURCES)} parts, {1 - rest:.0%} of the mix together"


def _mix() -> Array:
    """A bass note, a beat and a tone that trembles like a voice, (2, samples)."""
    time = np.arange(round(_SECONDS * MODEL_RATE), dtype=np.float32) / MODEL_RATE
    beat = np.random.default_rng(1).standard_normal(time.size) * np.exp(-30 * (time % 0.5))
    voice = np.sin(2 * np.pi * 330 * time + 3 * np.sin(2 * np.pi * 5 * time))
    wave = 0.3 * np.sin(2 * np.pi * 65 * time) + 0.2 * beat + 0.2 * voice
    return np.stack([wave, wave * 0.9]).astype(np.float32)


def _row(part: Array) -> Array:
    """A part's loudness as columns, one row of the picture."""
    loud = cv2.resize(np.abs(part).mean(0)[None], (_WIDTH, 1), interpolation=cv2.INTER_AREA)
    rows = np.linspace(1, 0, _HEIGHT, dtype=np.float32)[:, None]
    return np.where(rows < loud / 0.4, 220, 30).astype(np.uint8)
