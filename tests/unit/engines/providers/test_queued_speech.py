"""fal's and Replicate's speech models against loopback servers: requests, results and refusals."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator
from pathlib import Path

import av
import pytest

from sixfold.core.catalog.engines import EngineError
from sixfold.drivers.remote import ServerServices
from sixfold.engines.providers import model_table
from sixfold.engines.providers.fal import FalSpeechEngine, FalTranscriptionEngine
from sixfold.engines.providers.replicate import ReplicateSpeechEngine, ReplicateTranscriptionEngine
from sixfold.engines.speech import voices
from sixfold.net import data_uris
from tests.fakes import fal as fal_fakes
from tests.fakes import fault_server
from tests.fakes import replicate as replicate_fakes
from tests.unit.engines.providers import parts
from tests.unit.engines.providers.parts import LIMITS, Record

TEXT = "Good morning, dear friends of the harbour."
Fakes = tuple[fal_fakes.Fal, replicate_fakes.Replicate]


@pytest.fixture
async def fakes() -> AsyncGenerator[Fakes]:
    async with fal_fakes.running() as first, replicate_fakes.running() as second:
        yield first, second


def speakers(fakes: Fakes, outside: ServerServices) -> list[FalSpeechEngine | ReplicateSpeechEngine]:
    return [
        FalSpeechEngine(outside, route="speech", base_url=fakes[0].url, limits=LIMITS),
        ReplicateSpeechEngine(outside, route="speech", base_url=fakes[1].url, limits=LIMITS),
    ]


def listeners(
    fakes: Fakes, outside: ServerServices
) -> list[FalTranscriptionEngine | ReplicateTranscriptionEngine]:
    return [
        FalTranscriptionEngine(outside, route="listening", base_url=fakes[0].url, limits=LIMITS),
        ReplicateTranscriptionEngine(outside, route="listening", base_url=fakes[1].url, limits=LIMITS),
    ]


def recording(folder: Path, seconds: float = 1.6) -> dict[str, Path]:
    path = folder / "said.wav"
    path.write_bytes(fault_server.tone(seconds))
    return {"audio_url": path}


async def test_text_uses_the_voice_mapped_for_each_provider(
    fakes: Fakes, outside: ServerServices, record: Record
) -> None:
    for speaker in speakers(fakes, outside):
        task = parts.task("tts", prompt=TEXT, voice="ben", speed=2, format="wav", language="de")
        result = await speaker.run(task, record)
        assert result.artifacts[0].info["duration"] == pytest.approx(0.01 * len(TEXT), abs=0.06)
        assert (result.quality, result.data["voice"]) == ("full", "ben")
        assert result.upstream_cost_micros == 60 * len(TEXT)
    assert [job.inputs for job in fakes[0].jobs.values()] == [
        {
            "text": TEXT,
            "voice_setting": {"voice_id": "Casual_Guy", "speed": 2.0},
            "language_boost": "German",
            "output_format": "url",
        }
    ]
    assert [job.inputs for job in fakes[1].jobs.values()] == [
        {
            "text": TEXT,
            "voice_id": "Casual_Guy",
            "speed": 2.0,
            "language_boost": "German",
            "audio_format": "wav",
        }
    ]


@pytest.mark.parametrize("speed", [0.25, 4])
async def test_unsupported_speed_is_applied_by_the_server(
    fakes: Fakes, outside: ServerServices, record: Record, speed: float
) -> None:
    for speaker in speakers(fakes, outside):
        result = await speaker.run(parts.task("tts", prompt=TEXT, speed=speed, format="wav"), record)
        lasting = 0.02 * len(TEXT) / speed
        assert result.artifacts[0].info["duration"] == pytest.approx(lasting, rel=0.1)


async def test_long_text_uses_several_calls_with_rising_progress(
    fakes: Fakes, outside: ServerServices, record: Record
) -> None:
    text = " ".join(f"This is sentence number {number} of a long tale." for number in range(60))
    await speakers(fakes, outside)[0].run(parts.task("tts", prompt=text, speed=2), record)
    assert " ".join(job.inputs["text"] for job in fakes[0].jobs.values()) == text
    assert len(fakes[0].jobs) == 2
    assert record.fractions == sorted(record.fractions)


async def test_transcript_has_the_times_of_the_model(
    fakes: Fakes, outside: ServerServices, record: Record, tmp_path: Path
) -> None:
    for listener in listeners(fakes, outside):
        task = parts.task("stt", recording(tmp_path), language="en-GB")
        result = await listener.run(task, record)
        assert result.data["text"] == "good morning dear friends"
        assert [segment["text"] for segment in result.data["segments"]] == ["good morning", "dear friends"]
        assert result.data["language"] == "en"
        assert result.billed == pytest.approx(1.6 / 60)
        words = [word for segment in result.data["segments"] for word in segment["words"]]
        if isinstance(listener, FalTranscriptionEngine):
            assert [word["start"] for word in words] == [0.0, 0.2, 1.2, 1.4]
            assert result.upstream_cost_micros is None
        else:
            assert result.data["confidence"] == pytest.approx(0.77, abs=0.02)
            assert result.upstream_cost_micros == 282  # 1.25 seconds of a T4
    (job,) = fakes[0].jobs.values()
    sent = data_uris.parse_data_uri(job.inputs["audio_url"], 1 << 20)
    assert (sent.content_type, job.inputs["language"]) == ("audio/mpeg", "en")
    with av.open(io.BytesIO(sent.body), "r") as container:
        assert sum(frame.samples for frame in container.decode(audio=0)) > 70_000


async def test_long_recording_is_deleted_from_the_file_store_after_use(
    fakes: Fakes, outside: ServerServices, record: Record, tmp_path: Path
) -> None:
    await listeners(fakes, outside)[1].run(parts.task("stt", recording(tmp_path, 25.0)), record)
    (job,) = fakes[1].jobs.values()
    assert job.inputs["audio"].startswith(f"{fakes[1].url}/files/")
    assert fakes[1].stored == {}
    assert "language" not in job.inputs


async def test_response_without_audio_or_text_fails(
    fakes: Fakes, outside: ServerServices, record: Record, tmp_path: Path
) -> None:
    fakes[0].faults.add(
        "result", fault_server.answer(200, {"audio": {}}), fault_server.answer(200, {"chunks": []})
    )
    with pytest.raises(EngineError, match="fal did not return audio"):
        await speakers(fakes, outside)[0].run(parts.task("tts", prompt=TEXT), record)
    with pytest.raises(EngineError, match="fal did not return text"):
        await listeners(fakes, outside)[0].run(parts.task("stt", recording(tmp_path)), record)


async def test_canceled_speech_is_canceled_at_both_providers(
    fakes: Fakes, outside: ServerServices, record: Record
) -> None:
    for fake, speaker in zip(fakes, speakers(fakes, outside), strict=True):
        fake.ends = False
        task = asyncio.create_task(speaker.run(parts.task("tts", prompt=TEXT), record))
        await fake.faults.event("status" if isinstance(fake, fal_fakes.Fal) else "look").wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(fake.faults.steps("cancel")) == 1


def test_each_voice_is_mapped_to_one_of_the_provider() -> None:
    for provider in ("fal", "replicate"):
        assert set(model_table.route(provider, "speech").voices) == set(voices.table())
