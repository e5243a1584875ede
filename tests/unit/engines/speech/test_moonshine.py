"""Moonshine's engine with two hand-made networks: the decoder follows a table from token to token."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("av", reason="needs PyAV")
pytest.importorskip("onnxruntime", reason="needs the extra `onnx`")

from bench.stt_accuracy import edit_distance, words
from sixfold.app import catalog as app_catalog
from sixfold.cli.engines import wheel_weights
from sixfold.core.catalog.engines import EngineError, Result, Task
from sixfold.engines.speech import files, transcription
from sixfold.engines.speech.moonshine import MoonshineEngine
from sixfold.engines.speech.speech_to_speech import SpeechToSpeechEngine
from tests.unit.engines.engine_runs import RunContext
from tests.unit.engines.onnx_model import _field, _tensor
from tests.unit.engines.speech.test_weights import _constant, _node, _open

FLOATS, WHOLE, FLAG = 1, 7, 9
TOKENS = ("<unk>", "<s>", "</s>", "▁Good", "▁mor", "ning.", "▁How", "▁are", "▁you?")
TEXT = """
    It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of
    foolishness, it was the epoch of belief, it was the epoch of incredulity, it was the season of Light, it
    was the season of Darkness, it was the spring of hope, it was the winter of despair, we had everything
    before us, we had nothing before us, we were all going direct to Heaven, we were all going direct the
    other way - in short, the period was so far like the present period, that some of its noisiest
    authorities insisted on its being received, for good or for evil, in the superlative degree of comparison
    only.
