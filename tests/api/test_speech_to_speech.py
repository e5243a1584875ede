"""speech-to-speech with a language model: transcription, reply, synthesis, and charges by time."""

from __future__ import annotations

import io
import json
import wave
from pathlib import Path
from typing import Any

import av
import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.database import many
from sixfold.engines import availability as engine_availability
from tests.api.app_fixture import AppFixture, running_app
from tests.api.gateway import Gateway, running_gateway

RUN = "/api/containers/run"


async def run(app: AppFixture, **inputs: Any) -> Any:
    body = {"model": "speech-to-speech", "input": inputs}
    return await app.client.post(RUN, json=body, headers=app.bearer)


async def synthesize(gateway: Gateway) -> str:
    body = {"model": "tts", "input": "Hello. How are you today?", "voice": "ava", "response_format": "wav"}
    sound = await gateway.app.client.post("/v1/audio/speech", json=body, headers=gateway.headers)
    response = await gateway.app.client.post(
        "/api/uploads", content=sound.content, headers={**gateway.headers, "Content-Type": "audio/wav"}
    )
    return response.json()["url"]


async def test_text_input_gets_a_text_and_an_audio_response(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, models=app_catalog.models_document()) as gateway:
        body = (await run(gateway.app, text="say 3 words", system_prompt="Be short")).json()
        assert body["status"] == "succeeded", body
        text = body["output"]
        assert (text["text"], text["heard"]) == ("word word word", "say 3 words")
        read = gateway.app.database.read
        (part,) = await read(many("lineage_parts", parent_id=body["id"], limit=9, most_chars=0))
        (row,) = await read(many("prediction_by_id", id=part["id"]))
        assert (row["model"], row["keyless"]) == ("tts", 0), "a key asked for it"
        sound = await gateway.app.client.get(text["audio"]["url"])
        with av.open(io.BytesIO(sound.content), "r") as container:
            assert sum(frame.samples for frame in container.decode(audio=0)) > 8000
        assert body["quality"] == "preview"
        assert 0 < float(body["cost"]) < 0.1
        transcript = (await run(gateway.app, audio=await synthesize(gateway), audio_format="wav")).json()
        assert transcript["status"] == "succeeded", transcript
        assert transcript["output"]["heard"]
        assert transcript["output"]["audio"]["content_type"] == "audio/wav"
        chat = (await run(gateway.app, task="chat", audio=await synthesize(gateway))).json()
        assert chat["output"]["heard"], chat
        for task in ("converse", "chat"):
            empty = await run(gateway.app, task=task)
            assert empty.status_code == 400, "refused before it is queued"
            assert empty.json()["errors"] == [{"input": "text", "message": "text or audio is required"}]
        assert await gateway.app.faults() == ()


async def test_chat_uses_its_history_and_returns_no_audio(tmp_path: Path) -> None:
    before = [{"role": "user", "text": "My name is Ada"}, {"role": "assistant", "text": "Hello, Ada"}]
    async with running_gateway(tmp_path, models=app_catalog.models_document()) as gateway:
        body = (await run(gateway.app, task="chat", text="say 2 words", history=json.dumps(before))).json()
        assert body["output"] == {"task": "chat", "text": "word word", "heard": "say 2 words"}, body
        assert "My name is Ada" in str([*gateway.acme.requests, *gateway.anth.requests])
        for thinks in (False, True):
            await run(gateway.app, task="chat", text="say 1 word", enable_reasoning=thinks)
            request = (*gateway.anth.requests, *gateway.acme.requests)[-1]
            assert ("reasoning_effort" in request.document) is thinks
        wrong = (await run(gateway.app, task="chat", text="x", history="[1]")).json()
        assert "history" in str(wrong)


async def test_missing_language_model_is_503_with_remedy(tmp_path: Path) -> None:
    async with running_app(tmp_path, app_catalog.models_document(), probe=False) as app:
        response = await run(app, text="hello")
        assert (response.status_code, response.json()["code"]) == (503, "engine_unavailable")
        assert "gateway.upstreams" in response.json()["error"]


@pytest.mark.parametrize(
    ("missing", "inputs", "lacks"),
    [
        ("pocketsphinx", {"task": "converse", "audio": "recording"}, "stt"),
        ("espeakng_loader", {"task": "converse", "text": "say 2 words"}, "tts"),
    ],
)
async def test_run_whose_child_has_no_engine_is_refused_with_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, inputs: dict[str, Any], lacks: str
) -> None:
    importable = engine_availability.is_importable
    monkeypatch.setattr(
        engine_availability, "is_importable", lambda name: name != missing and importable(name)
    )
    async with running_gateway(tmp_path, models=app_catalog.models_document()) as gateway:
        if "audio" in inputs:
            response = await gateway.app.client.post(
                "/api/uploads", content=_silence(), headers={**gateway.headers, "Content-Type": "audio/wav"}
            )
            inputs = {**inputs, "audio": response.json()["url"]}
        for path, body in (
            (RUN, {"model": "speech-to-speech", "input": inputs}),
            ("/api/containers/speech-to-speech/queue/join", {"input": inputs}),
            ("/api/service", {"service": "speech-to-speech", **inputs}),
        ):
            answer = await gateway.app.client.post(path, json=body, headers=gateway.headers)
            assert answer.status_code == 503, (path, answer.text)
            sentence = (
                f"speech-to-speech with task {inputs['task']} requires {lacks}: No engine can serve {lacks}"
            )
            assert sentence in answer.text
            assert "pip install" in answer.text
        assert (await gateway.app.client.get("/api/containers/predictions", headers=gateway.headers)).json()[
            "predictions"
        ] == []


def _silence() -> bytes:
    sound = io.BytesIO()
    with wave.open(sound, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(bytes(32000))
    return sound.getvalue()


async def test_speak_works_without_recognizer_and_transcribe_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    importable = engine_availability.is_importable
    monkeypatch.setattr(
        engine_availability, "is_importable", lambda name: name != "pocketsphinx" and importable(name)
    )
    async with running_app(tmp_path, app_catalog.models_document(), probe=False) as app:
        synthesize = (await run(app, task="speak", text="hello")).json()
        assert synthesize["status"] == "succeeded", synthesize
        response = await app.client.post(
            "/api/uploads", content=_silence(), headers={**app.bearer, "Content-Type": "audio/wav"}
        )
        result = await run(app, task="transcribe", audio=response.json()["url"])
        assert result.status_code == 503
        assert "No engine can serve speech-to-speech with task transcribe here." in result.json()["error"]
