"""Cohere's embeddings, and its resources that are not here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from sixfold.app import catalog as app_catalog
from tests.api.gateway import Gateway, running_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")
FILES: dict[str, Any] = {"database_url": "", "blob_url": "", "upload_url": ""}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """One app for all tests of this module."""
    folder = tmp_path_factory.mktemp("cohere")
    async with running_gateway(folder, FILES, app_catalog.models_document()) as result:
        yield result


async def post(gateway: Gateway, path: str, **body: Any) -> httpx.Response:
    return await gateway.app.client.post(path, json=body, headers=gateway.headers)


async def test_vectors_have_the_shape_of_their_version(gateway: Gateway) -> None:
    texts = {"model": "embeddings", "texts": ["a lake", "a car"], "input_type": "search_document"}
    before = float((await gateway.app.balance())[0])
    second = (await post(gateway, "/v2/embed", **texts, embedding_types=["float"])).json()
    assert [len(vector) for vector in second["embeddings"]["float"]] == [384, 384]
    assert (second["texts"], second["meta"]["api_version"]["version"]) == (["a lake", "a car"], "2")
    assert second["meta"]["billed_units"]["input_tokens"] > 0
    first = (await post(gateway, "/v1/embed", **texts)).json()
    assert (first["response_type"], first["embeddings"]) == (
        "embeddings_floats", second["embeddings"]["float"],
    )  # fmt: skip
    inputs = [{"content": [{"type": "text", "text": "a lake"}]}]
    typed = (await post(gateway, "/v2/embed", model="embeddings", inputs=inputs)).json()
    assert typed["embeddings"]["float"] == second["embeddings"]["float"][:1]
    assert before - float((await gateway.app.balance())[0]) == pytest.approx(0.0005)


async def test_a_model_server_embeds(gateway: Gateway) -> None:
    response = await post(gateway, "/v2/embed", model="acme/small", texts=["a"], output_dimension=3)
    assert response.status_code == 200, response.text
    sent = gateway.acme.requests[-1]
    assert (sent.path, sent.document["input"], sent.document["dimensions"]) == ("/v1/embeddings", ["a"], 3)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"texts": []}, "1 to 2048"),
        ({"texts": ["a"], "embedding_types": ["int8"]}, "embedding_types"),
        ({"texts": ["a"], "images": ["data:image/png;base64,AA"]}, "images"),
        ({"inputs": [{"content": [{"type": "image_url"}]}]}, "inputs[0]"),
        ({"texts": [5]}, "texts"),
    ],
)
async def test_an_invalid_request_is_named(gateway: Gateway, fields: dict[str, Any], words: str) -> None:
    response = await post(gateway, "/v2/embed", model="embeddings", **fields)
    assert response.status_code == 400
    assert words in response.json()["message"]


async def test_other_resources_are_501_with_an_alternative(gateway: Gateway) -> None:
    for path in ("/v2/chat", "/v2/batches/b:cancel", "/v1/tokenize", "/v1/datasets/d", "/v1/embed-jobs"):
        response = await post(gateway, path)
        assert response.status_code == 501, path
        assert "not supported by this server" in response.text
    assert (await post(gateway, "/v2/nothing")).status_code == 404
