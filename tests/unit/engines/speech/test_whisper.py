"""Whisper's engine with a stand-in for faster-whisper, which records how it is called."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("av", reason="needs PyAV")

from sixfold.core.catalog.engines import Task
from sixfold.engines.speech.whisper import WhisperEngine
from tests.fakes import fault_server
from tests.unit.engines.speech.listening import Note


class StandIn:
    """Hears `hello` in German in every recording."""

    calls: list[dict[str, Any]]

    def __init__(self, *_args: Any, **_options: Any) -> None:
        self.calls = []

    def transcribe(self, _wave: Any, **options: Any) -> Any:
        self.calls.append(options)
        word = SimpleNamespace(word=" hello", start=0.0, end=0.5, probability=0.9)
        part = SimpleNamespace(text=" hello", start=0.0, end=0.5, words=[word], avg_logprob=-0.1)
        return iter([part]), SimpleNamespace(language="de")


@pytest.mark.parametrize(
    ("translate", "task", "language"), [(False, "transcribe", "de"), (True, "translate", "en")]
)
def test_translation_is_requested_and_its_language_is_english(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, translate: bool, task: str, language: str
) -> None:
    package = ModuleType("faster_whisper")
    monkeypatch.setattr(package, "WhisperModel", StandIn, raising=False)
    monkeypatch.setitem(sys.modules, "faster_whisper", package)
    recording = tmp_path / "a.wav"
    recording.write_bytes(fault_server.tone(1, 16000))
    engine = WhisperEngine(source=str(tmp_path))
    inputs = {"translate": translate, "language": ""}
    result = engine.run(Task("t", "stt", inputs, {"audio_url": recording}), Note(tmp_path / "scratch"))
    assert engine._model.calls[0]["task"] == task
    assert (result.data["text"], result.data["language"]) == ("hello", language)
