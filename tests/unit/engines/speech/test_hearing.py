"""Transcription: speech ranges, word times, and no text for silence."""

from __future__ import annotations

import difflib
import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("espeakng_loader", reason="needs the extra `embedded`")
pytest.importorskip("pocketsphinx", reason="needs the extra `speech`")

from pocketsphinx import get_model_path

from sixfold.core.catalog.engines import Task, UnusableInput
from sixfold.engines.speech import acoustic_adaptation as voices
from sixfold.engines.speech import files, transcription
from sixfold.engines.speech.engine import SpeechEngine
from sixfold.engines.speech.speech_to_speech import SpeechToSpeechEngine
from sixfold.engines.speech.sphinx import SphinxEngine
from tests.unit.engines.engine_runs import RunContext

RATE = 16_000


@pytest.fixture(scope="module")
def recognizer() -> SphinxEngine:
    return SphinxEngine()


def recording(folder: Path, text: str, format_: str = "wav", **inputs: Any) -> Path:
    """Write a spoken text to a file."""
    context = RunContext(folder / format_)
    result = SpeechEngine().run(Task("t", "tts", {"text": text, "format": format_, **inputs}), context)
    assert result.artifacts[0].path is not None
    return result.artifacts[0].path


def transcribe(recognizer: SphinxEngine, path: Path, **inputs: Any) -> dict[str, Any]:
    result = recognizer.run(Task("t", "stt", inputs, {"audio_url": path}), RunContext(path.parent / "notes"))
    assert result.quality == "preview"
    assert result.billed == pytest.approx(result.data["duration"] / 60, abs=1e-4)
    return dict(result.data)


def sound(path: Path, *parts: NDArray[np.float32]) -> Path:
    """Write signals at 16 kHz to a file."""
    files.write(iter(parts), RATE, "wav", path)
    return path


def test_words_have_times_and_confidences(tmp_path: Path, recognizer: SphinxEngine) -> None:
    path = recording(tmp_path, "Please open the door and come into the house.", voice="ella", speed=0.9)
    response = transcribe(recognizer, path)
    right = {"please", "open", "the", "door", "and", "come", "into", "house"}
    assert len(right & set(response["text"].split())) >= 4, response["text"]
    words = [word for segment in response["segments"] for word in segment["words"]]
    assert " ".join(word["word"] for word in words) == response["text"]
    assert all(a["end"] <= b["start"] + 0.02 for a, b in itertools.pairwise(words))
    assert 0.05 < response["confidence"] < 1
    assert response["language"] == "en"
    assert transcribe(recognizer, path) == response


def test_synthesized_speech_is_transcribed(tmp_path: Path, recognizer: SphinxEngine) -> None:
    text = "Good morning, would you mind speaking a little more slowly?"
    response = transcribe(recognizer, recording(tmp_path, text, voice="henry"), timestamps=False)
    right = re.sub(r"[^a-z ]", "", text.lower()).split()
    alike = difflib.SequenceMatcher(None, right, response["text"].split(), autojunk=False)
    assert sum(block.size for block in alike.get_matching_blocks()) >= 0.8 * len(right), response["text"]


def test_adapted_model_equals_the_stored_adaptation(tmp_path: Path) -> None:
    model = Path(get_model_path()) / "en-us" / "en-us"
    moved = voices.adapted(model)
    assert np.array_equal(voices.means(voices.write(model, moved, tmp_path / "means").parent), moved)
    assert np.array_equal(voices.steps(model, voices.means(model)), np.zeros(moved.shape, np.int8))
    assert np.abs(voices.steps(model, moved)).max() > 0


def test_pause_separates_segments(tmp_path: Path, recognizer: SphinxEngine) -> None:
    wave = files.read(recording(tmp_path, "Open the door."), RATE)
    path = sound(tmp_path / "two.wav", wave, np.zeros(RATE, np.float32), wave)
    response = transcribe(recognizer, path, timestamps=False)
    assert len(response["segments"]) == 2
    first, second = response["segments"]
    assert "words" not in first
    assert second["start"] - first["end"] > 0.8
    assert second["start"] == pytest.approx(first["start"] + wave.size / RATE + 1, abs=0.3)


