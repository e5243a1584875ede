"""Moderations and translations by the official client: by a provider, or a 503 with the remedy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import openai
import pytest
import pytest_asyncio

from tests.api.gateway import Gateway, running_gateway
from tests.fakes import fault_server
from tests.harness.backends import FILES

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    # The official client marks translated requests in this way.
    pytest.mark.filterwarnings("ignore:deprecated:DeprecationWarning"),
]
RECORDING = ("a.wav", fault_server.tone(60, 8000), "audio/wav")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """One app for all tests of this module."""
    async with running_gateway(tmp_path_factory.mktemp("judged"), settings=FILES) as first:
        models = ["omni-moderation-latest", "mistral-moderation-latest", "hear"]
        rows = {"acme": {"kind": "openai", "base_url": first.acme.url, "api_key": "sk", "models": models}}
        prices = {
            "acme/mistral-moderation-latest": {"input_per_million_usd": 100},
            "acme/hear": {"per_minute_usd": "0.06"},
        }
        folder = tmp_path_factory.mktemp("judged")
        async with running_gateway(folder, settings=FILES, upstreams=rows, prices=prices) as gateway:
            await gateway.app.server.gateway_runtime.refresh()
            yield Gateway(gateway.app, first.acme, first.anth)


@pytest.fixture
def gateway(shared: Gateway) -> Gateway:
    return shared.afresh()


async def test_moderation_without_a_model_uses_one_that_moderates(gateway: Gateway) -> None:
    answer = await gateway.openai().moderations.create(input=["a walk", "violence"])
    assert [result.flagged for result in answer.results] == [False, True]
    assert gateway.acme.requests[0].document == {
        "input": ["a walk", "violence"],
        "model": "omni-moderation-latest",
    }
    call = await gateway.last_call()
    # The bundled price is zero.
    assert (call["face"], call["cost_usd"]) == ("moderations", "0.00")


async def test_moderation_of_mistral_gets_its_flags(gateway: Gateway) -> None:
    answer = await gateway.openai().moderations.create(
        input=["a walk", "violence"], model="acme/mistral-moderation-latest"
    )
    assert [result.flagged for result in answer.results] == [False, True]
    call = await gateway.last_call()
    assert float(call["cost_usd"]) > 0
    assert call["usage"]["counted_by"] == "estimate"


@pytest.mark.parametrize("wrong", [None, "", [], 5, {"a": 1}, ["a"] * 1001])
async def test_invalid_moderation_input_is_400(gateway: Gateway, wrong: Any) -> None:
    response = await gateway.app.client.post(
        "/v1/moderations", json={"input": wrong}, headers=gateway.headers
    )
    assert (response.status_code, response.json()["error"]["param"]) == (400, "input")
    assert not gateway.acme.requests


async def test_failed_moderation_is_free(gateway: Gateway) -> None:
    for mode in ("fail", "garbage", "infinite", "many"):
        gateway.acme.mode = mode
        with pytest.raises(openai.InternalServerError):
            await gateway.openai().moderations.create(input="x", model="acme/mistral-moderation-latest")
        assert (await gateway.last_call())["cost_usd"] == "0.00"
    with pytest.raises(openai.NotFoundError):
        await gateway.openai().moderations.create(input="x", model="unknown")


async def test_without_a_moderator_the_remedy_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    async with running_gateway(tmp_path_factory.mktemp("none"), settings=FILES) as gateway:
        for model in ("omni-moderation-latest", ""):
            body = {"input": "x", "model": model}
            response = await gateway.app.client.post("/v1/moderations", json=body, headers=gateway.headers)
            assert (response.status_code, response.headers["x-should-retry"]) == (503, "false")
            assert "OPENAI_API_KEY" in response.json()["error"]["message"]


@pytest.mark.parametrize("shape", ["json", "verbose_json", "text"])
async def test_translation_is_forwarded_and_charged(gateway: Gateway, shape: Any) -> None:
    response: Any = await gateway.openai().audio.translations.create(
        model="acme/hear", file=RECORDING, response_format=shape, prompt="in short"
    )
    assert str(response if shape == "text" else response.text).strip() == "good morning"
    request = gateway.acme.requests[0]
    assert (request.path, request.document["prompt"]) == ("/v1/audio/translations", "in short")
    call = await gateway.last_call()
    assert (call["face"], call["cost_usd"]) == ("translations", "0.06" if shape == "text" else "0.03")


async def test_translation_without_whisper_is_503_with_remedy(gateway: Gateway) -> None:
    with pytest.raises(openai.InternalServerError) as excinfo:
        await gateway.openai().audio.translations.create(model="whisper-1", file=RECORDING)
    assert excinfo.value.status_code == 503
    assert "engines add listening" in cast("Any", excinfo.value.body)["message"]
    with pytest.raises(openai.BadRequestError) as unreadable_error:
        await gateway.openai().audio.translations.create(model="whisper-1", file=("a.wav", b"nothing"))
    assert unreadable_error.value.param == "file"
