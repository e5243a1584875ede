"""Gemini and Vertex AI through the gateway: credentials, thoughts, tools, images, charges and errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.api.gateway import Gateway, call_tool, running_gateway
from tests.fakes import gemini as fakes
from tests.fakes.gemini import Gemini, gemini
from tests.harness import image_files

NAME = "gemini/gemini-3.5-flash"
PRICE = {"input_per_million_usd": "2", "output_per_million_usd": "10", "cached_input_per_million_usd": "0.5"}
PNG = image_files.encode(Image.new("RGB", (8, 8), "red"))


@asynccontextmanager
async def served(folder: Path, key: str = fakes.KEY) -> AsyncIterator[tuple[Gateway, Gemini]]:
    """A gateway to Gemini, whose model costs 2 and 10 USD per million tokens."""
    async with gemini() as fake:
        row = {"kind": "gemini", "base_url": fake.url, "api_key": key}
        prices = {NAME: PRICE}
        async with running_gateway(folder, upstreams={"gemini": row}, aliases={}, prices=prices) as gateway:
            yield gateway, fake


async def test_the_official_client_works(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, fake):
        client: Any = gateway.openai()
        messages = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "say 3 words"}]
        full_response = await client.chat.completions.create(
            model=NAME, messages=messages, max_tokens=2, stop=["x"]
        )
        assert (full_response.choices[0].message.content, full_response.choices[0].finish_reason) == (
            "word word",
            "length",
        )
        assert fake.requests[-1][1]["systemInstruction"] == {"parts": [{"text": "Be brief"}]}
        assert fake.requests[-1][1]["generationConfig"] == {"maxOutputTokens": 2, "stopSequences": ["x"]}
        stream = await client.chat.completions.create(model=NAME, messages=messages, stream=True)
        texts = [each.choices[0].delta.content or "" async for each in stream if each.choices]
        assert "".join(texts) == "word word word"
        uri = image_files.data_uri(PNG)
        requests = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": uri}}]}]
        response = await client.chat.completions.create(model=NAME, messages=requests)
        assert response.choices[0].message.content == "I see a picture"
        form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
        shaped = await client.chat.completions.create(model=NAME, messages=messages, response_format=form)
        assert json.loads(shaped.choices[0].message.content) == {"city": "Oslo"}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_is_called_and_answered_with_its_signature(tmp_path: Path, stream: bool) -> None:
    async with served(tmp_path) as (gateway, fake):
        called, answered = await call_tool(gateway, NAME, stream=stream)
        assert "Let me see" in [block.thinking for block in called.content if block.type == "thinking"]
        texts = [block.text for block in answered.content if block.type == "text"]
        assert texts == ["The tool weather said rain"]
        (part,) = fake.requests[-1][1]["contents"][1]["parts"]
        assert part["thoughtSignature"] == fakes.SIGNATURE


async def test_tool_call_without_its_signature_is_accepted(tmp_path: Path) -> None:
    """OpenAI's client returns no reasoning, so the signature of a call is lost."""
    async with served(tmp_path) as (gateway, _):
        client: Any = gateway.openai()
        tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
        messages = [{"role": "user", "content": "weather?"}]
        called = await client.chat.completions.create(model=NAME, messages=messages, tools=[tool])
        message = called.choices[0].message
        assert called.choices[0].finish_reason == "tool_calls"
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}
        final = await client.chat.completions.create(
            model=NAME, messages=[*messages, message.model_dump(), result], tools=[tool]
        )
        assert final.choices[0].message.content == "The tool weather said rain"


async def test_a_call_costs_what_the_reported_usage_costs(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, _):
        for more in ({}, {"stream": True}):
            response = await gateway.chat("say 20 words", NAME, reasoning_effort="low", **more)
            assert response.status_code == 200
        calls = await gateway.settled(2)
        # 10 tokens of input besides 4 cached ones, and 6 of thoughts besides 20 of text.
        assert {call["cost_usd"] for call in calls} == {"0.000282"}
        assert {call["usage"]["counted_by"] for call in calls} == {"server"}


@pytest.mark.parametrize(
    ("mode", "status"), [("key", 502), ("limit", 429), ("refuse", 400), ("excess", 400), ("fail", 502)]
)
async def test_a_refused_call_is_free(tmp_path: Path, mode: str, status: int) -> None:
    async with served(tmp_path) as (gateway, fake):
        fake.mode = mode
        for more in ({}, {"stream": True}):
            response = await gateway.chat("say 3 words", NAME, **more)
            assert response.status_code == status, response.text
        if mode == "excess":
            assert response.json()["error"]["code"] == "context_length_exceeded"
        assert {call["cost_usd"] for call in await gateway.settled(2)} == {"0.00"}


async def test_a_response_that_is_cut_off_is_free(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, fake):
        fake.mode = "truncate"
        cut = await gateway.chat("say 30 words", NAME, stream=True)
        assert '"error"' in cut.text
        assert "[DONE]" not in cut.text
        assert (await gateway.chat("say 3 words", NAME)).status_code == 502
        assert {call["cost_usd"] for call in await gateway.settled(2)} == {"0.00"}


@pytest.mark.parametrize("mode", ["filter", "blocked"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_content_filter_is_the_reason_of_the_end(tmp_path: Path, mode: str, stream: bool) -> None:
    async with served(tmp_path) as (gateway, fake):
        fake.mode = mode
        response = await gateway.chat("say 3 words", NAME, stream=stream)
        assert response.status_code == 200
        assert '"finish_reason":"content_filter"' in response.text.replace(": ", ":")


async def test_models_are_listed_with_their_capabilities(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, _):
        (server,) = gateway.app.server.gateway_runtime.gateway.router.servers()
        assert {model.name: set(model.capabilities) for model in server.listing()} == {
            "gemini-3.5-flash": {"chat", "vision", "thinking", "tools"},
            "gemini-embedding-001": {"embeddings"},
        }


async def test_a_service_account_gets_one_token_for_many_calls(tmp_path: Path) -> None:
    async with gemini() as fake:
        row = {"kind": "vertex", "base_url": fake.url, "api_key": str(fake.key_file(tmp_path))}
        prices = {"vertex/gemini-3.5-flash": PRICE}
        async with running_gateway(tmp_path, upstreams={"vertex": row}, aliases={}, prices=prices) as gateway:
            for _ in range(3):
                assert (await gateway.chat("say 3 words", "vertex/gemini-3.5-flash")).status_code == 200
            assert fake.tokens == 1
            assert [model for model, _ in fake.requests] == ["gemini-3.5-flash"] * 3


@pytest.mark.parametrize(
    "content", [None, "{}", '{"client_email": "a", "private_key": "b", "token_uri": "c"}']
)
async def test_invalid_key_file_is_an_error_without_its_path(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "account.json"
    if content is not None:
        path.write_text(content)
    async with gemini() as fake:
        row = {"kind": "vertex", "base_url": fake.url, "api_key": str(path)}
        tables: dict[str, Any] = {"upstreams": {"vertex": row}, "prices": {"vertex/m": PRICE}, "aliases": {}}
        async with running_gateway(tmp_path / "data", **tables) as gateway:
            response = await gateway.chat("say 3 words", "vertex/m")
            assert response.status_code == 502
            assert "key file of its service account is invalid" in response.text
            assert str(path) not in response.text
