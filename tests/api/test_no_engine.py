"""Uploads that no available engine supports: a 503 with the remedy in every protocol, and no retries."""

from __future__ import annotations

import io
import re
import wave
from collections.abc import AsyncIterator, Mapping
from typing import Any

import anthropic
import httpx
import httpx2
import openai
import pytest
import pytest_asyncio
from PIL import Image
from replicate.client import Client
from replicate.exceptions import ReplicateError

from sixfold.app import catalog as app_catalog
from tests.api.app_fixture import ORIGIN, AppFixture, running_app
from tests.harness import image_files
from tests.harness.backends import FILES
from tests.mcp.agent import Agent

pytestmark = pytest.mark.asyncio(loop_scope="module")
ABSENT = "sixfold_no_such_package"
SPEECH = "pip install 'sixfold[speech]'"
EMBEDDED = "pip install 'sixfold[embedded]'"


def without_engines() -> Mapping[str, Any]:
    """The bundled catalog on a machine where the packages of the embedded engines are missing."""
    document = app_catalog.models_document()
    engines = {
        name: {**row, "packages": [ABSENT]} if row["kind"] == "embedded" else row
        for name, row in document["engines"].items()
    }
    return {**document, "engines": engines}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AppFixture]:
    """A server that has no engine for any media."""
    folder = tmp_path_factory.mktemp("bare")
    async with running_app(folder, without_engines(), probe=False, **FILES) as result:
        yield result


