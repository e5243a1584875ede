"""Amazon Bedrock through the gateway: signatures, clients, streams, tools, images, charges and errors."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from PIL import Image

from tests.api.gateway import Gateway, call_tool, running_gateway
from tests.fakes import bedrock as fakes
from tests.fakes.bedrock import MODEL, Bedrock, bedrock
from tests.harness import image_files

NAME = f"bedrock/global.{MODEL}"
PRICE = {"input_per_million_usd": "2", "output_per_million_usd": "10", "cached_input_per_million_usd": "0.5"}
PNG = image_files.encode(Image.new("RGB", (8, 8), "red"))
SIGNED = f"{fakes.ACCESS_KEY}:{fakes.SECRET}"
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


@asynccontextmanager
async def served(folder: Path, key: str = SIGNED) -> AsyncIterator[tuple[Gateway, Bedrock]]:
    """A gateway to Bedrock, whose model costs 2 and 10 USD per million tokens."""
    async with bedrock() as fake:
        row = {"kind": "bedrock", "base_url": fake.url, "api_key": key}
        prices = {NAME: PRICE}
        async with running_gateway(folder, upstreams={"bedrock": row}, aliases={}, prices=prices) as gateway:
            yield gateway, fake


@pytest.mark.parametrize("key", [SIGNED, f"{SIGNED}:{fakes.TOKEN}", fakes.API_KEY])
async def test_a_request_is_authenticated_by_either_kind_of_key(tmp_path: Path, key: str) -> None:
    async with served(tmp_path, key) as (gateway, fake):
        response = await gateway.chat("say 3 words", NAME)
        assert response.json()["choices"][0]["message"]["content"] == "word word word"
        assert [model for model, _ in fake.requests] == [f"global.{MODEL}"]


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
        assert fake.requests[-1][1]["system"] == [{"text": "Be brief"}]
        assert fake.requests[-1][1]["inferenceConfig"] == {"maxTokens": 2, "stopSequences": ["x"]}
        stream = await client.chat.completions.create(model=NAME, messages=messages, stream=True)
        chunks = [chunk async for chunk in stream]
        assert (
            "".join(each.choices[0].delta.content or "" for each in chunks if each.choices)
            == "word word word"
        )
        part = {
            "type": "image_url",
            "image_url": {"url": image_files.data_uri(PNG)},
        }
        response = await client.chat.completions.create(
            model=NAME, messages=[{"role": "user", "content": [part]}]
        )
        assert response.choices[0].message.content == "I see a picture"
        form = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
        shaped = await client.chat.completions.create(model=NAME, messages=messages, response_format=form)
        assert json.loads(shaped.choices[0].message.content) == {"city": "Oslo"}
        assert shaped.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_tool_is_called_and_answered(tmp_path: Path, stream: bool) -> None:
    async with served(tmp_path) as (gateway, fake):
        _, answered = await call_tool(gateway, NAME, stream=stream)
        assert "The tool said rain" in [block.text for block in answered.content if block.type == "text"]
        turns = fake.requests[-1][1]["messages"]
        assert [list(block) for block in turns[1]["content"]] == [["reasoningContent"], ["toolUse"]]
        assert turns[2]["content"][0]["toolResult"]["content"] == [{"text": "rain"}]


async def test_an_image_of_a_url_is_sent_as_bytes(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, fake):
        upload = await gateway.app.client.post(
            "/api/uploads", content=PNG, headers={**gateway.headers, "content-type": "image/png"}
        )
        part = {"type": "image_url", "image_url": {"url": upload.json()["url"]}}
        body = {"model": NAME, "messages": [{"role": "user", "content": [part]}]}
        response = await gateway.app.client.post("/v1/chat/completions", json=body, headers=gateway.headers)
        assert response.json()["choices"][0]["message"]["content"] == "I see a picture"
        image = fake.requests[-1][1]["messages"][0]["content"][0]["image"]
        assert (image["format"], base64.b64decode(image["source"]["bytes"])) == ("png", PNG)


async def test_a_call_costs_what_the_reported_usage_costs(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, _):
        for more in ({}, {"stream": True}):
            assert (await gateway.chat("say 20 words", NAME, **more)).status_code == 200
        calls = await gateway.settled(2)
        # 10 tokens of input besides the 4 cached ones.
        assert {call["cost_usd"] for call in calls} == {"0.000222"}
        assert {call["usage"]["counted_by"] for call in calls} == {"server"}


@pytest.mark.parametrize(
    ("mode", "status", "code"),
    [
        ("key", 502, "generation_failed"),
        ("limit", 429, "rate_limited"),
        ("refuse", 400, "upstream_refused"),
        ("excess", 400, "context_length_exceeded"),
        ("fail", 502, "generation_failed"),
    ],
)
async def test_a_refused_call_is_free(tmp_path: Path, mode: str, status: int, code: str) -> None:
    async with served(tmp_path) as (gateway, fake):
        fake.mode = mode
        for more in ({}, {"stream": True}):
            response = await gateway.chat("say 3 words", NAME, **more)
            assert (response.status_code, response.json()["error"]["code"]) == (status, code), response.text
            assert fakes.SECRET not in response.text
        assert {call["cost_usd"] for call in await gateway.settled(2)} == {"0.00"}


async def test_a_stream_that_fails_is_free(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, fake):
        fake.mode = "throttled"
        assert (await gateway.chat("say 3 words", NAME, stream=True)).status_code == 502
        fake.mode = "truncate"
        cut = await gateway.chat("say 30 words", NAME, stream=True)
        assert '"error"' in cut.text
        assert "[DONE]" not in cut.text
        assert (await gateway.chat("say 3 words", NAME)).status_code == 502
        assert {call["cost_usd"] for call in await gateway.settled(3)} == {"0.00"}


async def test_a_content_filter_is_the_reason_of_the_end(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, fake):
        fake.mode = "filter"
        response = await gateway.chat("say 3 words", NAME)
        assert response.json()["choices"][0]["finish_reason"] == "content_filter"


async def test_models_and_inference_profiles_are_listed(tmp_path: Path) -> None:
    async with served(tmp_path) as (gateway, _):
        (server,) = gateway.app.server.gateway_runtime.gateway.router.servers()
        assert {model.name: set(model.capabilities) for model in server.listing()} == {
            "amazon.nova-micro-v1:0": {"chat"},
            "amazon.titan-embed-text-v2:0": {"embeddings"},
            f"eu.{MODEL}": {"chat", "vision"},
            f"global.{MODEL}": {"chat", "vision"},
        }


@pytest.mark.parametrize("stream", [False, True])
async def test_official_client_accepts_the_responses_of_the_fake(stream: bool) -> None:
    """The client of AWS reads the same responses, and its signature is accepted."""
    async with bedrock() as fake:
        client = boto3.client(
            "bedrock-runtime",
            endpoint_url=fake.url,
            region_name="eu-central-1",
            aws_access_key_id=fakes.ACCESS_KEY,
            aws_secret_access_key=fakes.SECRET,
            config=Config(retries={"max_attempts": 0}),
        )
        messages = [{"role": "user", "content": [{"text": "say 3 words"}]}]

        def ask() -> tuple[str, int]:
            if not stream:
                answer = client.converse(modelId=MODEL, messages=messages)
                return answer["output"]["message"]["content"][0]["text"], answer["usage"]["outputTokens"]
            events = list(client.converse_stream(modelId=MODEL, messages=messages)["stream"])
            parts = [
                event["contentBlockDelta"]["delta"]["text"]
                for event in events
                if "contentBlockDelta" in event
            ]
            return "".join(parts), events[-1]["metadata"]["usage"]["outputTokens"]

        assert await asyncio.to_thread(ask) == ("word word word", 3)
