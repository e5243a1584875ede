"""Speech, forecasts, captions and embeddings by the real engines, over HTTP."""

from __future__ import annotations

import base64
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from sixfold.app import catalog as app_catalog
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.harness import image_files

RUN = "/api/containers/run"


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[AppFixture]:
    """A server with the bundled catalog and its own engines."""
    async with running_app(tmp_path, app_catalog.models_document()) as result:
        yield result


async def run(real: AppFixture, model: str, **inputs: Any) -> Any:
    """Run a template; return the response."""
    return await real.client.post(RUN, json={"model": model, "input": inputs}, headers=real.bearer)


def seconds(data: bytes) -> float:
    """Return the duration of an audio file by its decoded samples."""
    with av.open(io.BytesIO(data), "r") as container:
        return sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))


@pytest.mark.parametrize(
    ("model", "inputs", "kind"),
    [
        ("tts", {"text": "Good morning.", "voice": "felix", "format": "wav"}, "audio/wav"),
        ("tts", {"prompt": "Good morning."}, "audio/mpeg"),
        ("tts-a", {"response_format": "opus", "speed": 2}, "audio/ogg"),
        ("tts-b", {"text": "Buenos días.", "voice": "lucia"}, "audio/mpeg"),
        ("tts-b-gpu", {"text": "Bom dia.", "voice": "ines", "format": "wav"}, "audio/wav"),
    ],
)
async def test_every_speech_model_returns_decodable_audio(
    real: AppFixture, model: str, inputs: dict[str, Any], kind: str
) -> None:
    response = await run(real, model, **inputs)
    body = response.json()
    assert (response.status_code, body["status"], body["quality"]) == (200, "succeeded", "preview"), body
    output = body["output"]
    assert output["content_type"] == kind
    sound = await real.client.get(output["url"])
    assert abs(seconds(sound.content) - output["duration"]) < 0.1
    assert output["duration"] > 0.5


async def test_speech_has_its_price(real: AppFixture) -> None:
    body = (await run(real, "tts", prompt="Good morning.")).json()
    assert body["cost"] == "0.002"


REFUSED: list[tuple[str, dict[str, Any], list[str]]] = [
    ("tts", {}, ["prompt"]),
    ("tts", {"text": "a", "voice": "zoe", "speed": 9, "format": "aiff"}, ["voice", "speed", "format"]),
    ("tts-b", {"text": " "}, ["text"]),
    ("stt", {}, ["audio_url"]),
    ("forecast", {"series": "many", "horizon": 0}, ["series", "horizon"]),
    ("forecast", {"series": [1, "x"], "levels": [101]}, ["series", "levels"]),
    ("forecast", {"series": []}, ["series"]),
    ("embeddings", {"texts": "\n \n"}, ["texts"]),
    ("embeddings", {"texts": ["a", 5]}, ["texts"]),
    ("caption", {}, ["image_url"]),
]


@pytest.mark.parametrize(("model", "inputs", "named"), REFUSED)
async def test_invalid_inputs_are_named_before_queueing(
    real: AppFixture, model: str, inputs: dict[str, Any], named: list[str]
) -> None:
    response = await run(real, model, **inputs)
    assert (response.status_code, response.json()["code"]) == (400, "invalid_input")
    assert [problem["input"] for problem in response.json()["errors"]] == named


@pytest.mark.parametrize("model", ["tts-a", "tts-b", "tts-b-gpu"])
async def test_voice_sample_without_weights_is_503_and_names_them(real: AppFixture, model: str) -> None:
    response = await run(real, model, text="Hello.", voice_sample="https://example.com/voice.wav")
    body = response.json()
    assert (response.status_code, body["code"]) == (503, "engine_unavailable")
    assert f"No engine can serve {model} with voice_sample here." in body["error"]
    assert "chatterbox" in body["error"]
    assert "Piper" not in body["error"]
    assert await real.balance() == ("5.00", "0.00")


@pytest.mark.parametrize("task", ["converse", "chat"])
async def test_conversation_without_a_chat_model_is_503_with_remedy(real: AppFixture, task: str) -> None:
    response = await run(real, "speech-to-speech", task=task, text="Hello.")
    assert (response.status_code, response.json()["code"]) == (503, "engine_unavailable")
    assert "chat model" in response.json()["error"]


