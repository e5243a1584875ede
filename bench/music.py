"""Measure music generation without weights: CPU seconds beside seconds of audio.

.venv/bin/python -m bench music
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from bench.reporting import Row
from sixfold.core.catalog.engines import Engine, Task
from sixfold.engines.audio import files
from sixfold.engines.audio.music.engine import MusicEngine
from sixfold.engines.audio.piano.engine import PianoEngine
from sixfold.engines.audio.stems.engine import StemEngine

TITLE = "Music, on one core"
_PIANO = {"model": "open-piano-baroque", "sound": "studio", "bars": 14, "tempo": 112, "key": "C", "seed": 17}
_MUSIC = {"lyrics": "", "duration": 30, "bpm": 120, "key": "C Major", "seed": 17, "steps": 8}


class _Quiet:
    """Run context with a folder, which ignores progress and logs."""

    def __init__(self, folder: str) -> None:
        self.scratch = Path(folder)

    def progress(self, fraction: float) -> None:
        """Ignore the progress."""

    def log(self, line: str) -> None:
        """Ignore the line."""


def _measure_time(
    name: str, engine: Engine, inputs: dict[str, Any], folder: str, sound: Path | None = None
) -> Row:
    task = Task("bench", "bench", inputs, {} if sound is None else {"audio": sound})
    began = time.process_time()
    result = engine.run(task, _Quiet(folder)).artifacts[0]
    seconds = time.process_time() - began
    return Row(name, seconds, "s", note=f"{result.info['duration'] / seconds:.0f} times real time")


def rows() -> list[Row]:
    """Measure thirty seconds of each kind."""
    with tempfile.TemporaryDirectory() as folder:
        results = [_measure_time("piano, 30 s", PianoEngine(), _PIANO, folder)]
        results += [
            _measure_time(f"{prompt}, 30 s", MusicEngine(), {**_MUSIC, "prompt": prompt}, folder)
            for prompt in ("techno", "orchestral", "lo-fi")
        ]
        mix = Path(folder) / "music.mp3"
        assert files.read(mix, 60).shape[1] == 30 * files.RATE
        inputs = {"stems": "four", "format": "mp3", "model": "htdemucs"}
        return [*results, _measure_time("four stems of 30 s", StemEngine(), inputs, folder, mix)]
