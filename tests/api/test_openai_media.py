"""Images, audio and embeddings by the official client, from the engines of this server."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import av
import httpx2
import numpy as np
import openai
import pytest
import pytest_asyncio
from PIL import Image, ImageDraw

from sixfold.api.gateway.openai.media_jobs import MediaJobRequest, MediaJobRunner
from sixfold.app import catalog as app_catalog
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.service import PredictionService
from sixfold.errors import EngineFailed
from tests.api.app_fixture import AppFixture, running_app
from tests.harness import image_files
from tests.harness.backends import FILES

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def real(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AppFixture]:
    """A server with the bundled catalog and its own engines."""
    async with running_app(
        tmp_path_factory.mktemp("media"), app_catalog.models_document(), **FILES
    ) as result:
        yield result


def client(app: AppFixture, key: str | None = None) -> openai.AsyncOpenAI:
    """Return the official client, unmodified except for its base URL."""
    visitor = httpx2.AsyncClient(transport=httpx2.ASGITransport(app.asgi, client=("127.0.0.1", 40000)))
    return openai.AsyncOpenAI(
        api_key=key or app.key, base_url="http://127.0.0.1:8600/v1", http_client=visitor, max_retries=0
    )


async def post(app: AppFixture, path: str, body: Any) -> Any:
    return await app.client.post(path, json=body, headers=app.bearer)


async def paid(app: AppFixture, before: float) -> float:
    """Return the amount charged since, with nothing on hold."""
    posted, held = await app.balance()
    assert held == "0.00"
    return round(before - float(posted), 6)


def png(mode: str = "RGB", size: tuple[int, int] = (96, 64), color: Any = (40, 90, 160)) -> bytes:
    """Return a plain image with a dot in the middle, which is transparent for a mask."""
    image = Image.new(mode, size, color)
    middle = (size[0] // 2 - 8, size[1] // 2 - 8, size[0] // 2 + 8, size[1] // 2 + 8)
    ImageDraw.Draw(image).ellipse(middle, (0, 0, 0, 0) if mode == "RGBA" else (240, 200, 40))
    return image_files.encode(image)


def decoded_image(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


# -- vectors ---------------------------------------------------------------------------------------


async def test_embeddings_as_numbers_and_base64_are_equal(real: AppFixture) -> None:
    before = float((await real.balance())[0])
    plain = await client(real).embeddings.create(
        model="embeddings", input=["a red fox", "a red foxes' den"], encoding_format="float"
    )
    packed = await client(real).embeddings.create(model="embeddings", input="a red fox")
    first, second = (row.embedding for row in plain.data)
    assert len(first) == len(second) == 384
    assert packed.data[0].embedding == pytest.approx(first, abs=1e-6)
    assert math.fsum(a * b for a, b in zip(first, second, strict=True)) > 0.3
    assert plain.usage.total_tokens > 0
    assert await paid(real, before) == 0.0003


async def test_text_with_line_breaks_is_one_input(real: AppFixture) -> None:
    answer = await client(real).embeddings.create(model="embeddings", input="one\ntwo\nthree")
    assert len(answer.data) == 1


# -- images ----------------------------------------------------------------------------------------


async def test_image_of_the_requested_size_is_at_its_url(real: AppFixture) -> None:
    before = float((await real.balance())[0])
    size: Any = "256x192"
    answer = await client(real).images.generate(model="dall-e-3", prompt="a lake at dawn", size=size)
    assert answer.data is not None
    assert answer.data[0].url is not None
    file = await real.client.get(answer.data[0].url)
    assert decoded_image(file.content).size == (256, 192)
    assert await paid(real, before) == 0.04


async def test_several_images_differ_and_each_is_charged(real: AppFixture) -> None:
    before = float((await real.balance())[0])
    body = {"model": "gpt-image-1", "prompt": "a fox", "n": 2, "size": "128x128", "output_format": "webp"}
    document = (await post(real, "/v1/images/generations", body)).json()
    first, second = (base64.b64decode(row["b64_json"]) for row in document["data"])
    assert first != second
    assert (decoded_image(first).format, decoded_image(first).size) == ("WEBP", (128, 128))
    assert document["output_format"] == "webp"
    assert await paid(real, before) == 0.08


async def test_edit_changes_the_uploaded_image(real: AppFixture) -> None:
    before = float((await real.balance())[0])
    answer = await client(real).images.edit(
        model="gpt-image-1", image=("photo.png", png(), "image/png"), prompt="watercolour"
    )
    assert answer.data is not None
    assert answer.data[0].b64_json is not None
    painted = decoded_image(base64.b64decode(answer.data[0].b64_json))
    assert painted.size == (96, 64)
    assert painted.convert("RGB").tobytes() != decoded_image(png()).convert("RGB").tobytes()
    assert await paid(real, before) == 0.04


async def test_several_images_are_edited_side_by_side(real: AppFixture) -> None:
    before = float((await real.balance())[0])
    answer = await client(real).images.edit(
        model="gpt-image-1", image=[png(), png(size=(64, 64)), png()], prompt="watercolour"
    )
    assert answer.data is not None
    assert answer.data[0].b64_json is not None
    # Scaled to one height, in one row.
    assert decoded_image(base64.b64decode(answer.data[0].b64_json)).size == (96 + 64 + 96, 64)
    assert await paid(real, before) == 0.04


async def test_image_edit_removes_the_transparent_part_of_the_mask(real: AppFixture) -> None:
    answer = await client(real).images.edit(
        model="gpt-image-1", image=png(), mask=png("RGBA", color=(0, 0, 0, 255)), prompt="nothing there"
    )
    assert cast("Any", answer).ignored == ["nothing", "there"]
    assert answer.data is not None
    assert answer.data[0].b64_json is not None
    cleaned = decoded_image(base64.b64decode(answer.data[0].b64_json)).convert("RGB")
    middle = cleaned.crop((44, 28, 52, 36)).tobytes()
    expected = Image.new("RGB", (8, 8), (40, 90, 160)).tobytes()
    assert max(abs(first - second) for first, second in zip(middle, expected, strict=True)) < 30
    assert await real.faults() == ()


# -- sound -----------------------------------------------------------------------------------------


CODECS = {"mp3": "mp3", "opus": "opus", "wav": "pcm_s16le", "flac": "flac", "aac": "aac"}


@pytest.mark.parametrize(("kind", "codec"), CODECS.items())
async def test_speech_is_bytes_that_decode(real: AppFixture, kind: Any, codec: str) -> None:
    before = float((await real.balance())[0])
    response = await client(real).audio.speech.create(
        model="gpt-4o-mini-tts", input="Good morning.", voice="alloy", response_format=kind
    )
    with av.open(io.BytesIO(response.content), "r") as container:
        stream = container.streams.audio[0]
        assert stream.codec_context.name.startswith(codec)
        assert sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0)) > 0.4
    assert await paid(real, before) == 0.002


async def test_raw_speech_is_sixteen_bits_at_24_khz_without_a_header(real: AppFixture) -> None:
    talk = client(real).audio.speech
    raw = await talk.create(model="tts-1", input="Good morning.", voice="alloy", response_format="pcm")
    wav = await talk.create(model="tts-1", input="Good morning.", voice="alloy", response_format="wav")
    assert raw.response.headers["content-type"] == "audio/pcm"
    with av.open(io.BytesIO(wav.content), "r") as container:
        frames = [frame.to_ndarray()[0] for frame in container.decode(audio=0)]
    samples = np.concatenate(frames).astype(np.float64)
    half = np.frombuffer(raw.content, "<i2").astype(np.float64)
    assert half.size == pytest.approx(samples.size / 2, abs=24)
    even = samples[: 2 * half.size : 2][: half.size]
    assert np.corrcoef(half[: even.size], even)[0, 1] > 0.95


async def test_transcription_formats_have_the_same_text(real: AppFixture) -> None:
    talk = client(real)
    spoken = await talk.audio.speech.create(
        model="tts-1", input="Hello. How are you today?", voice="ava", response_format="wav"
    )
    file = ("hello.wav", spoken.content, "audio/wav")
    plain = await talk.audio.transcriptions.create(model="whisper-1", file=file)
    full_transcription = await talk.audio.transcriptions.create(
        model="stt", file=file, response_format="verbose_json", timestamp_granularities=["word", "segment"]
    )
    assert plain.text
    assert full_transcription.text == plain.text
    assert full_transcription.duration > 1
    assert full_transcription.segments
    assert full_transcription.words
    assert full_transcription.words[0].end > full_transcription.words[0].start
    assert (
        plain.text.strip()
        == str(await talk.audio.transcriptions.create(model="stt", file=file, response_format="text")).strip()
    )
    srt = await talk.audio.transcriptions.create(model="stt", file=file, response_format="srt")
    vtt = await talk.audio.transcriptions.create(model="stt", file=file, response_format="vtt")
    assert str(srt).startswith("1\n00:00:0")
    assert "," in str(srt).splitlines()[1]
    assert str(vtt).startswith("WEBVTT\n\n00:00:0")


# -- events ----------------------------------------------------------------------------------------


async def test_images_arrive_as_completed_events(real: AppFixture) -> None:
    before = float((await real.balance())[0])
    size: Any = "128x128"
    result = await client(real).images.generate(
        model="gpt-image-1", prompt="a fox", n=2, size=size, stream=True, partial_images=2
    )
    events: list[Any] = [event async for event in result]
    assert [event.type for event in events] == ["image_generation.completed"] * 2
    assert {decoded_image(base64.b64decode(event.b64_json)).size for event in events} == {(128, 128)}
    assert (events[0].size, events[0].output_format) == ("128x128", "png")
    assert await paid(real, before) == 0.08
    edited = await client(real).images.edit(
        model="gpt-image-1", image=("photo.png", png(), "image/png"), prompt="watercolour", stream=True
    )
    (event,) = [event async for event in edited]
    assert event.type == "image_edit.completed"
    assert decoded_image(base64.b64decode(event.b64_json)).size == (96, 64)


async def test_transparent_background_is_cut_out_at_the_price_of_both(real: AppFixture) -> None:
    before = float((await real.balance())[0])
    response: Any = await client(real).images.generate(
        model="gpt-image-1", prompt="a red fox, blorptastic", size="256x256", background="transparent", n=2
    )
    images = [decoded_image(base64.b64decode(image.b64_json)) for image in response.data]
    assert [(image.mode, image.size) for image in images] == [("RGBA", (256, 256))] * 2
    assert all(image.getchannel("A").getextrema()[0] == 0 for image in images)
    assert "fox" in response.understood
    assert response.ignored == ["blorptastic"]
    prices = {model: real.server.catalog[model].price for model in ("ra2", "remove-background")}
    assert all(prices.values())
    page = (await real.client.get("/api/containers/predictions?limit=4", headers=real.bearer)).json()
    newest = page["predictions"]
    assert [row["model"] for row in newest] == ["remove-background"] * 2 + ["ra2"] * 2
    assert await paid(real, before) == round(sum(float(row["cost"]) for row in newest), 6)

    stream: Any = await client(real).images.edit(
        model="gpt-image-1",
        image=("photo.png", png(), "image/png"),
        prompt="watercolour",
        background="transparent",
        stream=True,
    )
    (event,) = [event async for event in stream]
    assert (event.background, event.output_format) == ("transparent", "png")
    assert decoded_image(base64.b64decode(event.b64_json)).mode == "RGBA"


async def test_transparent_background_needs_the_right_to_cut_out(real: AppFixture) -> None:
    before = float((await real.balance())[0])
    limited = await real.limited_key(KeyLimits(services=("ra2",)))
    with pytest.raises(openai.PermissionDeniedError, match="remove-background"):
        await client(real, limited).images.generate(prompt="x", background="transparent")
    assert await paid(real, before) == 0


@pytest.mark.parametrize(
    ("error", "message"),
    [(EngineFailed("No subject was found"), "No subject"), (RuntimeError("x"), "Generation failed")],
)
async def test_image_whose_background_stays_is_refunded(
    real: AppFixture, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    run = MediaJobRunner.run

    async def run_or_fail(runner: MediaJobRunner, job: MediaJobRequest) -> Any:
        if job.model == "remove-background":
            raise error
        return await run(runner, job)

    monkeypatch.setattr(MediaJobRunner, "run", run_or_fail)
    before = float((await real.balance())[0])
    with pytest.raises(openai.APIStatusError, match=message):
        await client(real).images.generate(prompt="a fox", size="256x256", background="transparent")
    assert await paid(real, before) == 0


async def test_image_readable_before_its_cut_out_is_charged(real: AppFixture) -> None:
    before = float((await real.balance())[0])
    path = "/api/containers/predictions"

    async def newest() -> list[dict[str, Any]]:
        return (await real.client.get(f"{path}?limit=2", headers=real.bearer)).json()["predictions"]

    earlier = {row["id"] for row in await newest()}
    body = {"prompt": "a fox", "size": "256x256", "background": "transparent"}
    request = asyncio.create_task(post(real, "/v1/images/generations", body))
    async with asyncio.timeout(60):
        while len(rows := [row for row in await newest() if row["id"] not in earlier]) < 2:  # noqa: ASYNC110 - polled
            await asyncio.sleep(0)
    cutout, image = rows
    await real.client.delete(f"{path}/{cutout['id']}", headers=real.bearer)
    assert (await request).status_code == 409
    assert (await real.client.get(image["output"]["url"])).status_code == 200
    assert await paid(real, before) == float(image["cost"]) > 0

    key = await real.limited_key(KeyLimits(budget_day=50_000))
    before = float((await real.balance())[0])
    with pytest.raises(openai.RateLimitError, match="budget"):
        await client(real, key).images.generate(prompt="a fox", size="256x256", background="transparent")
    assert await paid(real, before) == float(image["cost"])


async def test_image_whose_cut_out_is_late_is_charged(
    real: AppFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = PredictionService.wait

    async def wait_or_not(service: PredictionService, run: Prediction, seconds: float, **options: Any) -> Any:
        # Other runs of the account can take all workers until the time is over.
        late = run.model == "remove-background" and "patient" in options
        return run if late else await wait(service, run, seconds, **options)

    monkeypatch.setattr(PredictionService, "wait", wait_or_not)
    before = float((await real.balance())[0])
    with pytest.raises(openai.APIStatusError, match="SIXFOLD_INLINE_SECONDS"):
        await client(real).images.generate(prompt="a fox", size="256x256", background="transparent")
    response = await real.client.get("/api/containers/predictions?limit=2", headers=real.bearer)
    _cutout, image = response.json()["predictions"]
    assert (await real.client.get(image["output"]["url"])).status_code == 200
    assert await paid(real, before) == float(image["cost"]) > 0


async def test_failed_image_stream_is_an_error_and_free(real: AppFixture) -> None:
    before = float((await real.balance())[0])
    with pytest.raises(openai.BadRequestError):
        await client(real).images.edit(
            model="gpt-image-1", image=("a.png", b"nothing", "image/png"), prompt="x", stream=True
        )
    mask = png("RGBA", color=(0, 0, 0, 255))
    with pytest.raises(openai.BadRequestError) as excinfo:
        await client(real).images.edit(model="gpt-image-1", image=[png(), png()], mask=mask, prompt="x")
    assert excinfo.value.param == "image"
    assert await paid(real, before) == 0


async def test_speech_events_add_up_to_the_file(real: AppFixture) -> None:
    body = {"model": "tts-1", "input": "Good morning.", "voice": "alloy", "response_format": "wav"}
    plain = await post(real, "/v1/audio/speech", body)
    response = await post(real, "/v1/audio/speech", {**body, "stream_format": "sse"})
    assert response.headers["content-type"].startswith("text/event-stream")
    blocks = [block.split("\n") for block in response.text.strip().split("\n\n")]
    events = [json.loads(lines[1].removeprefix("data: ")) for lines in blocks]
    assert [lines[0] for lines in blocks] == [f"event: {event['type']}" for event in events]
    assert {event["type"] for event in events[:-1]} == {"speech.audio.delta"}
    assert events[-1]["type"] == "speech.audio.done"
    assert b"".join(base64.b64decode(event["audio"]) for event in events[:-1]) == plain.content


async def test_transcript_deltas_add_up_to_the_text(real: AppFixture) -> None:
    talk = client(real).audio
    spoken = await talk.speech.create(
        model="tts-1", input="Hello. How are you today?", voice="ava", response_format="wav"
    )
    file = ("hello.wav", spoken.content, "audio/wav")
    full_transcription = await talk.transcriptions.create(model="stt", file=file)
    stream = await talk.transcriptions.create(model="stt", file=file, stream=True)
    events: list[Any] = [event async for event in stream]
    assert "".join(event.delta for event in events[:-1]) == full_transcription.text
    assert (events[-1].type, events[-1].text) == ("transcript.text.done", full_transcription.text)
    for options in ({"response_format": "diarized_json"}, {"response_format": "srt", "stream": True}):
        with pytest.raises(openai.BadRequestError) as excinfo:
            await talk.transcriptions.create(model="stt", file=file, **cast("Any", options))
        assert excinfo.value.param == "response_format"


# -- what all of them share ------------------------------------------------------------------------


async def test_models_list_has_the_own_media_models(real: AppFixture) -> None:
    names = {model.id async for model in client(real).models.list()}
    assert names >= {"ra2", "tts", "stt", "embeddings"}
    assert (await client(real).models.retrieve("tts")).owned_by == "sixfold"


@pytest.mark.parametrize(
    ("path", "body", "param", "status"),
    [
        ("embeddings", {"input": []}, "input", 400),
        ("embeddings", {"input": [[1, 2.5]]}, "input", 400),
        ("embeddings", {"input": ""}, "input", 400),
        ("embeddings", {"input": "a", "dimensions": 7}, "dimensions", 400),
        ("embeddings", {"input": "a", "encoding_format": "int8"}, "encoding_format", 400),
        ("embeddings", {"input": "a", "model": "gpt-9"}, None, 404),
        ("embeddings", {"input": "a", "model": 5}, "model", 400),
        ("images/generations", {}, "prompt", 400),
        ("images/generations", {"prompt": "x", "n": 11}, "n", 400),
        ("images/generations", {"prompt": "x", "n": 10**400}, "n", 400),
        ("images/generations", {"prompt": "x", "size": "big"}, "size", 400),
        ("images/generations", {"prompt": "x", "size": "9000x9000"}, "size", 400),
        ("images/generations", {"prompt": "x", "response_format": "gif"}, "response_format", 400),
        ("images/generations", {"prompt": "x", "background": "clear"}, "background", 400),
        (
            "images/generations",
            {"prompt": "x", "background": "transparent", "output_format": "jpeg"},
            "output_format",
            400,
        ),
        ("images/generations", {"prompt": "x", "partial_images": 4}, "partial_images", 400),
        ("images/generations", {"prompt": "x", "output_compression": 50}, "output_compression", 400),
        (
            "images/generations",
            {"prompt": "x", "stream": True, "response_format": "url"},
            "response_format",
            400,
        ),
        ("audio/speech", {"input": "a", "voice": "ava", "stream_format": "ws"}, "stream_format", 400),
        ("images/generations", {"prompt": "x", "model": "custom:nobody"}, None, 404),
        ("images/edits", {"prompt": "x"}, "image", 400),
        ("audio/speech", {"voice": "alloy"}, "input", 400),
        ("audio/speech", {"input": "a", "voice": "nobody"}, "voice", 400),
        ("audio/speech", {"input": "a" * 10_001, "voice": "ava"}, "input", 400),
        ("audio/speech", {"input": "a", "voice": "ava", "response_format": "aiff"}, "response_format", 400),
        ("audio/speech", {"input": "a", "voice": "ava", "speed": 9}, "speed", 400),
        ("audio/transcriptions", {"model": "stt"}, "file", 400),
    ],
)
async def test_invalid_request_is_free_and_names_its_parameter(
    real: AppFixture, path: str, body: Any, param: str | None, status: int
) -> None:
    before = await real.balance()
    answer = await post(real, f"/v1/{path}", body)
    response = answer.json()["error"]
    assert (answer.status_code, response["param"]) == (status, param), response
    assert response["type"] == "invalid_request_error"
    assert response["message"]
    assert param == "prompt" or "prompt" not in response["message"]
    assert await real.balance() == before


async def test_invalid_media_file_is_refused_and_names_its_parameter(real: AppFixture) -> None:
    for recording in (b"no sound at all", b"RIFF....WAVE"):
        with pytest.raises(openai.BadRequestError) as excinfo:
            await client(real).audio.transcriptions.create(model="stt", file=("a.wav", recording))
        assert excinfo.value.param == "file"
    with pytest.raises(openai.BadRequestError) as excinfo:
        await client(real).images.edit(model="ra2", image=("a.png", b"no picture"), prompt="x")
    assert excinfo.value.param == "image"


async def test_openai_client_gets_its_errors_for_key_funds_and_scope(real: AppFixture) -> None:
    with pytest.raises(openai.AuthenticationError):
        await client(real, "sf_wrong").embeddings.create(model="embeddings", input="a")
    with pytest.raises(openai.APIStatusError) as excinfo:
        await client(real, real.poor).images.generate(prompt="x")
    assert (excinfo.value.status_code, excinfo.value.code) == (402, "insufficient_credits")
    limited = await real.limited_key(KeyLimits(services=("embeddings",)))
    assert await client(real, limited).embeddings.create(model="embeddings", input="a")
    with pytest.raises(openai.PermissionDeniedError):
        await client(real, limited).images.generate(prompt="x")


async def test_repeated_idempotency_key_returns_the_same_images(real: AppFixture) -> None:
    before = float((await real.balance())[0])
    headers = {**real.bearer, "Idempotency-Key": "picture"}
    body = {"prompt": "a hill", "size": "64x64", "n": 2}
    first, second = [
        await real.client.post("/v1/images/generations", json=body, headers=headers) for _ in range(2)
    ]
    assert json.loads(first.content) == json.loads(second.content)
    assert await paid(real, before) == 0.08


async def test_failed_or_unaffordable_group_of_images_is_free(tmp_path: Path) -> None:
    async with running_app(tmp_path, **FILES) as app:
        response = await post(app, "/v1/images/generations", {"prompt": "FAIL", "n": 3})
        assert (response.status_code, response.json()["error"]["code"]) == (502, "generation_failed")
        await app.until("5.00", "0.00")
        rich = {"prompt": "x", "n": 10}
        for _ in range(12):
            assert (await post(app, "/v1/images/generations", rich)).status_code == 200
        assert (await post(app, "/v1/images/generations", rich)).status_code == 402
        await app.until("0.20", "0.00")
        assert await app.faults() == ()