def recording() -> bytes:
    """A second of silence as a WAV file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(16000)
        out.writeframes(bytes(32000))
    return file.getvalue()


def image_bytes(mode: str = "RGB") -> bytes:
    return image_files.encode(Image.new(mode, (32, 32)))


async def uploaded(app: AppFixture, data: bytes, kind: str) -> dict[str, Any]:
    headers = {**app.bearer, "Content-Type": kind}
    response = await app.client.post("/api/uploads", content=data, headers=headers)
    assert response.status_code == 201, response.text
    return response.json()


def unavailable(answer: httpx.Response, remedy: str) -> Any:
    """Check the status, the header against retries and the remedy; return the body."""
    assert answer.status_code == 503, answer.text
    assert answer.headers["x-should-retry"] == "false"
    assert remedy in answer.text.replace("\\u0027", "'")
    return answer.json()


# -- transcription ---------------------------------------------------------------------------------


async def test_openai_transcription_without_engine_is_503_with_remedy(bare: AppFixture) -> None:
    answer = await bare.client.post(
        "/v1/audio/transcriptions",
        files={"file": ("said.wav", recording(), "audio/wav")},
        data={"model": "whisper-1"},
        headers=bare.bearer,
    )
    error = unavailable(answer, SPEECH)["error"]
    assert (error["code"], error["type"]) == ("engine_unavailable", "server_error")


async def test_openai_transcription_of_invalid_audio_is_400_first(bare: AppFixture) -> None:
    response = await bare.client.post(
        "/v1/audio/transcriptions",
        files={"file": ("said.wav", b"no sound at all", "audio/wav")},
        data={"model": "whisper-1"},
        headers=bare.bearer,
    )
    assert (response.status_code, response.json()["error"]["param"]) == (400, "file")


@pytest.mark.parametrize("by", ["id", "url"])
async def test_service_transcription_of_an_upload_is_503_with_remedy(bare: AppFixture, by: str) -> None:
    upload = await uploaded(bare, recording(), "audio/wav")
    body = {"service": "stt", "audio_url": upload[by]}
    answer = await bare.client.post("/api/service", json=body, headers=bare.bearer)
    assert unavailable(answer, SPEECH)["code"] == "engine_unavailable"


async def test_queued_transcription_of_an_upload_is_503_with_remedy(bare: AppFixture) -> None:
    upload = await uploaded(bare, recording(), "audio/wav")
    for path, body in (
        ("/api/containers/stt/queue/join", {"input": {"audio_url": upload["id"]}}),
        (
            "/api/containers/speech-to-speech/queue/join",
            {"input": {"task": "transcribe", "audio": upload["id"]}},
        ),
    ):
        answer = await bare.client.post(path, json=body, headers=bare.bearer)
        assert unavailable(answer, SPEECH)["code"] == "engine_unavailable"


async def test_mounted_recording_is_503_and_unknown_mount_is_400(bare: AppFixture) -> None:
    upload = await uploaded(bare, recording(), "audio/wav")
    inputs = {"task": "transcribe", "audio": "/mnt/sixfold/artifacts/said.wav"}
    for path in ("run", "speech-to-speech/queue/join", "speech-to-speech/quote"):
        body = {"model": "speech-to-speech", "input": inputs, "_artifacts_mounts": {"said.wav": upload["id"]}}
        response = await bare.client.post(f"/api/containers/{path}", json=body, headers=bare.bearer)
        unavailable(response, SPEECH)
        body["_artifacts_mounts"] = {"other.wav": upload["id"]}
        response = await bare.client.post(f"/api/containers/{path}", json=body, headers=bare.bearer)
        assert (response.status_code, response.json()["code"]) == (400, "invalid_input")


async def test_replicate_client_with_a_file_gets_503_with_remedy(bare: AppFixture) -> None:
    transport = httpx.ASGITransport(bare.asgi, raise_app_exceptions=False)
    client = Client(bare.key, base_url=f"{ORIGIN}/replicate", transport=transport)
    inputs = {"audio_url": io.BytesIO(recording())}
    with pytest.raises(ReplicateError) as excinfo:
        await client.async_run("sixfold/stt", inputs, file_encoding_strategy="base64")
    assert excinfo.value.status == 503
    assert SPEECH in (excinfo.value.detail or "")


async def test_mcp_run_with_an_upload_names_the_remedy(bare: AppFixture) -> None:
    upload = await uploaded(bare, recording(), "audio/wav")
    response = await Agent(bare).error_of("run", model="stt", input={"audio_url": upload["id"]})
    assert SPEECH in response


async def test_workflow_with_uploaded_recording_is_503_with_remedy(bare: AppFixture) -> None:
    upload = await uploaded(bare, recording(), "audio/wav")
    for value in (upload["id"], upload["url"], "input/sample.wav"):
        answer = await bare.client.post(
            "/api/graph/spaces/speech-to-text/run", json={"input": {"audio_path": value}}, headers=bare.bearer
        )
        assert unavailable(answer, SPEECH)["code"] == "engine_unavailable"


async def test_comfyui_prompt_with_recording_is_503_with_remedy(bare: AppFixture) -> None:
    files = {"image": ("said.wav", recording(), "audio/wav")}
    response = await bare.client.post("/upload/image", files=files, headers=bare.bearer)
    assert response.status_code == 200, response.text
    space = await bare.client.get("/api/graph/spaces/speech-to-text/download")
    graph = space.json()
    graph["1"]["inputs"]["audio"] = response.json()["name"]
    answer = await bare.client.post("/prompt", json={"prompt": graph}, headers=bare.bearer)
    unavailable(answer, SPEECH)


# -- other media -----------------------------------------------------------------------------------


async def test_openai_image_edit_without_engine_is_503_with_remedy(bare: AppFixture) -> None:
    for files in (
        {"image": ("a.png", image_bytes(), "image/png")},
        {"image": ("a.png", image_bytes(), "image/png"), "mask": ("m.png", image_bytes("RGBA"), "image/png")},
    ):
        answer = await bare.client.post(
            "/v1/images/edits", files=files, data={"prompt": "x", "model": "ra2"}, headers=bare.bearer
        )
        assert unavailable(answer, EMBEDDED)["error"]["code"] == "engine_unavailable"


async def test_media_api_upload_without_engine_is_503_with_remedy(bare: AppFixture) -> None:
    upload = await uploaded(bare, image_bytes(), "image/png")
    for value in (upload["id"], upload["url"]):
        body = {"image_url": value, "api_key": bare.key}
        answer = await bare.client.post("/api/remove-background", json=body)
        response = unavailable(answer, EMBEDDED)
        assert set(response) == {"error", "status"}


async def test_image_service_upload_without_engine_is_503_with_remedy(bare: AppFixture) -> None:
    upload = await uploaded(bare, image_bytes(), "image/png")
    body = {"source_image_url": upload["url"], "style_prompt": "watercolour"}
    answer = await bare.client.post("/api/style-transfer", json=body, headers=bare.bearer)
    assert EMBEDDED in unavailable(answer, "pip install")["detail"]


async def test_nothing_is_charged_where_no_engine_serves(bare: AppFixture) -> None:
    before = await bare.balance()
    upload = await uploaded(bare, image_bytes(), "image/png")
    body = {"model": "upscaler", "input": {"image": upload["id"]}}
    answer = await bare.client.post("/api/containers/run", json=body, headers=bare.bearer)
    unavailable(answer, "sixfold engines add upscale")
    assert await bare.balance() == before
    assert await bare.faults() == ()


# -- retries of the official clients ---------------------------------------------------------------


class CountingTransport(httpx2.ASGITransport):
    """Transport into the application that counts its requests."""

    count = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.count += 1
        return await super().handle_async_request(request)


async def test_openai_client_sends_one_request_where_no_retry_helps(bare: AppFixture) -> None:
    transport = CountingTransport(bare.asgi, client=("127.0.0.1", 40000))
    client = openai.AsyncOpenAI(
        api_key=bare.key,
        base_url=f"{ORIGIN}/v1",
        http_client=httpx2.AsyncClient(transport=transport),
        max_retries=2,
    )
    with pytest.raises(openai.InternalServerError) as excinfo:
        await client.audio.transcriptions.create(model="whisper-1", file=("a.wav", recording()))
    assert (excinfo.value.status_code, excinfo.value.code) == (503, "engine_unavailable")
    with pytest.raises(openai.InternalServerError):
        await client.chat.completions.create(model="gpt-5", messages=[{"role": "user", "content": "hi"}])
    assert transport.count == 2


async def test_anthropic_client_sends_one_request_where_no_retry_helps(bare: AppFixture) -> None:
    transport = CountingTransport(bare.asgi, client=("127.0.0.1", 40000))
    client = anthropic.AsyncAnthropic(
        api_key=bare.key, base_url=ORIGIN, http_client=httpx2.AsyncClient(transport=transport), max_retries=2
    )
    with pytest.raises(anthropic.InternalServerError) as excinfo:
        await client.messages.create(
            model="claude", max_tokens=5, messages=[{"role": "user", "content": "hi"}]
        )
    assert re.search(r"`sixfold engines add chat`", str(excinfo.value))
    assert transport.count == 1
