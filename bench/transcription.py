"""Measure the word errors of the transcription engines on recorded human speech.

.venv/bin/python -m bench transcription

The recordings and their texts are telephone prompts in Debian's packages `asterisk-core-sounds-en` and
`asterisk-core-sounds-en-g722`; no engine was tuned on them. Moonshine is measured where `sixfold engines
add listening-english` has installed it in the data folder.
"""

from __future__ import annotations

import contextlib
import gzip
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.reporting import Row
from bench.stt_accuracy import RunContext, edit_distance, words
from sixfold.core.catalog.engines import EngineError, Task
from sixfold.engines.speech.moonshine import MoonshineEngine
from sixfold.engines.speech.sphinx import SphinxEngine
from sixfold.settings import load

TITLE = "Transcription of recorded English speech"
_TEXTS = Path("/usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz")
_SOUNDS = Path("/usr/share/asterisk/sounds/en_US_f_Allison")
_SHORTEST = 3  # words


def prompts() -> Iterator[tuple[Path, str]]:
    """Yield recordings with their texts, except recordings of digits, sounds or fewer than three words."""
    for line in gzip.decompress(_TEXTS.read_bytes()).decode().splitlines():
        name, _, text = line.strip().partition(": ")
        path = _SOUNDS / f"{name}.g722"
        if path.is_file() and len(words(text)) >= _SHORTEST and not re.search(r"[\d\[]", line):
            yield path, text


def rows() -> list[Row]:
    """Return a row per engine, or a row with the reason why an engine cannot be measured."""
    if not _TEXTS.is_file() or not _SOUNDS.is_dir():
        return [Row("skipped: install asterisk-core-sounds-en and asterisk-core-sounds-en-g722", 0, "")]
    engines: dict[str, Any] = {"PocketSphinx": SphinxEngine()}
    with contextlib.suppress(EngineError):
        weights = load().data_dir / "weights" / "listening-english"
        engines["Moonshine tiny"] = MoonshineEngine(weights=str(weights))
    results: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        recordings = [(_wav(path, Path(folder)), text) for path, text in sorted(dict(prompts()).items())]
        for name, engine in engines.items():
            total = errors = 0
            seconds, began = 0.0, time.process_time()
            for path, text in recordings:
                task = Task("t", "stt", {}, {"audio_url": path})
                data = engine.run(task, RunContext(Path(folder))).data
                total += len(words(text))
                errors += edit_distance(words(text), words(data["text"]))
                seconds += data["duration"]
            cost = (time.process_time() - began) / seconds
            note = f"{len(recordings)} recordings, {total} words; {cost:.3f} s of processor a second"
            results.append(Row(f"{name}: words wrong", 100 * errors / total, "%", note=note))
    return results


def _wav(path: Path, folder: Path) -> Path:
    target = folder / "-".join(path.relative_to(_SOUNDS).with_suffix(".wav").parts)
    command = ["ffmpeg", "-v", "error", "-f", "g722", "-i", str(path), str(target)]
    subprocess.run(command, check=True)
    return target
