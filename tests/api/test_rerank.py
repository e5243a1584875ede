"""Reranking of documents: by model servers, and by this server's embeddings."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from sixfold.api.gateway import rerank
from sixfold.app import catalog as app_catalog
from sixfold.core.gateway.reranking import parse_ranking, rank_vectors
from tests.api.gateway import Gateway, running_gateway
from tests.harness.backends import FILES

pytestmark = pytest.mark.asyncio(loop_scope="module")
QUERY = "where do whales sleep"
DOCUMENTS = ["bread needs flour", "whales sleep near the surface", "where do birds live"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """One app for all tests of this module; `tei` is text-embeddings-inference."""
    async with running_gateway(tmp_path_factory.mktemp("ranks"), settings=FILES) as first:
        tei = first.acme.url.removesuffix("/v1")
        rows: dict[str, Any] = {
            "acme": {
                "kind": "openai",
                "base_url": first.acme.url,
                "api_key": "sk",
                "models": ["m", "billed"],
            },
            "anth": {"kind": "anthropic", "base_url": first.anth.url, "api_key": "k", "models": ["small"]},
            "tei": {"kind": "tei", "base_url": tei},
        }
        prices = {"acme/m": {"input_per_million_usd": 100}, "acme/billed": {"per_search_usd": "0.002"}}
        folder = tmp_path_factory.mktemp("ranks")
        async with running_gateway(
            folder, FILES, app_catalog.models_document(), upstreams=rows, prices=prices
        ) as gateway:
            await gateway.app.server.gateway_runtime.refresh()
            yield Gateway(gateway.app, first.acme, first.anth)


@pytest.fixture
def gateway(shared: Gateway) -> Gateway:
    return shared.afresh()


async def rank(gateway: Gateway, path: str = "/v1/rerank", **more: Any) -> httpx.Response:
    body = {"model": "acme/m", "query": QUERY, "documents": DOCUMENTS, **more}
    return await gateway.app.client.post(path, json=body, headers=gateway.headers)


@pytest.mark.parametrize(("path", "version"), [("/v1/rerank", "1"), ("/v2/rerank", "2")])
async def test_ranking_of_a_server_is_sorted_and_charged(gateway: Gateway, path: str, version: str) -> None:
    response = await rank(gateway, path, top_n=2, max_tokens_per_doc=64)
    assert response.status_code == 200, response.text
    body = response.json()
    assert body["results"] == [{"index": 1, "relevance_score": 0.5}, {"index": 2, "relevance_score": 0.5}]
    assert body["meta"]["api_version"] == {"version": version}
    assert body["usage"]["total_tokens"] == 40
    assert gateway.acme.requests[0].document == {
        "model": "m",
        "query": QUERY,
        "documents": DOCUMENTS,
        "max_tokens_per_doc": 64,
    }
    assert response.headers["x-sixfold-engine"] == "acme/m"
    call = await gateway.last_call()
    assert (call["face"], call["cost_usd"]) == ("rerank", "0.004")


async def test_billed_search_units_are_charged(gateway: Gateway) -> None:
    response = await rank(gateway, model="acme/billed")
    assert response.json()["meta"]["billed_units"] == {"search_units": 3}
    # One search is held, which is the maximum.
    assert (await gateway.last_call())["cost_usd"] == "0.002"
    many = [f"{text} {'x' * 2000}" for text in DOCUMENTS] * 70
    await rank(gateway, model="acme/billed", documents=many)
    call = await gateway.last_call()
    assert (call["held_usd"], call["cost_usd"]) == ("0.022", "0.006")
    assert {line["unit"]: line["quantity"] for line in call["charge"]["lines"]}["searches"] == 3


async def test_embeddings_inference_is_called_in_its_own_format(gateway: Gateway) -> None:
    for model in ("tei/BAAI/bge-rank", ""):
        response = await rank(gateway, model=model, top_n=1)
        assert response.json()["results"] == [{"index": 1, "relevance_score": 0.5}]
        assert response.json()["model"] == "tei/BAAI/bge-rank"
    sent = gateway.acme.requests[0]
    assert (sent.path, sent.document["texts"], sent.document["truncate"]) == ("/rerank", DOCUMENTS, True)
    assert (await gateway.last_call())["cost_usd"] == "0.00"
    models = (await gateway.app.client.get("/v1/models", headers=gateway.headers)).json()["data"]
    assert ["rerank"] in [each.get("capabilities") for each in models if "bge-rank" in each["id"]]


async def test_own_vectors_rank_in_preview_quality(gateway: Gateway) -> None:
    before, _ = await gateway.app.balance()
    response = await rank(gateway, model="embeddings", return_documents=True)
    assert response.status_code == 200, response.text
    results = response.json()["results"]
    assert (results[0]["index"], results[0]["document"]) == (1, {"text": DOCUMENTS[1]})
    assert len(results) == 3
    scores = [row["relevance_score"] for row in results]
    assert scores == sorted(scores, reverse=True)
    assert min(scores) >= 0
    assert response.headers["x-sixfold-quality"] == "preview"
    after, _ = await gateway.app.balance()
    # The tokens of the query and of three documents are charged.
    assert float(before) - float(after) == pytest.approx(0.0004)


async def test_documents_are_returned_on_request(gateway: Gateway) -> None:
    objects = [{"text": "whales", "title": "sleep"}, {"text": "birds", "title": "where"}]
    plain = (await rank(gateway, documents=objects)).json()["results"]
    assert all("document" not in row for row in plain)
    body = (await rank(gateway, documents=objects, rank_fields=["title"], return_documents=True)).json()
    assert [row["document"] for row in body["results"]] == [{"text": "sleep"}, {"text": "where"}]


async def test_repeated_rank_fields_do_not_repeat_texts(gateway: Gateway) -> None:
    documents = [{"text": "whales", "title": "sleep"}, {"text": "birds"}]
    fields = ["text", "title"] * 50_000
    body = (await rank(gateway, documents=documents, rank_fields=fields, return_documents=True)).json()
    assert [row["document"] for row in body["results"]] == [{"text": "whales\nsleep"}, {"text": "birds"}]
    names = [f"name{number}" for number in range(rerank.MAX_RANK_FIELDS + 1)]
    refused = await rank(gateway, documents=documents, rank_fields=names)
    assert (refused.status_code, "at most 100 names (got 101)" in refused.text) == (400, True), refused.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"query": " "},
        {"query": ["a"]},
        {"documents": []},
        {"documents": "a"},
        {"documents": ["a"] * 1001},
        {"documents": ["a", ""]},
        {"documents": [{"image": "x"}]},
        {"top_n": 0},
        {"max_tokens_per_doc": 0},
    ],
)
async def test_invalid_ranking_is_400_for_all_clients(gateway: Gateway, wrong: Any) -> None:
    response = await rank(gateway, **wrong)
    assert response.status_code == 400, response.text
    body = response.json()
    assert body["message"] == body["detail"]
    assert next(iter(wrong)) in body["message"]
    assert body["id"].startswith("req_")
    assert not gateway.acme.requests


async def test_unknown_reranker_is_404_if_there_is_another(gateway: Gateway) -> None:
    for model in ("rerank-v3.5", "anth/small"):
        response = await rank(gateway, model=model)
        assert response.status_code == 404
        assert response.json()["code"] == "model_not_found"


async def test_without_a_reranker_the_remedy_is_named(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, settings=FILES) as gateway:
        for model in ("rerank-v3.5", ""):
            answer = await rank(gateway, "/v2/rerank", model=model)
            assert answer.status_code == 503
            assert answer.headers["x-should-retry"] == "false"
            assert "--reranking" in answer.json()["message"]
            assert "`embeddings`" in answer.json()["message"]
        response = await gateway.app.client.post("/v2/rerank", json={})
        assert (response.status_code, response.json()["code"]) == (401, "invalid_api_key")


@pytest.mark.parametrize("mode", ["fail", "garbage"])
async def test_failed_ranking_is_free(gateway: Gateway, mode: str) -> None:
    gateway.acme.mode = mode
    response = await rank(gateway)
    assert (response.status_code, response.json()["code"]) == (502, "generation_failed")
    assert (await gateway.last_call())["cost_usd"] == "0.00"


async def test_repeated_ranking_is_charged_once(gateway: Gateway) -> None:
    headers = {**gateway.headers, "Idempotency-Key": "rank"}
    body = {"model": "acme/m", "query": QUERY, "documents": DOCUMENTS}
    responses = [await gateway.app.client.post("/v1/rerank", json=body, headers=headers) for _ in "ab"]
    assert responses[0].content == responses[1].content
    assert len(gateway.acme.requests) == 1


async def test_all_shapes_of_a_ranking_are_read() -> None:
    shapes = (
        b'{"results":[{"index":0,"relevance_score":0.1},{"index":1,"relevance_score":0.9,"document":"x"}]}',
        b'{"data":[{"index":1,"relevance_score":0.9},{"index":0,"relevance_score":0.1}]}',
        b'[{"index":0,"score":0.1},{"index":1,"score":0.9,"text":"x"}]',
    )
    for shape in shapes:
        assert [(row.index, row.score) for row in parse_ranking(shape)] == [(1, 0.9), (0, 0.1)]
    for broken in (b"[]", b"{}", b"null", b'{"results":[{"index":"0"}]}', b'[{"index":0}]', b"\xff"):
        with pytest.raises(ValueError, match="response"):
            parse_ranking(broken)
    ranked = rank_vectors([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])
    assert [(row.index, row.score) for row in ranked] == [(1, 1.0), (0, 0.0), (2, 0.0), (3, 0.0)]
