"""Self-check of newly installed Piper voices: each must speak, neither silently nor endlessly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sixfold.core.catalog.engines import EngineError
from sixfold.engines.image import encode
from sixfold.engines.speech.piper import PiperEngine

_TEXT = "One, two, three."
_SHORTEST, _LONGEST = 0.1, 20.0  # seconds
_SILENT = 1e-3
_WIDTH, _HEIGHT = 480, 60  # pixels per voice


def run(folder: Path, report: Callable[[float], None] = lambda _fraction: None) -> tuple[bytes, str]:
    """Return a PNG of the loudness over time and a line with the result; raises `EngineError`."""
    rows: list[NDArray[Any]] = []
    languages: list[str] = []
    for language, wave, rate in PiperEngine(source=str(folder)).sample(_TEXT):
        loud = float(np.abs(wave).max(initial=0))
        if not (_SHORTEST < wave.size / rate < _LONGEST and loud > _SILENT):
            raise EngineError(f"Self-check failed: the voice for {language} does not speak.")
        parts = np.array([np.abs(part).max(initial=0) for part in np.array_split(wave, _WIDTH)])
        rows.append(
            np.where(np.arange(_HEIGHT)[::-1, None] < _HEIGHT * parts / loud, 255, 0).astype(np.uint8)
        )
        languages.append(language)
    report(1.0)
    image = np.concatenate(rows)
    return encode.encode(np.dstack([image] * 3), None, format="png"), f"voices speak {', '.join(languages)}"
