"""Providers with OpenAI's API through the gateway: lists, streams, tools, images, charges and errors."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from sixfold.core.gateway import capabilities
from tests.api.gateway import Gateway, running_gateway
from tests.fakes.hosted_providers import KEY, PROFILES, HostedProvider, hosted_provider
from tests.harness import image_files

PRICE = {"input_per_million_usd": "2", "output_per_million_usd": "10", "cached_input_per_million_usd": "0.5"}
NAMES = sorted(PROFILES)
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
STREAM = {"stream": True, "stream_options": {"include_usage": True}}


@asynccontextmanager
async def served(
    folder: Path, name: str, *, key: str = KEY, price: bool = True, **policy: Any
) -> AsyncIterator[tuple[Gateway, HostedProvider]]:
    """A gateway to one provider, whose models cost 2 and 10 USD per million tokens."""
    async with hosted_provider(name) as fake:
        tables = {
            "upstreams": {name: {"kind": name, "base_url": fake.url, "api_key": key}},
            "prices": {f"{name}/m": PRICE} if price else {},
            "aliases": {},
            **policy,
        }
        async with running_gateway(folder, **tables) as gateway:
            yield gateway, fake


@pytest.mark.parametrize("name", NAMES)
async def test_the_official_client_works_with_every_provider(tmp_path: Path, name: str) -> None:
    async with served(tmp_path, name) as (gateway, fake):
        client: Any = gateway.openai()
        model, message = f"{name}/m", [{"role": "user", "content": "say 3 words"}]
        options = {"max_completion_tokens": 50, "seed": 7, "user": "ada"}
        full_response = await client.chat.completions.create(model=model, messages=message, **options)
        assert full_response.choices[0].message.content == "word word word"
        stream = await client.chat.completions.create(model=model, messages=message, **options, **STREAM)
        chunks = [chunk async for chunk in stream]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == "word word word"
        called = await client.chat.completions.create(model=model, messages=message, tools=[TOOL])
        (call,) = called.choices[0].message.tool_calls or []
        answered = [
            *message,
            called.choices[0].message.model_dump(),
            {"role": "tool", "tool_call_id": call.id, "content": "rain"},
        ]
        final = await client.chat.completions.create(model=model, messages=answered, tools=[TOOL])
        assert final.choices[0].message.content == "The tool said rain"
        pixel = image_files.data_uri(b"png")
        part = {"type": "image_url", "image_url": {"url": pixel}}
        response = await client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": [part]}]
        )
        assert response.choices[0].message.content == "I see a picture"
        assert {each.headers.get(fake.profile.header) for each in fake.requests} == {
            f"{fake.profile.scheme}{KEY}"
        }


@pytest.mark.parametrize("name", NAMES)
async def test_an_anthropic_client_works_with_every_provider(tmp_path: Path, name: str) -> None:
    async with served(tmp_path, name) as (gateway, _):
        text = await gateway.anthropic().messages.create(
            model=f"{name}/m", max_tokens=50, messages=[{"role": "user", "content": "say 2 words"}]
        )
        assert [block.text for block in text.content if block.type == "text"] == ["word word"]


@pytest.mark.parametrize("name", NAMES)
async def test_a_call_costs_what_the_reported_usage_costs(tmp_path: Path, name: str) -> None:
    async with served(tmp_path, name) as (gateway, _):
        for more in ({}, {"stream": True}):
            assert (await gateway.chat("say 20 words", model=f"{name}/m", **more)).status_code == 200
        calls = await gateway.settled(2)
        cached = 0 if name == "mistral" else 4
        micros = (10 - cached) * 2 + cached * 0.5 + 20 * 10
        assert {float(call["cost_usd"]) for call in calls} == {round(micros) / 1_000_000}
        assert {call["usage"]["cached_tokens"] for call in calls} == {cached}
        assert {call["usage"]["counted_by"] for call in calls} == {"server"}


@pytest.mark.parametrize(
    ("name", "mode", "status"),
    [
        (name, mode, {"key": 502, "credit": 502, "limit": 429, "filter": 400}[mode])
        for name in NAMES
        for mode in PROFILES[name].errors
    ],
)
async def test_a_refused_call_is_free(tmp_path: Path, name: str, mode: str, status: int) -> None:
    async with served(tmp_path, name) as (gateway, fake):
        fake.mode = mode
        for stream in (False, True):
            response = await gateway.chat(model=f"{name}/m", stream=stream)
            assert response.status_code == status, response.text
            assert KEY not in response.text
            if mode == "limit":
                assert response.headers["retry-after"] == "7"
        assert {call["cost_usd"] for call in await gateway.settled(2)} == {"0.00"}
        assert await gateway.pending() == 0


async def test_content_filter_error_has_the_message_of_the_provider(tmp_path: Path) -> None:
    for name, text in (("azure", "content management policy"), ("openrouter", "input was flagged")):
        async with served(tmp_path / name, name) as (gateway, fake):
            fake.mode = "filter"
            with pytest.raises(openai.BadRequestError, match=text):
                await gateway.openai().chat.completions.create(
                    model=f"{name}/m", messages=[{"role": "user", "content": "say 3 words"}]
                )


async def test_openrouter_is_charged_as_it_bills(tmp_path: Path) -> None:
    async with served(tmp_path, "openrouter", price=False) as (gateway, fake):
        for more in ({}, {"stream": True}):
            await gateway.chat("say 20 words", model="openrouter/qwen/qwen3-vl", **more)
        calls = await gateway.settled(2)
        assert {call["cost_usd"] for call in calls} == {"0.00123"}
        assert calls[0]["charge"]["sum"] == "0.00123 USD billed × 1.00/USD = 0.00123 USD"
        # Without a bill, as after a lost connection, the listed prices apply.
        fake.mode = "nousage"
        await gateway.chat("say 20 words", model="openrouter/qwen/qwen3-vl")
        assert (await gateway.settled(3))[0]["usage"]["counted_by"] == "estimate"
        response = await gateway.chat(model="openrouter/openrouter/auto")
        assert response.json()["error"]["code"] == "unpriced_model"


async def test_operator_price_overrides_the_billed_cost(tmp_path: Path) -> None:
    async with served(tmp_path, "openrouter") as (gateway, _):
        await gateway.chat("say 20 words", model="openrouter/m")
        assert (await gateway.settled())[0]["cost_usd"] == "0.000214"


async def test_together_is_charged_at_its_listed_prices(tmp_path: Path) -> None:
    async with served(tmp_path, "together", price=False) as (gateway, _):
        await gateway.chat("say 20 words", model="together/Qwen/Qwen3.5-397B-A17B")
        assert (await gateway.settled())[0]["cost_usd"] == "0.00022"
        response = await gateway.chat(model="together/dedicated/unpriced")
        assert response.json()["error"]["code"] == "unpriced_model"


async def test_models_have_the_capabilities_that_their_provider_lists(tmp_path: Path) -> None:
    expected = {
        "mistral/mistral-large-2512": {"chat", "vision", "tools"},
        "mistral/codestral-2508": {"chat", "tools"},
        "mistral/mistral-embed": set[str](),
        "openrouter/qwen/qwen3-vl": {"chat", "vision", "tools", "thinking"},
        "openrouter/google/gemini-3-pro-image": set[str](),
        "groq/whisper-large-v3": set[str](),
        "together/black-forest-labs/FLUX.2-dev": set[str](),
    }
    result: dict[str, set[str]] = {}
    for name in ("mistral", "openrouter", "groq", "together"):
        async with served(tmp_path / name, name) as (gateway, _):
            for upstream in gateway.app.server.gateway_runtime.gateway.router.servers():
                for model in upstream.listing():
                    result[f"{upstream.name}/{model.name}"] = set(model.capabilities)
    words = {capabilities.CHAT, capabilities.VISION, capabilities.TOOLS, capabilities.THINKING}
    assert {name: result[name] & words for name in expected} == expected


async def test_azure_endpoint_setting_adds_a_server_without_models(tmp_path: Path) -> None:
    async with hosted_provider("azure") as fake:
        endpoint = fake.url.removesuffix("/v1")
        settings = {"azure_openai_endpoint": endpoint, "azure_openai_api_key": KEY}
        async with running_gateway(
            tmp_path, settings, upstreams={}, aliases={}, prices={"azure/m": PRICE}
        ) as gateway:
            (azure,) = gateway.app.server.gateway_runtime.gateway.router.servers()
            assert (azure.name, azure.models()) == ("azure", ())
            assert (await gateway.chat(model="azure/m")).status_code == 200
        row = {"kind": "azure", "base_url": fake.url}
        settings = {"azure_openai_api_key": KEY}
        async with running_gateway(
            tmp_path / "row", settings, upstreams={"eu": row}, aliases={}, prices={"eu/m": PRICE}
        ) as gateway:
            assert (await gateway.chat(model="eu/m")).status_code == 200
            paths = [each.path for each in fake.requests]
            assert paths == ["/openai/v1/chat/completions", "/v1/chat/completions"]


async def test_models_show_what_their_provider_states(tmp_path: Path) -> None:
    async with served(tmp_path, "openrouter") as (gateway, _):
        rows = {
            row["id"]: row
            for row in (await gateway.app.client.get("/v1/models", headers=gateway.headers)).json()["data"]
        }
        row = rows["openrouter/qwen/qwen3-vl"]
        assert row["capabilities"] == ["chat", "thinking", "tools", "vision"]
        assert (row["context_length"], row["max_output_tokens"]) == (131072, 32768)
        model = await gateway.app.client.get("/v1/models/qwen/qwen3-vl", headers=gateway.headers)
        assert model.json()["context_length"] == 131072


@pytest.mark.parametrize("path", ["chat/completions", "messages", "responses"])
async def test_an_image_is_not_sent_to_a_model_without_vision(tmp_path: Path, path: str) -> None:
    async with served(tmp_path, "mistral", price=False) as (gateway, fake):
        uri = image_files.data_uri(b"png")
        source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"png").decode()}
        parts: dict[str, Any] = {
            "chat/completions": {"type": "image_url", "image_url": {"url": uri}},
            "messages": {"type": "image", "source": source},
            "responses": {"type": "input_image", "image_url": uri},
        }
        messages = [{"role": "user", "content": [parts[path]]}]
        body = {"model": "mistral/codestral-2508", "max_tokens": 9, "messages": messages, "input": messages}
        response = await gateway.app.client.post(f"/v1/{path}", json=body, headers=gateway.headers)
        assert response.status_code == 400
        assert "mistral/codestral-2508 does not accept images" in response.text
        assert not fake.requests
        quoted = 'What is {"type": "image_url"}?'
        assert (await gateway.chat(quoted, "mistral/codestral-2508")).status_code == 200
        assert (await gateway.chat("say 1 words", "mistral/mistral-large-2512")).status_code == 200
