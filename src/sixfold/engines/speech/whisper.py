"""Transcription with Whisper (faster-whisper) from a folder of weights, on CPU or GPU."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

from sixfold.core.catalog.engines import Context, Result, Task
from sixfold.engines.speech import transcription
from sixfold.engines.speech.transcription import TimedSegment, TimedWord


class WhisperEngine:
    """Transcribes or translates `audio_url` with the model in `source`, or in a folder of `weights`."""

    name = "whisper"
    version = "1"

    def __init__(self, *, source: str = "", weights: str = "", device: str = "auto") -> None:
        package = importlib.import_module("faster_whisper")
        folder = transcription.model_folder(Path(source or weights), "model.bin")
        self._model: Any = package.WhisperModel(str(folder), device=device, local_files_only=True)

    def run(self, task: Task, context: Context) -> Result:
        """Return the text with its segments and words, and the detected language."""
        wave = transcription.load_audio(task)
        hint = str(task.inputs.get("language") or "").partition("-")[0].lower()
        translate = bool(task.inputs.get("translate"))
        parts, info = self._model.transcribe(
            wave,
            task="translate" if translate else "transcribe",
            language=hint if hint not in ("", "auto") else None,
            word_timestamps=bool(task.inputs.get("timestamps", True)),
            vad_filter=False,
        )
        segments: list[TimedSegment] = []
        for part in parts:
            context.progress(min(1.0, part.end * transcription.RATE / wave.size))
            segments.append(_segment(part))
            transcription.show(task, context, len(segments) - 1, segments[-1].text)
        seconds, language = wave.size / transcription.RATE, "en" if translate else str(info.language)
        return transcription.result(segments, seconds, task, "full", language)


def _segment(part: Any) -> TimedSegment:
    words = [
        TimedWord(word.word.strip(), word.start, word.end, word.probability) for word in part.words or ()
    ]
    # Without word times, the segment is one word with the segment's own probability.
    words = words or [TimedWord(part.text, part.start, part.end, math.exp(min(0.0, part.avg_logprob)))]
    return TimedSegment(part.text.strip(), part.start, part.end, words)
