"""Self-check of newly installed transcription weights: the transcript of synthesized speech is not empty."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sixfold.core.catalog.engines import EngineError, Task
from sixfold.engines.speech.engine import SpeechEngine
from sixfold.engines.speech.moonshine import MoonshineEngine
from sixfold.engines.speech.whisper import WhisperEngine

_TEXT = "The quick brown fox jumps over the lazy dog."


class _CheckContext:
    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch

    def progress(self, fraction: float) -> None: ...

    def log(self, line: str) -> None: ...


def words(folder: Path) -> str:
    """Return the transcript of a synthesized sentence; raises `EngineError` if it is empty."""
    kind = WhisperEngine if (folder / "model.bin").is_file() else MoonshineEngine
    engine = kind(source=str(folder))
    with tempfile.TemporaryDirectory() as scratch:
        context = _CheckContext(Path(scratch))
        spoken = SpeechEngine().run(Task("check", "tts", {"text": _TEXT, "format": "wav"}), context)
        recording = spoken.artifacts[0].path
        if recording is None:
            raise EngineError("Self-check failed: no speech was synthesized.")
        text = str(engine.run(Task("check", "stt", {}, {"audio_url": recording}), context).data["text"])
    if not text.strip():
        raise EngineError("Self-check failed: the model did not return text for spoken words.")
    return text
