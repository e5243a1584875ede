"""Pages of the list of models, as the official libraries request them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anthropic
import openai
import pytest

from tests.api.gateway import Gateway, running_gateway


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with running_gateway(tmp_path) as result:
        yield result


async def test_anthropic_library_reads_all_pages(gateway: Gateway) -> None:
    client = gateway.anthropic()
    everything = [model.id async for model in gateway.openai().models.list()]
    assert len(everything) > 4
    first = await client.models.list(limit=2)
    assert ([model.id for model in first.data], first.has_more) == (everything[:2], True)
    assert (first.first_id, first.last_id) == (everything[0], everything[1])
    assert [model.id async for model in client.models.list(limit=2)] == everything
    last = await client.models.list(limit=1000, after_id=everything[-2])
    assert ([model.id for model in last.data], last.has_more) == (everything[-1:], False)


async def test_page_before_a_model_ends_with_its_predecessor(gateway: Gateway) -> None:
    client = gateway.anthropic()
    everything = [model.id async for model in gateway.openai().models.list()]
    page = await client.models.list(limit=2, before_id=everything[3])
    assert ([model.id for model in page.data], page.has_more) == (everything[1:3], True)
    page = await client.models.list(limit=2, before_id=everything[2])
    assert ([model.id for model in page.data], page.has_more) == (everything[:2], False)


async def test_invalid_pages_are_refused(gateway: Gateway) -> None:
    client = gateway.anthropic()
    with pytest.raises(anthropic.BadRequestError, match="after_id must be the id of a model"):
        await client.models.list(after_id="none")
    with pytest.raises(anthropic.BadRequestError, match="limit must be from 1 to"):
        await client.models.list(limit=0)
    with pytest.raises(openai.BadRequestError, match="cannot be combined"):
        await gateway.openai().models.list(extra_query={"after_id": "a", "before_id": "b"})


async def test_cohere_libraries_get_one_model_in_their_format(gateway: Gateway) -> None:
    headers = {**gateway.headers, "x-fern-sdk-name": "cohere"}
    response = await gateway.app.client.get("/v1/models/acme/small", headers=headers)
    assert response.json()["name"] == "acme/small"
    assert response.json()["endpoints"] == ["chat"]
    plain = await gateway.app.client.get("/v1/models/acme/small", headers=gateway.headers)
    assert "name" not in plain.json()
