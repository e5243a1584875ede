"""Images, audio and embeddings of a model server, by the official client: forwarded and charged."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any, cast

import httpx
import openai
import pytest
import pytest_asyncio

from sixfold.api.gateway.openai import passthrough
from sixfold.api.gateway.openai.audio import routes
from sixfold.core.accounts.keys import KeyLimits
from sixfold.web.bodies import BodyFields, FormPart
from tests.api.app_fixture import bearer
from tests.api.gateway import Gateway, listening, running_gateway
from tests.fakes import fault_server
from tests.fakes.openai_media import PIECE, PIECES
from tests.harness.backends import FILES

pytestmark = pytest.mark.asyncio(loop_scope="module")
IMAGE_BYTES = fault_server.image(8, 8)
PRICES = {
    "acme/vec": {"input_per_million_usd": 100},
    "acme/pic": {f"{kind}_per_million_usd": 100 for kind in ("input", "image_input", "image_output")},
    "acme/pic-each": {"per_image_usd": "0.05"},
    "acme/say": {"character_per_million_usd": 100},
    "acme/say-tokens": {"input_per_million_usd": 10, "audio_output_per_million_usd": 1000},
    "acme/hear": {"per_minute_usd": "0.06"},
    "acme/hear-tokens": {"input_per_million_usd": 100, "output_per_million_usd": 1000},
}  # fmt: skip
MODELS = [name.removeprefix("acme/") for name in PRICES]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """One app for all tests of this module."""
    async with running_gateway(tmp_path_factory.mktemp("elsewhere"), settings=FILES) as first:
        rows: dict[str, Any] = {
            name: {"kind": "openai", "base_url": server.url, "api_key": "sk-1", "models": [*MODELS, "free"]}
            for name, server in (("acme", first.acme), ("other", first.anth))
        }
        rows["near"] = {"kind": "openai", "base_url": first.acme.url, "local": True, "models": ["vec-near"]}
        rows["anth"] = {"kind": "anthropic", "base_url": first.anth.url, "api_key": "k", "models": ["small"]}
        prices = {**PRICES, "other/vec": PRICES["acme/vec"]}
        aliases = {"vectors": ["acme/vec", "other/vec"], "mixed": ["anth/small", "acme/vec"]}
        folder = tmp_path_factory.mktemp("elsewhere")
        async with running_gateway(
            folder, settings=FILES, upstreams=rows, prices=prices, aliases=aliases
        ) as gateway:
            yield Gateway(gateway.app, first.acme, first.anth)


@pytest.fixture
def gateway(shared: Gateway) -> Gateway:
    return shared.afresh()


# -- vectors ---------------------------------------------------------------------------------------


async def test_embeddings_are_charged_by_the_reported_tokens(gateway: Gateway) -> None:
    answer = await gateway.openai().embeddings.create(
        model="acme/vec", input=["a", "b"], dimensions=3, encoding_format="float"
    )
    assert [row.embedding for row in answer.data] == [[0.0, 1.0, 0.0], [0.0, 1.0, 1.0]]
    assert gateway.acme.requests[0].document["model"] == "vec"
    assert gateway.acme.requests[0].headers["authorization"] == "Bearer sk-1"
    call = await gateway.last_call()
    assert (call["face"], call["usage"]["input_tokens"], call["usage"]["counted_by"]) == (
        "embeddings",
        14,
        "server",
    )
    assert call["cost_usd"] == "0.0014"


async def test_hold_of_an_embedding_is_one_token_per_byte(gateway: Gateway) -> None:
    """Emoji and digits have more tokens than words, and a charge never exceeds the hold."""
    body = {"model": "acme/vec", "input": "9 9 9 9 🦊🦊🦊🦊"}
    answer = await gateway.app.client.post("/v1/embeddings", json=body, headers=gateway.headers)
    assert float((await gateway.last_call())["held_usd"]) * 10_000 == len(answer.request.content)


async def test_token_arrays_become_text_only_for_local_servers(gateway: Gateway) -> None:
    for model, sent in (("near/vec-near", ["hello world"]), ("acme/vec", [[15339, 1917]])):
        await gateway.openai().embeddings.create(model=model, input=[[15339, 1917]], encoding_format="float")
        assert gateway.acme.requests[-1].document["input"] == sent


async def test_failed_server_is_free_and_alias_falls_back(gateway: Gateway) -> None:
    gateway.acme.mode = "fail"
    answer = await gateway.openai().embeddings.create(model="vectors", input="a", encoding_format="float")
    assert len(answer.data) == 1
    assert (await gateway.last_call())["target"] == "other/vec"
    with pytest.raises(openai.InternalServerError) as excinfo:
        await gateway.openai().embeddings.create(model="acme/vec", input="a")
    assert excinfo.value.code == "generation_failed"
    assert (await gateway.last_call())["cost_usd"] == "0.00"


async def test_alias_uses_only_servers_with_embeddings(gateway: Gateway) -> None:
    answer = await gateway.openai().embeddings.create(model="mixed", input="a", encoding_format="float")
    assert answer.data
    assert (await gateway.last_call())["target"] == "acme/vec"


async def test_rejected_embedding_has_the_message_of_the_server(gateway: Gateway) -> None:
    gateway.acme.mode = "refuse"
    with pytest.raises(openai.BadRequestError) as excinfo:
        await gateway.openai().embeddings.create(model="acme/vec", input="a")
    assert (cast("Any", excinfo.value.body)["message"], excinfo.value.param) == ("It says so", "temperature")


async def test_malformed_response_of_the_server_is_an_error(gateway: Gateway) -> None:
    gateway.acme.mode = "garbage"
    with pytest.raises(openai.InternalServerError):
        await gateway.openai().embeddings.create(model="acme/vec", input="a")


async def test_unpriced_model_is_refused_and_own_names_are_kept(gateway: Gateway) -> None:
    with pytest.raises(openai.BadRequestError) as excinfo:
        await gateway.openai().embeddings.create(model="acme/free", input="a")
    assert excinfo.value.code == "unpriced_model"
    with pytest.raises(openai.APIStatusError) as unknown_error:
        await gateway.openai().embeddings.create(model="anth/small", input="a")
    assert unknown_error.value.status_code == 404
    assert not gateway.acme.requests


async def test_limited_key_may_use_its_services(gateway: Gateway) -> None:
    speaker = await gateway.app.limited_key(KeyLimits(services=("tts",)))
    assert (await gateway.openai(speaker).audio.speech.create(model="acme/say", input="a", voice="x")).content
    with pytest.raises(openai.PermissionDeniedError):
        await gateway.openai(speaker).embeddings.create(model="acme/vec", input="a")
    named = await gateway.app.limited_key(KeyLimits(services=("acme/vec",)))
    assert await gateway.openai(named).embeddings.create(model="acme/vec", input="a", encoding_format="float")


async def test_vectors_count_against_the_tokens_per_minute_of_a_key(gateway: Gateway) -> None:
    key = await gateway.app.limited_key(KeyLimits(tpm=1000))
    body = {"model": "acme/vec", "input": "word " * 700}
    statuses = [
        (await gateway.app.client.post("/v1/embeddings", json=body, headers=bearer(key))).status_code
        for _ in range(2)
    ]
    assert statuses == [200, 429]


async def test_repeated_idempotency_key_is_sent_and_charged_once(gateway: Gateway) -> None:
    headers = {**gateway.headers, "Idempotency-Key": "vectors"}
    body = {"model": "acme/vec", "input": "a"}
    responses = [
        await gateway.app.client.post("/v1/embeddings", json=body, headers=headers) for _ in range(2)
    ]
    assert responses[0].json() == responses[1].json()
    assert len(gateway.acme.requests) == 1
    spoken = {"model": "acme/say", "input": "a", "voice": "x"}
    headers["Idempotency-Key"] = "speech"
    responses = [
        await gateway.app.client.post("/v1/audio/speech", json=spoken, headers=headers) for _ in range(2)
    ]
    assert responses[0].content == responses[1].content
    assert len(responses[0].content) == PIECES * PIECE
    assert len(gateway.acme.requests) == 2


# -- images ----------------------------------------------------------------------------------------


async def test_images_are_charged_by_tokens_or_per_image(gateway: Gateway) -> None:
    client = gateway.openai()
    answer = await client.images.generate(model="acme/pic", prompt="a hill", n=2, quality="low")
    assert answer.data is not None
    assert [base64.b64decode(row.b64_json or "") for row in answer.data] == [IMAGE_BYTES] * 2
    assert (await gateway.last_call())["cost_usd"] == "0.0554"  # 10 of text, 544 of images
    await client.images.generate(model="acme/pic-each", prompt="a hill", n=3)
    assert (await gateway.last_call())["cost_usd"] == "0.15"
    gateway.acme.mode = "nousage"
    await client.images.generate(model="acme/pic", prompt="a hill", quality="low")
    call = await gateway.last_call()
    assert (call["usage"]["counted_by"], call["cost_usd"]) == ("estimate", "0.0602")


async def test_image_edit_forwards_every_file_with_its_name(gateway: Gateway) -> None:
    await gateway.openai().images.edit(
        model="acme/pic",
        image=[("one.png", IMAGE_BYTES, "image/png"), ("two.png", IMAGE_BYTES, "image/png")],
        mask=("mask.png", IMAGE_BYTES, "image/png"),
        prompt='at "dawn"\r\n',
        n=1,
        quality="low",
    )
    document = gateway.acme.requests[0].document
    assert (document["model"], document["prompt"], document["n"]) == ("pic", 'at "dawn"\r\n', "1")
    assert (document["image[]"], document["mask"]) == (
        ["two.png", len(IMAGE_BYTES)],
        ["mask.png", len(IMAGE_BYTES)],
    )
    assert (await gateway.last_call())["cost_usd"] == "0.0282"  # 10 of text, 272 of the image


async def test_every_file_of_an_edit_is_held(gateway: Gateway) -> None:
    images = [(f"{number}.png", IMAGE_BYTES, "image/png") for number in range(4)]
    await gateway.openai().images.edit(
        model="acme/pic",
        image=images,
        mask=("mask.png", IMAGE_BYTES, "image/png"),
        prompt="dawn",
        quality="low",
    )
    # 6,500 tokens for each file, 600 for the image and 2 for the prompt, at 100 USD per million.
    assert (await gateway.last_call())["held_usd"] == "3.3102"


async def test_a_repeated_field_is_sent_as_it_was_priced(gateway: Gateway) -> None:
    """The price is that of one image, whichever of the two fields the model server reads."""
    fields = [("model", "acme/pic-each"), ("prompt", "dawn"), ("n", "10"), ("n", "1")]
    form = [(name, (None, text)) for name, text in fields] + [("image[]", ("a.png", IMAGE_BYTES))] * 2
    response = await gateway.app.client.post("/v1/images/edits", files=form, headers=gateway.headers)
    assert response.status_code == 200
    raw, _ = passthrough.form(
        [FormPart(name, text.encode()) for name, text in fields] + [FormPart("image[]", b"x", "a.png")] * 2
    )
    assert (raw.count(b'name="n"'), raw.count(b"\r\n\r\n1\r\n"), raw.count(b'name="image[]"')) == (1, 1, 2)
    assert (await gateway.last_call())["cost_usd"] == "0.05"


async def test_streamed_images_are_events(gateway: Gateway) -> None:
    stream = await gateway.openai().images.generate(
        model="acme/pic", prompt="a hill", stream=True, partial_images=1, quality="low"
    )
    kinds = [event.type async for event in stream]
    assert kinds == ["image_generation.partial_image", "image_generation.completed"]
    assert (await gateway.last_call())["cost_usd"] == "0.0282"


# -- sound -----------------------------------------------------------------------------------------


async def test_speech_is_charged_per_character_and_streamed(gateway: Gateway) -> None:
    gateway.acme.mode = "trickle"
    body = {"model": "acme/say", "input": "x" * 100, "voice": "nobody-we-know"}
    async with (
        listening(gateway.app.asgi) as origin,
        httpx.AsyncClient(base_url=origin) as visitor,
        visitor.stream("POST", "/v1/audio/speech", json=body, headers=gateway.headers) as response,
    ):
        assert response.headers["content-type"] == "audio/mpeg"
        assert response.headers["x-sixfold-engine"] == "acme/say"
        received = b""
        async for block in response.aiter_bytes():
            received += block
            # The server sends the last piece only after this event.
            if len(received) == (PIECES - 1) * PIECE:
                gateway.acme.go_on.set()
    assert len(received) == PIECES * PIECE
    await gateway.settled()
    assert (await gateway.last_call())["cost_usd"] == "0.01"


async def test_disconnect_during_speech_is_charged(gateway: Gateway) -> None:
    gateway.acme.mode = "trickle"
    body = {"model": "acme/say", "input": "x" * 100, "voice": "nobody-we-know"}
    async with listening(gateway.app.asgi) as origin, httpx.AsyncClient(base_url=origin) as visitor:
        async with visitor.stream("POST", "/v1/audio/speech", json=body, headers=gateway.headers) as response:
            async for _ in response.aiter_bytes():
                break
        async with asyncio.timeout(60):
            await gateway.acme.disconnect_event.wait()
    call = (await gateway.settled())[0]
    async with asyncio.timeout(60):
        while call["status"] != "left":
            await asyncio.sleep(0.005)
            call = (await gateway.calls())[0]
    assert call["cost_usd"] == "0.01"
    assert await gateway.pending() == 0


async def test_speech_tokens_come_from_events_or_are_estimated(gateway: Gateway) -> None:
    body = {"model": "acme/say-tokens", "input": "x" * 150, "voice": "x"}
    response = await gateway.app.client.post(
        "/v1/audio/speech", json={**body, "stream_format": "sse"}, headers=gateway.headers
    )
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.count("data: ") == 2
    assert (await gateway.last_call())["cost_usd"] == "0.15005"  # 5 of text, 150 of sound
    await gateway.app.client.post("/v1/audio/speech", json=body, headers=gateway.headers)
    call = await gateway.last_call()
    assert (call["usage"]["counted_by"], call["cost_usd"]) == ("estimate", "0.20843")  # 10 s of speech


@pytest.mark.parametrize("shape", ["json", "verbose_json", "text"])
async def test_transcriptions_are_charged_by_the_minute(gateway: Gateway, shape: Any) -> None:
    file = ("a.wav", fault_server.tone(60, 8000), "audio/wav")
    response = await gateway.openai().audio.transcriptions.create(
        model="acme/hear", file=file, response_format=shape, language="en"
    )
    assert str(response if shape == "text" else response.text).strip() == "good morning"
    assert gateway.acme.requests[0].document["language"] == "en"
    # The server reports a duration of 30 s or nothing; the file has 60 s.
    assert (await gateway.last_call())["cost_usd"] == ("0.06" if shape == "text" else "0.03")


async def test_understated_duration_is_charged_by_the_server_duration(gateway: Gateway) -> None:
    """The header states a thousandth of the duration; the model server hears 30 s."""
    recording = bytearray(fault_server.tone(60, 8000))
    recording[28:32] = (1000 * 16_000).to_bytes(4, "little")
    file = ("a.wav", bytes(recording), "audio/wav")
    await gateway.openai().audio.transcriptions.create(model="acme/hear", file=file)
    assert (await gateway.last_call())["cost_usd"] == "0.03"
    assert await gateway.app.faults() == ()


async def test_only_the_priced_recording_is_sent(gateway: Gateway) -> None:
    long, short = (fault_server.tone(seconds, 8000) for seconds in (60, 1))
    fields: list[tuple[str, Any]] = [("model", (None, "acme/hear")), ("url", (None, "https://a.example/b"))]
    fields += [("file", (f"{len(data)}.wav", data, "audio/wav")) for data in (long, short)]
    await gateway.app.client.post("/v1/audio/transcriptions", files=fields, headers=gateway.headers)
    sent = gateway.acme.requests[-1].document
    assert sent == {"model": "hear", "file": [f"{len(short)}.wav", len(short)]}
    form = (FormPart("file", long, "a.wav"), FormPart("url", b"x"), FormPart("file", short, "b.wav"))
    call = routes.recording_call("transcriptions", BodyFields({"model": "m"}, parts=form), 1)
    assert (call.body.count(b"filename="), b'"b.wav"' in call.body) == (1, True)


async def test_streamed_transcription_is_charged_by_tokens(gateway: Gateway) -> None:
    file = ("a.wav", fault_server.tone(1, 8000), "audio/wav")
    stream = await gateway.openai().audio.transcriptions.create(
        model="acme/hear-tokens", file=file, stream=True
    )
    assert [event.type async for event in stream][-1] == "transcript.text.done"
    call = await gateway.last_call()
    assert (call["usage"]["input_tokens"], call["usage"]["output_tokens"], call["cost_usd"]) == (
        20,
        3,
        "0.005",
    )


async def test_invalid_recording_is_refused_before_the_upstream_call(gateway: Gateway) -> None:
    with pytest.raises(openai.BadRequestError) as excinfo:
        await gateway.openai().audio.transcriptions.create(model="acme/hear", file=("a.wav", b"nothing"))
    assert excinfo.value.param == "file"
    assert not gateway.acme.requests
    assert await gateway.app.faults() == ()
