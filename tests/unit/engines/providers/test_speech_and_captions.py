"""Speech, transcription and captions of a provider against a loopback server."""

from __future__ import annotations

import io
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import av
import pytest
from PIL import Image

from sixfold.api.gateway.openai.audio import routes as audio
from sixfold.core.catalog.engines import EngineError, UnusableInput
from sixfold.drivers.remote import ServerServices
from sixfold.engines.providers import model_table, speech_runs
from sixfold.engines.providers.caption import AnthropicCaption, OpenAICaption
from sixfold.engines.providers.openai import OpenAISpeechEngine, OpenAITranscriptionEngine
from sixfold.engines.speech import voices
from tests.fakes import fault_server
from tests.fakes import openai as fakes
from tests.unit.engines.providers import parts
from tests.unit.engines.providers.parts import LIMITS, Record

KEYS = {"openai_api_key": fakes.KEY, "anthropic_api_key": "sk-ant-canary"}


@pytest.fixture
async def outside() -> AsyncGenerator[ServerServices]:
    async with parts.server_services(KEYS) as ways:
        yield ways


def speaker(openai: fakes.OpenAI, outside: ServerServices, **options: Any) -> OpenAISpeechEngine:
    return OpenAISpeechEngine(outside, route="speech", base_url=openai.url, limits=LIMITS, **options)


def listener(openai: fakes.OpenAI, outside: ServerServices, **options: Any) -> OpenAITranscriptionEngine:
    return OpenAITranscriptionEngine(
        outside, route="listening", base_url=openai.url, limits=LIMITS, **options
    )


def seconds(path: Path) -> float:
    with av.open(str(path), "r") as container:
        return sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))


def transcribe(folder: Path) -> dict[str, Path]:
    path = folder / "said.wav"
    path.write_bytes(fault_server.tone(1.0))
    return {"audio_url": path}


# -- speaking ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mp3", "opus", "wav"])
async def test_speech_has_the_requested_format(
    openai: fakes.OpenAI, outside: ServerServices, record: Record, name: str
) -> None:
    text = "Good morning, dear friends."
    result = await speaker(openai, outside).run(
        parts.task("tts", prompt=text, voice="ben", speed=2, format=name), record
    )
    (artifact,) = result.artifacts
    assert artifact.path is not None
    assert seconds(artifact.path) == pytest.approx(0.01 * len(text), abs=0.06)
    assert (result.quality, result.data["voice"]) == ("full", "ben")
    assert result.upstream_cost_micros == 15 * len(text)
    (request,) = openai.faults.steps("speak")
    assert request.document == {
        "model": "tts-1",
        "input": text,
        "voice": "ash",
        "speed": 2.0,
        "response_format": "wav",
    }


async def test_long_text_uses_several_calls_for_one_file(
    openai: fakes.OpenAI, outside: ServerServices, record: Record
) -> None:
    text = " ".join(f"This is sentence number {number} of a long tale." for number in range(100))
    result = await speaker(openai, outside).run(parts.task("tts", prompt=text, format="wav"), record)
    texts = [call.document["input"] for call in openai.faults.steps("speak")]
    assert len(texts) == 3
    assert " ".join(texts) == text
    assert result.artifacts[0].info["duration"] == pytest.approx(0.02 * sum(map(len, texts)) + 0.52, abs=0.01)
    assert record.fractions == sorted(record.fractions)


async def test_another_server_has_its_own_model_and_voice(
    openai: fakes.OpenAI, outside: ServerServices, record: Record
) -> None:
    output = speaker(openai, outside, model="kokoro", inputs={"voice": "sage"}, price={"usd": "0"})
    result = await output.run(parts.task("tts", prompt="Hello."), record)
    (request,) = openai.faults.steps("speak")
    assert (request.document["model"], request.document["voice"]) == ("kokoro", "sage")
    assert result.upstream_cost_micros == 0


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (fault_server.answer(401, {"error": {"message": "no"}}), "key was refused"),
        (fault_server.answer(200, {"not": "a sound"}), "cannot be read"),
        (fault_server.answer(500, {}), None),
    ],
)
async def test_provider_failure_is_one_sentence_or_is_retried(
    openai: fakes.OpenAI,
    outside: ServerServices,
    record: Record,
    fault: fault_server.Fault,
    reason: str | None,
) -> None:
    openai.faults.add("speak", fault)
    run = speaker(openai, outside).run(parts.task("tts", prompt="Hello."), record)
    if reason is None:
        assert (await run).artifacts
        return
    with pytest.raises(EngineError, match=reason) as excinfo:
        await run
    assert fakes.KEY not in str(excinfo.value)


def test_each_voice_is_mapped_to_one_of_the_provider() -> None:
    theirs = model_table.route("openai", "speech").voices
    assert set(theirs) == set(voices.table())
    named = {name: theirs[ours] for name, ours in audio.VOICES.items()}
    assert all(named[name] == name for name in named if name in theirs.values())


# -- listening ---------------------------------------------------------------------------------------