@pytest.mark.parametrize("level", [0.0, 1e-5])
def test_silence_has_no_transcript(tmp_path: Path, recognizer: SphinxEngine, level: float) -> None:
    quiet = (level * np.random.default_rng(1).standard_normal(2 * RATE)).astype(np.float32)
    response = transcribe(recognizer, sound(tmp_path / "quiet.wav", quiet))
    assert (response["text"], response["segments"], response["confidence"]) == ("", [], 0.0)
    assert response["duration"] == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize("format_", ["mp3", "opus"])
def test_compressed_recording_has_the_same_length(
    tmp_path: Path, recognizer: SphinxEngine, format_: str
) -> None:
    plain, packed = (recording(tmp_path, "Open the door.", kind) for kind in ("wav", format_))
    assert transcribe(recognizer, packed)["duration"] == pytest.approx(
        transcribe(recognizer, plain)["duration"], abs=0.08
    )


def test_speech_is_detected_above_the_noise_level(tmp_path: Path) -> None:
    noise = 0.002 * np.random.default_rng(2).standard_normal(3 * RATE).astype(np.float32)
    voice = files.read(recording(tmp_path, "Open the door."), RATE)
    noise[RATE : RATE + voice.size] += voice[: 2 * RATE]
    result = transcription.speech_ranges(noise)
    assert len(result) == 1
    assert result[0][0] / RATE == pytest.approx(1, abs=0.35)
    assert result[0][1] / RATE == pytest.approx(1 + voice.size / RATE, abs=0.4)


@pytest.mark.parametrize("top", [1, 8])
def test_tone_without_harmonics_is_not_speech(top: int) -> None:
    seconds = np.arange(2 * transcription.RATE) / transcription.RATE
    wave = sum(0.3 / n * np.sin(2 * np.pi * 150 * n * seconds) for n in range(1, top + 1))
    assert bool(transcription.speech_ranges(np.asarray(wave, np.float32))) is (top > 1)


def test_speech_without_pauses_is_split_at_the_quietest_point() -> None:
    rng, moments = np.random.default_rng(3), np.arange(70 * RATE) / RATE
    voice = 0.2 * rng.standard_normal(moments.size).astype(np.float32)
    for gap in (19.0, 41.0, 62.0):
        voice[(moments > gap) & (moments < gap + 0.2)] = 0
    result = transcription.speech_ranges(voice)
    assert [(start / RATE, end / RATE) for start, end in result] == [
        pytest.approx(part, abs=0.25) for part in ((0, 19.1), (19.1, 41.1), (41.1, 62.1), (62.1, 70))
    ]
    assert all(before[1] == after[0] for before, after in itertools.pairwise(result))
    assert 19 < result[0][1] / RATE < 19.2


def test_speech_to_speech_synthesizes_and_transcribes(tmp_path: Path) -> None:
    engine = SpeechToSpeechEngine()
    spoken = engine.run(
        Task("t", "speech-to-speech", {"task": "speak", "text": "Hello there."}),
        RunContext(tmp_path / "a"),
    )
    assert spoken.data == {"task": "speak", "text": "Hello there."}
    assert spoken.artifacts[0].info["name"] == "audio"
    audio = spoken.artifacts[0].path
    assert audio is not None
    inputs = {"task": "transcribe"}
    written = engine.run(Task("t", "speech-to-speech", inputs, {"audio": audio}), RunContext(tmp_path / "b"))
    assert written.data["task"] == "transcribe"
    assert written.data["text"]
    second_result = engine.run(
        Task("t", "speech-to-speech", {"task": "speak"}, {"audio": audio}), RunContext(tmp_path / "c")
    )
    assert second_result.data["text"] == written.data["text"]
    for task in ("transcribe", "speak"):
        with pytest.raises(UnusableInput, match="is required"):
            engine.run(Task("t", "speech-to-speech", {"task": task}), RunContext(tmp_path / "d"))