async def test_transcription_is_charged_by_the_minute(real: AppFixture) -> None:
    pytest.importorskip("pocketsphinx", reason="needs the extra `speech`")
    spoken = (
        await run(real, "speech-to-speech", task="speak", text="Open the door.", audio_format="wav")
    ).json()
    assert spoken["output"]["text"] == "Open the door."
    assert spoken["output"]["audio"]["content_type"] == "audio/wav"
    url = spoken["output"]["audio"]["url"]
    body = (await run(real, "stt", audio=url)).json()
    assert body["status"] == "succeeded", body
    output = body["output"]
    assert set(output) == {"text", "segments", "language", "confidence", "duration"}
    assert 0 < output["confidence"] <= 1
    words = [word for segment in output["segments"] for word in segment["words"]]
    assert all(0 <= word["start"] < word["end"] <= output["duration"] + 0.1 for word in words)
    assert 0 < float(body["cost"]) <= 0.006 * output["duration"] / 60 + 1e-6
    call = {"service": "stt", "audio_url": url}
    direct = (await real.client.post("/api/service", json=call, headers=real.bearer)).json()
    assert (direct["text"], direct["segments"]) == (output["text"], output["segments"])
    assert (await run(real, "stt", audio_url=url, language="fi")).status_code == 503
    transcript = (await run(real, "speech-to-speech", task="transcribe", audio=url)).json()
    assert transcript["output"]["text"] == output["text"]


async def test_transcription_rejects_a_file_without_audio(real: AppFixture) -> None:
    pytest.importorskip("pocketsphinx", reason="needs the extra `speech`")
    data = base64.b64encode(b"#EXTM3U\nfile:///etc/hosts\n").decode()
    response = await run(real, "stt", audio_url=f"data:audio/mpeg;base64,{data}")
    assert response.status_code == 400
    assert "audio_url: The file is not an audio file" in response.json()["error"]
    assert await real.balance() == ("5.00", "0.00")


async def test_forecast_has_mean_intervals_model_and_backtest(real: AppFixture) -> None:
    series = [100 + 0.5 * at + 10 * np.sin(at * np.pi / 6) for at in range(60)]
    body = (await run(real, "forecast", series=series, horizon=12)).json()
    output = body["output"]
    assert set(output) == {"mean", "intervals", "model", "season_length", "seasons", "backtest"}
    assert len(output["mean"]) == 12
    assert list(output["intervals"]) == ["80", "95"]
    assert body["cost"] == "0.001"
    assert body["quality"] == "full"


async def test_invalid_series_is_named_in_the_error(real: AppFixture) -> None:
    response = await real.client.post(
        "/api/service", json={"service": "forecast", "series": [1, {"t": 2, "y": 3}]}, headers=real.bearer
    )
    assert response.status_code == 400
    assert '"series"' in response.text


async def test_embeddings_accept_a_list_lines_or_json(real: AppFixture) -> None:
    ways: list[Any] = [
        ["a red fox", "a blue boat"],
        "a red fox\na blue boat\n",
        '["a red fox", "a blue boat"]',
    ]
    answers = [(await run(real, "embeddings", texts=way)).json() for way in ways]
    assert all(answer["output"] == answers[0]["output"] for answer in answers)
    output = answers[0]["output"]
    assert set(output) == {"embeddings", "dimensions", "model"}
    assert [len(row) for row in output["embeddings"]] == [output["dimensions"]] * 2
    quote = real.predictions.quote("embeddings", {"texts": ["a", "b", "c"]})
    assert quote.price.cost == "0.0003"


async def test_caption_describes_the_measured_color_and_size(real: AppFixture) -> None:
    url = image_files.data_uri(image_files.encode(Image.new("RGB", (64, 48), (20, 40, 200))))
    body = (await run(real, "caption", image_url=url)).json()
    assert "blue" in body["output"]["text"]
    assert (body["output"]["width"], body["output"]["height"]) == (64, 48)
    assert (body["quality"], body["cost"]) == ("preview", "0.002")


async def test_speech_of_another_account_is_not_found(real: AppFixture) -> None:
    body = (await run(real, "tts", prompt="A secret.")).json()
    response = await real.client.get(body["urls"]["get"], headers=bearer(real.other))
    assert response.status_code == 404