async def test_transcript_has_segments_words_and_times(
    openai: fakes.OpenAI, outside: ServerServices, record: Record, tmp_path: Path
) -> None:
    task = parts.task("stt", transcribe(tmp_path), language="en-GB", timestamps=True)
    result = await listener(openai, outside).run(task, record)
    assert result.data["text"] == "good morning dear friends"
    assert (result.data["language"], result.data["duration"]) == ("en", 1.0)
    first, second = result.data["segments"]
    assert [word["word"] for word in first["words"]] == ["good", "morning"]
    assert [word["start"] for word in second["words"]] == [0.5, 0.75]
    assert first["confidence"] > second["confidence"] > 0.5
    assert result.billed == pytest.approx(1 / 60)
    assert result.upstream_cost_micros == 100
    ((name, recording),) = openai.uploads
    assert name == "recording.mp3"
    with av.open(io.BytesIO(recording), "r") as container:
        assert container.format.name == "mp3"
        assert sum(frame.samples for frame in container.decode(audio=0)) > 40_000
    (request,) = openai.faults.steps("listen")
    assert request.document == {
        "model": ["whisper-1"],
        "response_format": ["verbose_json"],
        "timestamp_granularities[]": ["segment", "word"],
        "language": ["en"],
    }


async def test_transcript_without_times_has_one_segment(
    openai: fakes.OpenAI, outside: ServerServices, record: Record, tmp_path: Path
) -> None:
    openai.faults.add("listen", fault_server.answer(200, {"text": " Hello there. "}))
    output = listener(openai, outside, inputs={"response_format": "json"})
    result = await output.run(parts.task("stt", transcribe(tmp_path)), record)
    assert result.data["text"] == "Hello there."
    assert [(each["start"], each["end"]) for each in result.data["segments"]] == [(0.0, 1.0)]
    assert result.data["confidence"] == 0
    assert "timestamp_granularities[]" not in openai.faults.steps("listen")[0].document


async def test_implausible_transcript_is_limited(
    openai: fakes.OpenAI, outside: ServerServices, record: Record, tmp_path: Path
) -> None:
    answer: dict[str, Any] = {"text": "Hello.", "language": "x" * 1_000_000}
    many = [{"start": 0, "end": 1, "text": "a"}] * (speech_runs._MAX_TIMES + 1)
    for more in ({}, {"language": [answer]}, {"segments": many}):
        openai.faults.add("listen", fault_server.answer(200, answer | more))
    task = parts.task("stt", transcribe(tmp_path))
    languages = [(await listener(openai, outside).run(task, record)).data["language"] for _ in range(2)]
    assert languages == ["x" * speech_runs._MAX_LANGUAGE_CHARS, ""]
    with pytest.raises(EngineError, match=r"20,000 segments and words \(got 20001\)"):
        await listener(openai, outside).run(task, record)


async def test_times_with_hundreds_of_digits_are_ignored(
    openai: fakes.OpenAI, outside: ServerServices, record: Record, tmp_path: Path
) -> None:
    segment = {"start": 10**400, "end": -(10**400), "text": " Hello.", "avg_logprob": -(10**400)}
    openai.faults.add("listen", fault_server.answer(200, {"text": "Hello.", "segments": [segment]}))
    result = await listener(openai, outside).run(parts.task("stt", transcribe(tmp_path)), record)
    assert [(each["start"], each["end"]) for each in result.data["segments"]] == [(0.0, 0.0)]


async def test_unreadable_recording_is_not_sent(
    openai: fakes.OpenAI, outside: ServerServices, record: Record, tmp_path: Path
) -> None:
    path = tmp_path / "said.wav"
    path.write_bytes(b"nothing")
    with pytest.raises(UnusableInput):
        await listener(openai, outside).run(parts.task("stt", {"audio_url": path}), record)
    assert openai.faults.requests == []


# -- captions ----------------------------------------------------------------------------------------


async def test_image_is_captioned_over_both_protocols(
    openai: fakes.OpenAI, outside: ServerServices, record: Record, tmp_path: Path
) -> None:
    task = parts.task("caption", {"image_url": parts.source(tmp_path, 3000, 200)})
    response = {}
    for engine in (OpenAICaption, AnthropicCaption):
        output = engine(outside, route="caption", base_url=openai.url, limits=LIMITS)
        result = await output.run(task, record)
        response[result.data["provider"]] = (result.data["text"], result.upstream_cost_micros, result.quality)
        assert (result.data["width"], result.data["height"]) == (3000, 200)
    assert response == {
        "openai": ("A red square on white.", 711, "full"),
        "anthropic": ("A red square on white.", 940, "full"),
    }
    first, second = openai.faults.steps("describe")
    assert (second.headers["x-api-key"], second.headers["anthropic-version"]) == (
        "sk-ant-canary",
        "2023-06-01",
    )
    image_url = first.document["messages"][0]["content"][1]["image_url"]["url"]
    kind, _, data = image_url.removeprefix("data:").partition(";base64,")
    source = second.document["messages"][0]["content"][0]["source"]
    assert source == {"type": "base64", "media_type": kind, "data": data}
    with Image.open(io.BytesIO(fakes.base64.b64decode(data))) as image:
        assert max(image.size) == 1024


async def test_response_without_a_caption_fails(
    openai: fakes.OpenAI, outside: ServerServices, record: Record, tmp_path: Path
) -> None:
    openai.faults.add("describe", fault_server.answer(200, {"choices": []}))
    result = OpenAICaption(outside, route="caption", base_url=openai.url, limits=LIMITS)
    with pytest.raises(EngineError, match="without text"):
        await result.run(parts.task("caption", {"image_url": parts.source(tmp_path)}), record)
