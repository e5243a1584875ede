"""Whisper's engine with a stand-in for faster-whisper, which records how it is called."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

pytest.importorskip("av", reason="needs PyAV")

from sixfold.core.catalog.engines import EngineError, Task
from sixfold.engines.speech.whisper import WhisperEngine
from tests.fakes import fault_server
from tests.unit.engines.engine_runs import RunContext


class StandIn:
    """Transcribes every recording as `hello` in German."""

    calls: list[dict[str, Any]]
    count = 1

    def __init__(self, *_args: Any, **_options: Any) -> None:
        self.calls = []

    def transcribe(self, _wave: Any, **options: Any) -> Any:
        self.calls.append(options)
        word = SimpleNamespace(word=" hello", start=0.0, end=0.5, probability=0.9)
        part = SimpleNamespace(text=" hello", start=0.0, end=0.5, words=[word], avg_logprob=-0.1)
        return iter([part] * self.count), SimpleNamespace(language="de")


@pytest.mark.parametrize(
    ("translate", "task", "language"), [(False, "transcribe", "de"), (True, "translate", "en")]
)
def test_translation_is_requested_and_its_language_is_english(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, translate: bool, task: str, language: str
) -> None:
    package = ModuleType("faster_whisper")
    monkeypatch.setattr(package, "WhisperModel", StandIn, raising=False)
    monkeypatch.setitem(sys.modules, "faster_whisper", package)
    (tmp_path / "model.bin").touch()
    recording = tmp_path / "a.wav"
    recording.write_bytes(fault_server.tone(1, 16000))
    engine = WhisperEngine(source=str(tmp_path))
    inputs = {"translate": translate, "language": ""}
    result = engine.run(Task("t", "stt", inputs, {"audio_url": recording}), RunContext(tmp_path / "scratch"))
    assert engine._model.calls[0]["task"] == task
    assert (result.data["text"], result.data["language"]) == ("hello", language)


def test_a_converted_model_of_random_weights_is_loaded_and_run(tmp_path: Path) -> None:
    tiny_whisper: Any = pytest.importorskip(
        "tests.unit.engines.speech.tiny_whisper",
        reason="the extra `weights` is not installed (make weights)",
        exc_type=ImportError,
    )
    folder = tiny_whisper.write(tmp_path / "weights" / "whisper-tiny", tmp_path / "scratch")
    recording = tmp_path / "a.wav"
    recording.write_bytes(fault_server.tone(2, 16000))
    engine = WhisperEngine(weights=str(folder.parent), device="cpu")
    inputs = {"language": "", "timestamps": False}
    context = WatchingContext(tmp_path / "n")
    result = engine.run(Task("t", "stt", {**inputs, "partial_text": True}, {"audio_url": recording}), context)
    assert " ".join(text for _, text in context.shown) == result.data["text"]
    assert (result.data["language"], result.data["duration"], result.quality) == ("en", 2.0, "full")
    assert all(0 <= each["confidence"] <= 1 for each in result.data["segments"])


class WatchingContext(RunContext):
    """Context that records partial results, and the progress at which they were shown."""

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self.shown: list[tuple[int, str]] = []

    def preview(self, content: bytes) -> None:
        assert len(self.fractions) == len(self.shown) + 1
        self.shown.append(msgspec.json.decode(content, type=tuple[int, str]))


@pytest.mark.parametrize("partial", [True, False])
def test_segments_are_shown_as_they_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, partial: bool
) -> None:
    package = ModuleType("faster_whisper")
    monkeypatch.setattr(package, "WhisperModel", StandIn, raising=False)
    monkeypatch.setattr(StandIn, "count", 3)
    monkeypatch.setitem(sys.modules, "faster_whisper", package)
    (tmp_path / "model.bin").touch()
    recording = tmp_path / "a.wav"
    recording.write_bytes(fault_server.tone(1, 16000))
    context = WatchingContext(tmp_path / "scratch")
    inputs = {"language": "", **({"partial_text": True} if partial else {})}
    result = WhisperEngine(source=str(tmp_path)).run(
        Task("t", "stt", inputs, {"audio_url": recording}), context
    )
    assert context.shown == ([(0, "hello"), (1, "hello"), (2, "hello")] if partial else [])
    assert result.data["text"] == "hello hello hello"


def test_a_folder_without_a_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faster_whisper", ModuleType("faster_whisper"))
    with pytest.raises(EngineError, match=r"model\.bin is missing"):
        WhisperEngine(weights=str(tmp_path))
