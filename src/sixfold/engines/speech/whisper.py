"""Any language to text by Whisper (faster-whisper): a folder of weights, on a processor or a device."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from sixfold.core.catalog.engines import Context, EngineError, Result, Task
from sixfold.engines.speech import transcription
from sixfold.engines.speech.transcription import TimedSegment, TimedWord


class WhisperEngine:
    """Writes down `audio_url` with the model in the folder `source`."""

    name = "whisper"
    version = "1"

    def __init__(self, *, source: str = "", weights: str = "", device: str = "auto") -> None:
        from faster_whisper import WhisperModel  # pyright: ignore[reportMissingImports] - optional

        folder = Path(source or weights)
        if not folder.is_dir():
            raise EngineError("There is no Whisper model where `source` points.")
        self._model: Any = WhisperModel(str(folder), device=device, local_files_only=True)

    def run(self, task: Task, context: Context) -> Result:
        """The text, its segments and words, and the language that was heard."""
        wave = transcription.sound(task)
        hint = str(task.inputs.get("language") or "").partition("-")[0].lower()
        found, facts = self._model.transcribe(
            wave,
            language=hint if hint not in ("", "auto") else None,
            word_timestamps=bool(task.inputs.get("timestamps", True)),
            vad_filter=False,
        )
        segments: list[TimedSegment] = []
        for part in found:
            context.progress(min(1.0, part.end * transcription.RATE / wave.size))
            segments.append(_segment(part))
        return transcription.told(segments, wave, task, "full", str(facts.language))


def _segment(part: Any) -> TimedSegment:
    words = [
        TimedWord(word.word.strip(), word.start, word.end, word.probability) for word in part.words or ()
    ]
    sure = words or [TimedWord(part.text, part.start, part.end, math.exp(min(0.0, part.avg_logprob)))]
    return TimedSegment(part.text.strip(), part.start, part.end, sure)
