"""Speech synthesis: distinct voices at any speed, decodable files, deterministic output."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("espeakng_loader", reason="needs the extra `embedded`")

from sixfold.core.catalog.engines import Artifact, Result, Task, UnusableInput
from sixfold.engines.audio.ambience import loudness
from sixfold.engines.speech import espeak, files, sentences, time_stretch, voices
from sixfold.engines.speech.engine import SpeechEngine
from tests.unit.engines.engine_runs import RunContext
from tests.unit.engines.speech.listening import pitch

RATE = 48_000
FOX = "The quick brown fox jumps over the lazy dog."


def synthesize(folder: Path, text: str = FOX, **inputs: Any) -> tuple[Artifact, RunContext]:
    context = RunContext(folder)
    result: Result = SpeechEngine().run(Task("t", "tts", {"text": text, **inputs}), context)
    return result.artifacts[0], context


def decoded_audio(folder: Path, text: str = FOX, **inputs: Any) -> NDArray[np.float32]:
    artifact, _ = synthesize(folder, text, **inputs)
    assert artifact.path is not None
    return files.read(artifact.path, RATE)


def test_catalog_lists_all_26_voices() -> None:
    known = list(voices.table())
    assert len(known) == 26
    assert known[0] == "ava"
    languages = [voice.language for voice in voices.table().values()]
    assert [languages.count(code) for code in ("en", "es", "fr", "de", "it", "pt")] == [10, 4, 4, 3, 2, 3]


@pytest.mark.nightly
def test_voices_differ_in_pitch_or_timbre(tmp_path: Path) -> None:
    measured: dict[str, tuple[float, float]] = {}
    for name in voices.table():
        wave = decoded_audio(tmp_path, voice=name, language="en", format="wav")
        power = np.abs(np.fft.rfft(wave)) ** 2
        center = float((power * np.fft.rfftfreq(wave.size, 1 / RATE)).sum() / power.sum())
        measured[name] = (pitch(wave, RATE), center)
    for first, second in itertools.combinations(measured, 2):
        apart = [abs(np.log(a / b)) for a, b in zip(measured[first], measured[second], strict=True)]
        same_language = voices.find(first).language == voices.find(second).language
        assert max(apart) > (0.05 if same_language else 0.004), (
            first,
            second,
            measured[first],
            measured[second],
        )


@pytest.mark.parametrize("speed", [0.25, 0.5, 2, 4])
def test_duration_is_inverse_to_the_speed(tmp_path: Path, speed: float) -> None:
    usual, duration = (synthesize(tmp_path, speed=at)[0].info["duration"] for at in (1, speed))
    assert duration == pytest.approx(usual / speed, rel=0.08)


@pytest.mark.parametrize("speed", [0.3, 3.5])
def test_pitch_is_independent_of_the_speed(tmp_path: Path, speed: float) -> None:
    usual, changed_pitch = (
        pitch(decoded_audio(tmp_path, voice="ben", speed=at, format="wav"), RATE) for at in (1, speed)
    )
    assert changed_pitch == pytest.approx(usual, rel=0.12)


@pytest.mark.parametrize(
    ("name", "kind"), [("mp3", "audio/mpeg"), ("opus", "audio/ogg"), ("wav", "audio/wav")]
)
def test_equal_text_gives_equal_bytes_in_every_format(tmp_path: Path, name: str, kind: str) -> None:
    results = [synthesize(tmp_path / str(number), format=name)[0] for number in range(2)]
    assert results[0].content_type == kind
    assert results[0].path is not None
    assert results[1].path is not None
    assert results[0].path.read_bytes() == results[1].path.read_bytes()
    assert files.read(results[0].path, RATE).size / RATE == pytest.approx(
        results[0].info["duration"], abs=0.06
    )


def test_voices_have_equal_loudness_and_never_clip(tmp_path: Path) -> None:
    for name in ("ava", "dan", "ines"):
        wave = decoded_audio(tmp_path, voice=name, format="wav")
        assert loudness.integrated(wave[None]) == pytest.approx(-18, abs=1.5)
        assert np.abs(wave).max() < 0.95
        assert np.abs(wave[:200]).max() < 0.02


def test_language_changes_the_pronunciation(tmp_path: Path) -> None:
    text = {
        code: espeak.phonemes("nation", voices.accent(voices.find("ava"), code))
        for code in ("en", "fr", "de")
    }
    assert len(set(text.values())) == 3
    lengths = {
        code: decoded_audio(tmp_path, "nation station", language=code).size for code in ("en", "fr", "de")
    }
    assert len(set(lengths.values())) == 3


def test_every_language_has_phonemes() -> None:
    for code in voices.LANGUAGES:
        assert espeak.phonemes("a", voices.accent(voices.find("ava"), code))


def test_long_text_is_synthesized_by_sentence(tmp_path: Path) -> None:
    text = "One. Two! Three? " * 4
    artifact, context = synthesize(tmp_path, text)
    assert len(context.fractions) > 10
    assert context.fractions == sorted(context.fractions)
    assert artifact.info["duration"] > 6
    assert "12 sentences" in context.lines[0]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Dr. Jones met Mr. Lee. They ate.", ["Dr. Jones met Mr. Lee.", "They ate."]),
        ("First line\n\nSecond **line**", ["First line", "Second line"]),
        ("Pi is 3.14 today.", ["Pi is 3.14 today."]),
        ("... !!! …", []),
        ("你好。再见。", ["你好。再见。"]),
    ],
)
def test_text_is_split_into_sentences(text: str, parts: list[str]) -> None:
    assert sentences.split(text) == parts


def test_sentences_are_split_at_the_length_limit() -> None:
    parts = sentences.split("word, " * 300 + "x" * 1500)
    assert max(map(len, parts)) <= sentences.MAX_CHARACTERS
    assert "".join("".join(parts).split()) == "word," * 300 + "x" * 1500


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({"text": "?!"}, "letters or digits"),
        ({"text": "Hi", "voice": "zoe"}, "'zoe' was not found"),
        ({"text": "Hi", "language": "klingon"}, "not supported"),
    ],
)
def test_text_that_cannot_be_spoken_is_refused_with_a_reason(
    tmp_path: Path, inputs: dict[str, Any], says: str
) -> None:
    with pytest.raises(UnusableInput, match=says):
        SpeechEngine().run(Task("t", "tts", inputs), RunContext(tmp_path))


def test_hostile_text_is_spoken_as_text(tmp_path: Path) -> None:
    text = 'One <audio src="file:///etc/hosts"/> [[ h@ ]] \0 \ud800 & two ' + "ab" * 600
    assert synthesize(tmp_path, text)[0].info["duration"] > 1


def test_time_stretch_keeps_the_pitch() -> None:
    tone = np.sin(np.arange(22_050) * 2 * np.pi * 200 / 22_050).astype(np.float32)
    for ratio in (0.4, 2.5):
        longer = time_stretch.to_length(tone, round(tone.size * ratio), 22_050)
        assert longer.size == pytest.approx(tone.size * ratio, rel=0.05)
        assert pitch(longer[1000:-1000], 22_050) == pytest.approx(200, rel=0.02)


@pytest.mark.parametrize(
    "data", [b"", b"RIFF", b"#EXTM3U\nfile:///etc/hosts", b"ffconcat version 1.0", b"\xff\xfb" + b"\0" * 99]
)
def test_non_audio_is_refused_without_opening_other_files(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "sound"
    path.write_bytes(data)
    with pytest.raises(UnusableInput):
        files.read(path, 16_000)


def test_audio_above_the_length_limit_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.wav"
    files.write(iter([np.zeros(48_000, np.float32)]), 16_000, "wav", path)
    with pytest.raises(UnusableInput, match="at most"):
        files.read(path, 16_000, 2)