"""


def model(folder: Path, following: dict[int, int], suffix: str = ".onnx") -> Path:
    """Write a model that outputs after each token its successor in a table."""
    folder.mkdir(parents=True, exist_ok=True)
    encoder = _node("Unsqueeze", "input_values last", "last_hidden_state")
    encoder += _constant("last", np.array([2], np.int64))
    encoder += _open("input_values", FLOATS, 11, 2) + _open("attention_mask", WHOLE, 11, 2)
    encoder += _open("last_hidden_state", FLOATS, 12, 3)
    table = np.full((len(TOKENS), len(TOKENS)), -20.0, np.float32)
    for before, after in following.items():
        table[before, after] = 20.0
    decoder = _node("Gather", "table input_ids", "logits")
    decoder += _field(5, _tensor("table", table.shape, tuple(table.ravel().tolist())))
    decoder += _open("input_ids", WHOLE, 11, 2) + _open("encoder_hidden_states", FLOATS, 11, 3)
    decoder += _open("encoder_attention_mask", WHOLE, 11, 2) + _open("use_cache_branch", FLAG, 11, 1)
    decoder += _open("logits", FLOATS, 12, 3)
    for part in ("decoder.key", "decoder.value", "encoder.key", "encoder.value"):
        decoder += _node("Identity", f"past_key_values.0.{part}", f"present.0.{part}")
        sides = b"".join(
            _field(1, _field(number, side)) for number, side in ((2, "b"), (1, 8), (2, "n"), (1, 4))
        )
        cache = _field(1, f"past_key_values.0.{part}")
        decoder += _field(11, cache + _field(2, _field(1, _field(1, FLOATS) + _field(2, sides))))
        decoder += _open(f"present.0.{part}", FLOATS, 12, 4)
    for name, graph in (("encoder_model", encoder), ("decoder_model_merged", decoder)):
        data = _field(1, 8) + _field(7, graph + _field(2, "tiny")) + _field(8, _field(1, "") + _field(2, 13))
        (folder / f"{name}{suffix}").write_bytes(data)
    encoded = (token.encode() for token in TOKENS)
    (folder / "tokenizer.bin").write_bytes(b"".join(bytes([len(token)]) + token for token in encoded))
    return folder


def transcribed(engine: MoonshineEngine, recording: Path, scratch: Path, **inputs: Any) -> Result:
    return engine.run(Task("t", "stt", inputs, {"audio_url": recording}), RunContext(scratch))


def recording(folder: Path) -> Path:
    """Return two seconds of noise, one of silence and one of noise; a pure tone would count as a beep."""
    sound = np.random.default_rng(1).normal(0, 0.2, 64_000).astype(np.float32)
    sound[32_000:48_000] = 0
    path = folder / "a.wav"
    files.write(iter([sound]), transcription.RATE, "wav", path)
    return path


SPOKEN = {1: 3, 3: 4, 4: 5, 5: 6, 6: 7, 7: 8, 8: 2}


def test_sentences_have_words_with_times(tmp_path: Path) -> None:
    engine = MoonshineEngine(source=str(model(tmp_path / "m", SPOKEN)))
    result = transcribed(engine, recording(tmp_path), tmp_path / "scratch")
    assert (result.data["text"], result.data["language"]) == ("Good morning. How are you?", "en")
    assert [each["text"] for each in result.data["segments"]] == ["Good morning.", "How are you?"]
    spoken = [word for each in result.data["segments"] for word in each["words"]]
    assert [word["word"] for word in spoken] == ["Good", "morning", "How", "are", "you"]
    times = [time for word in spoken for time in (word["start"], word["end"])]
    assert times == sorted(times)
    assert (times[0] < 0.3, times[-1] > 3.7, min(word["confidence"] for word in spoken) > 0.99) == (True,) * 3
    # This part of the recording is silent.
    assert not any(2.3 < time < 2.7 for time in times)
    assert result.quality == "full"


def test_speech_to_speech_transcribes_with_installed_weights(tmp_path: Path) -> None:
    model(tmp_path / "weights" / "moonshine-tiny", SPOKEN)
    engine = SpeechToSpeechEngine(weights=str(tmp_path / "weights"))
    task = Task("t", "speech-to-speech", {"task": "transcribe"}, {"audio": recording(tmp_path)})
    result = engine.run(task, RunContext(tmp_path / "scratch"))
    assert (result.data["text"], result.quality) == ("Good morning. How are you?", "full")


def test_endless_decoding_is_stopped(tmp_path: Path) -> None:
    engine = MoonshineEngine(source=str(model(tmp_path / "m", {1: 3, 3: 3})))
    result = transcribed(engine, recording(tmp_path), tmp_path / "scratch", timestamps=False)
    assert 20 < len(result.data["text"].split()) < 40
    assert "words" not in result.data["segments"][0]


def test_damaged_and_incomplete_models_are_refused(tmp_path: Path) -> None:
    model(tmp_path / "weights" / "moonshine-tiny", SPOKEN, ".ort")
    with pytest.raises(EngineError, match="download it again"):
        MoonshineEngine(weights=str(tmp_path / "weights"))  # ONNX's own format under the other's name
    folder = model(tmp_path / "other", SPOKEN)
    (folder / "encoder_model.onnx").unlink()
    with pytest.raises(EngineError, match=r"encoder_model\.onnx is missing"):
        MoonshineEngine(weights=str(tmp_path))
    with pytest.raises(EngineError, match=r"tokenizer\.bin is missing"):
        MoonshineEngine(source=str(tmp_path / "nowhere"))


def test_adjacent_ranges_are_merged_up_to_a_length() -> None:
    ranges = [(0, 16_000), (20_000, 40_000), (50_000, 90_000), (100_000, 500_000)]
    assert list(transcription.group_ranges(ranges, 3.0)) == [ranges[:2], ranges[2:3], ranges[3:]]
    assert list(transcription.group_ranges([], 3.0)) == []


@pytest.mark.nightly
def test_the_real_model_transcribes_a_recording(tmp_path: Path) -> None:
    row = app_catalog.read_toml("weights.toml")["listening-english"]["moonshine-tiny"]
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
    command += ["--platform", row["platform"], "-d", str(tmp_path), row["package"]]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("the package index is unreachable")
    wheel = next(tmp_path.glob("*.whl"))
    (tmp_path / "m").mkdir()
    wheel_weights.copy(wheel, row, tmp_path / "m")
    with zipfile.ZipFile(wheel) as archive:
        (tmp_path / "a.wav").write_bytes(archive.read("moonshine_voice/assets/two_cities.wav"))
    engine = MoonshineEngine(source=str(tmp_path / "m"))
    result = transcribed(engine, tmp_path / "a.wav", tmp_path / "scratch")
    expected = words(TEXT)
    assert edit_distance(expected, words(result.data["text"])) <= 0.05 * len(expected)
