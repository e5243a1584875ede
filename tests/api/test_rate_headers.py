"""Headers with the rate limits of a key, as the official clients of OpenAI and Anthropic read them."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from sixfold.core.accounts.keys import KeyLimits
from tests.api.app_fixture import bearer
from tests.api.gateway import Gateway, running_gateway

MESSAGES: Any = [{"role": "user", "content": "say 3 words"}]


@pytest.fixture
async def gateway(either: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(either) as result:
        yield result


async def test_openai_clients_read_the_limits_of_requests_and_tokens(gateway: Gateway) -> None:
    key = await gateway.app.limited_key(KeyLimits(rpm=60, tpm=6_000))
    create = gateway.openai(key).chat.completions.with_raw_response.create
    first = (await create(model="acme/small", messages=MESSAGES)).headers
    assert (first["x-ratelimit-limit-requests"], first["x-ratelimit-remaining-requests"]) == ("60", "59")
    assert first["x-ratelimit-limit-tokens"] == "6000"
    left = int(first["x-ratelimit-remaining-tokens"])
    assert 5_000 < left < 6_000
    assert first["x-ratelimit-reset-requests"].endswith("s")
    stream: Any = await create(model="acme/small", messages=MESSAGES, stream=True)
    # One request per second is restored.
    assert stream.headers["x-ratelimit-remaining-requests"] in ("58", "59")
    assert int(stream.headers["x-ratelimit-remaining-tokens"]) < left


async def test_anthropic_clients_read_the_limit_under_its_names(gateway: Gateway) -> None:
    key = await gateway.app.limited_key(KeyLimits(rpm=60))
    create = gateway.anthropic(key).messages.with_raw_response.create
    headers = (await create(model="anth/small", max_tokens=9, messages=MESSAGES)).headers
    rows = {name: value for name, value in headers.items() if "ratelimit" in name}
    reset = datetime.datetime.fromisoformat(rows.pop("anthropic-ratelimit-requests-reset"))
    assert rows == {
        "anthropic-ratelimit-requests-limit": "60",
        "anthropic-ratelimit-requests-remaining": "59",
    }
    assert reset.tzinfo is not None


async def test_refused_requests_have_the_headers(gateway: Gateway) -> None:
    key = await gateway.app.limited_key(KeyLimits(rpm=1))
    client = gateway.openai(key)
    await client.models.list()
    with pytest.raises(openai.RateLimitError) as refused:
        await client.models.list()
    assert refused.value.response.headers["x-ratelimit-remaining-requests"] == "0"
    with pytest.raises(anthropic.RateLimitError) as other:
        await gateway.anthropic(key).models.list()
    assert other.value.response.headers["anthropic-ratelimit-requests-remaining"] == "0"


async def test_keys_without_limits_have_no_such_headers(gateway: Gateway) -> None:
    client, limited = gateway.app.client, await gateway.app.limited_key(KeyLimits(rpm=60))
    assert "x-ratelimit-limit-requests" in (await client.get("/v1/models", headers=bearer(limited))).headers
    response = await client.get("/v1/models", headers=gateway.headers)
    assert not [name for name in response.headers if "ratelimit" in name]
