"""Text completions by the official client: forwarded unchanged, held and charged per choice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import openai
import pytest
import pytest_asyncio

from tests.api.gateway import PRICE, Gateway, running_gateway
from tests.harness.backends import FILES

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """One app for all tests of this module; `ollama` is a second name of the same server."""
    async with running_gateway(tmp_path_factory.mktemp("texts"), settings=FILES) as first:
        rows: dict[str, Any] = {
            "acme": {"kind": "openai", "base_url": first.acme.url, "api_key": "sk-1"},
            "anth": {"kind": "anthropic", "base_url": first.anth.url, "api_key": "k", "models": ["small"]},
            "ollama": {"kind": "ollama", "base_url": first.acme.url, "models": ["small"]},
        }
        policy: dict[str, Any] = {"upstreams": rows, "prices": {"acme/small": PRICE}, "max_tokens": 100}
        async with running_gateway(tmp_path_factory.mktemp("texts"), settings=FILES, **policy) as gateway:
            yield Gateway(gateway.app, first.acme, first.anth)


@pytest.fixture
def gateway(shared: Gateway) -> Gateway:
    return shared.afresh()


async def test_completion_is_forwarded_unchanged_and_charged(gateway: Gateway) -> None:
    answer = await gateway.openai().completions.create(
        model="acme/small", prompt="say 4 words", suffix="}", echo=True, logprobs=2, max_tokens=9
    )
    assert answer.object == "text_completion"
    assert answer.choices[0].text == "word word word word"
    request = gateway.acme.requests[0]
    assert (request.path, request.document["model"]) == ("/v1/completions", "small")
    assert {name: request.document[name] for name in ("suffix", "echo", "logprobs")} == {
        "suffix": "}",
        "echo": True,
        "logprobs": 2,
    }
    call = await gateway.last_call()
    assert (call["face"], call["cost_usd"]) == ("completions", "0.0045")  # 5 of input, 4 of output
    assert call["usage"]["counted_by"] == "server"


@pytest.mark.parametrize("include_usage", [True, False])
async def test_streamed_usage_is_charged_and_sent_on_request(gateway: Gateway, include_usage: bool) -> None:
    more: dict[str, Any] = {"stream_options": {"include_usage": True}} if include_usage else {}
    stream = await gateway.openai().completions.create(
        model="acme/small", prompt="say 4 words", max_tokens=9, stream=True, **more
    )
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == " word word word word"
    assert any(chunk.usage is not None for chunk in chunks) == include_usage
    assert (await gateway.settled())[0]["cost_usd"] == "0.0045"


async def test_unreported_usage_is_estimated_from_the_text(gateway: Gateway) -> None:
    gateway.acme.mode = "nousage"
    await gateway.openai().completions.create(model="acme/small", prompt="say 4 words", max_tokens=9)
    call = await gateway.last_call()
    assert call["usage"]["counted_by"] == "estimate"
    assert call["usage"]["output_tokens"] == 6  # 19 characters
    stream = await gateway.openai().completions.create(
        model="acme/small", prompt="say 4 words", max_tokens=9, stream=True
    )
    assert len([chunk async for chunk in stream]) == 5
    assert (await gateway.settled())[0]["usage"]["output_tokens"] == 6  # 20 characters


async def test_hold_counts_every_answer_of_every_prompt(gateway: Gateway) -> None:
    client = gateway.openai()
    single: Any = {"model": "acme/small", "max_tokens": 10}
    await client.completions.create(prompt="say 1 words", **single)
    single_hold = float((await gateway.last_call())["held_usd"])
    answer = await client.completions.create(prompt=["say 10 words", "say 10 words"], n=3, **single)
    assert len(answer.choices) == 6
    call = await gateway.last_call()
    assert call["usage"]["output_tokens"] == 60
    assert float(call["held_usd"]) >= single_hold + 0.05  # 60 tokens of output in place of 10
    # All choices are charged.
    assert call["cost_usd"] == "0.061"
    await client.completions.create(prompt=[1, 2, 3], best_of=2, **single)
    assert float((await gateway.last_call())["held_usd"]) < single_hold + 0.02


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"prompt": {"text": "x"}}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": ["a"] * 2049}, "prompt"),
        ({"n": 0}, "n"),
        ({"best_of": 129}, "best_of"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"model": None}, "model"),
    ],
)
async def test_invalid_request_is_400_and_names_its_field(gateway: Gateway, wrong: Any, param: str) -> None:
    body = {"model": "acme/small", "prompt": "say 4 words", **wrong}
    response = await gateway.app.client.post("/v1/completions", json=body, headers=gateway.headers)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param
    assert not gateway.acme.requests


async def test_server_without_completions_is_refused(gateway: Gateway) -> None:
    with pytest.raises(openai.BadRequestError) as excinfo:
        await gateway.openai().completions.create(model="anth/small", prompt="x")
    assert excinfo.value.param == "model"
    assert "does not support completions" in cast("Any", excinfo.value.body)["message"]
    assert not gateway.anth.requests


@pytest.mark.parametrize("field", [{"echo": True}, {"n": 2}, {"best_of": 3}])
async def test_field_that_the_server_ignores_is_refused(gateway: Gateway, field: Any) -> None:
    with pytest.raises(openai.BadRequestError) as excinfo:
        await gateway.openai().completions.create(model="ollama/small", prompt="x", **field)
    assert excinfo.value.param == next(iter(field))
    assert not gateway.acme.requests
    answer = await gateway.openai().completions.create(model="ollama/small", prompt="x", n=1, echo=False)
    assert answer.choices[0].text == "Hello there"
    assert (await gateway.last_call())["cost_usd"] == "0.00"


@pytest.mark.parametrize("mode", ["fail", "truncate"])
async def test_failed_completion_is_free(gateway: Gateway, mode: str) -> None:
    gateway.acme.mode = mode
    with pytest.raises(openai.APIStatusError) as excinfo:
        await gateway.openai().completions.create(model="acme/small", prompt="say 4 words")
    assert excinfo.value.status_code == 502
    assert (await gateway.last_call())["cost_usd"] == "0.00"


async def test_repeated_idempotency_key_is_charged_once(gateway: Gateway) -> None:
    headers = {**gateway.headers, "Idempotency-Key": "text"}
    body = {"model": "acme/small", "prompt": "say 4 words"}
    responses = [await gateway.app.client.post("/v1/completions", json=body, headers=headers) for _ in "ab"]
    assert responses[0].content == responses[1].content
    assert len(gateway.acme.requests) == 1
