"""Requests above a model's known limits are rejected before anything is sent or charged."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.app_fixture import AppFixture
from tests.api.local_servers import app_with, app_with_ollama, chat
from tests.fakes import local_models as fakes
from tests.fakes.local_models import COMPLETION, EMBEDDING, LocalModels, Ollama, listening, look_at

MODELS = {
    "qwen3:4b": (*COMPLETION, "tools"),
    "gemma:2b": COMPLETION,
    "nomic-embed-text": EMBEDDING,
    "unknown": COMPLETION,
}
LENGTHS = {"qwen3:4b": (1000, 2560), "gemma:2b": (100_000, 2048), "nomic-embed-text": (2048, 768)}
FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {"tools": {"type": "array"}}}}
PATHS = {
    "/v1/chat/completions": {"tools": [{"type": "function", "function": FUNCTION}]},
    "/v1/responses": {"tools": [{"type": "function", **FUNCTION}]},
    "/v1/messages": {"tools": [{"name": "f", "input_schema": {"type": "object"}}]},
}


@pytest.fixture
async def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[AppFixture, Ollama]]:
    fake = Ollama(MODELS)
    fake.lengths, fake.broken = LENGTHS, {"unknown"}
    ollama = fake
    async with app_with_ollama(tmp_path, monkeypatch, ollama) as app:
        yield app, ollama


def body_of(path: str, model: str, text: str, **more: Any) -> dict[str, Any]:
    if path.endswith("responses"):
        return {"model": model, "input": text, **more}
    return {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 9, **more}


async def reject(app: AppFixture, server: LocalModels, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the error of a request that is not forwarded and costs nothing."""
    request, balance = len(server.bodies), await app.balance()
    response = await app.client.post(path, json=body, headers=app.bearer)
    assert response.status_code == 400, response.text
    assert (len(server.bodies), await app.balance()) == (request, balance)
    error: dict[str, Any] = response.json()["error"]
    return error


async def test_models_list_states_context_and_dimensions(known: tuple[AppFixture, Ollama]) -> None:
    app, _ = known
    rows = {row["id"]: row for row in (await app.client.get("/v1/models", headers=app.bearer)).json()["data"]}
    chats, embeds = rows["ollama/qwen3:4b"], rows["ollama/nomic-embed-text"]
    assert (chats["context_length"], chats["capabilities"]) == (1000, ["chat", "tools"])
    assert "dimensions" not in chats
    assert (embeds["context_length"], embeds["dimensions"]) == (2048, 768)
    assert "context_length" not in rows["ollama/unknown"]


@pytest.mark.parametrize("path", PATHS)
async def test_tools_for_a_model_without_them_are_refused(
    known: tuple[AppFixture, Ollama], path: str
) -> None:
    app, ollama = known
    error = await reject(app, ollama, path, body_of(path, "gemma:2b", "hello", **PATHS[path]))
    assert error["message"] == (
        "gemma:2b does not support tools: omit them, or choose a model from GET /v1/models that has tools"
    )
    for model in ("qwen3:4b", "unknown"):
        able = body_of(path, model, "hello", **PATHS[path])
        assert (await app.client.post(path, json=able, headers=app.bearer)).status_code == 200
    none = body_of(path, "gemma:2b", 'Say "tools": [1]', tools=[])
    assert (await app.client.post(path, json=none, headers=app.bearer)).status_code == 200


@pytest.mark.parametrize("path", PATHS)
async def test_input_of_twice_the_context_is_too_long(known: tuple[AppFixture, Ollama], path: str) -> None:
    app, ollama = known
    error = await reject(app, ollama, path, body_of(path, "qwen3:4b", "word " * 2000))
    assert "the context of qwen3:4b is 1,000 tokens: shorten the input" in error["message"]
    assert error["code"] == "context_length_exceeded"
    assert error["message"].startswith("prompt is too long") is path.endswith("messages")
    for model, words in (("qwen3:4b", 1200), ("gemma:2b", 2000), ("unknown", 2000)):
        short = body_of(path, model, "word " * words)
        assert (await app.client.post(path, json=short, headers=app.bearer)).status_code == 200


async def test_escaped_characters_count_as_one(known: tuple[AppFixture, Ollama]) -> None:
    app, _ = known
    body = json.dumps(body_of("/v1/chat/completions", "qwen3:4b", "中" * 2000))
    assert len(body) > 12_000
    response = await app.client.post(
        "/v1/chat/completions", content=body, headers={**app.bearer, "content-type": "application/json"}
    )
    assert response.status_code == 200


async def test_shortened_responses_are_not_checked_for_length(known: tuple[AppFixture, Ollama]) -> None:
    app, _ = known
    body = body_of("/v1/responses", "qwen3:4b", "word " * 2000, truncation="auto")
    assert (await app.client.post("/v1/responses", json=body, headers=app.bearer)).status_code == 200


async def test_embeddings_of_a_chat_model_are_refused(known: tuple[AppFixture, Ollama]) -> None:
    app, ollama = known
    error = await reject(app, ollama, "/v1/embeddings", {"model": "qwen3:4b", "input": "a"})
    assert error["message"] == (
        "qwen3:4b does not return embeddings: choose a model from GET /v1/models that has embeddings"
    )
    body = {"model": "unknown", "input": "a"}
    assert (await app.client.post("/v1/embeddings", json=body, headers=app.bearer)).status_code == 200


async def test_dimensions_beyond_those_of_the_model_are_refused(known: tuple[AppFixture, Ollama]) -> None:
    app, ollama = known
    body = {"model": "nomic-embed-text", "input": "a", "dimensions": 1024}
    error = await reject(app, ollama, "/v1/embeddings", body)
    assert error["message"] == "dimensions must be at most 768 for nomic-embed-text (got 1024)"
    assert error["param"] == "dimensions"
    for dimensions in (768, 256, None):
        body["dimensions"] = dimensions
        assert (await app.client.post("/v1/embeddings", json=body, headers=app.bearer)).status_code == 200


async def test_fixed_dimensions_of_a_hosted_model_are_refused(tmp_path: Path) -> None:
    async with listening(fakes.vllm("text-embedding-ada-002")) as server:
        row = {"kind": "openai", "base_url": f"http://127.0.0.1:{server.port}/v1", "api_key": "k"}
        async with app_with(tmp_path, probe=False, tables={"gateway": {"upstreams": {"acme": row}}}) as app:
            body = {"model": "acme/text-embedding-ada-002", "input": "a", "dimensions": 256}
            error = await reject(app, server, "/v1/embeddings", body)
            assert error["message"] == ("dimensions must be 1536 for acme/text-embedding-ada-002 (got 256)")
            response = await app.client.get("/v1/models/acme/text-embedding-ada-002", headers=app.bearer)
            # The server's own limit goes before that of the table.
            assert (response.json()["dimensions"], response.json()["context_length"]) == (1536, 4096)


async def test_alias_skips_targets_that_cannot_serve(tmp_path: Path) -> None:
    fake = Ollama(MODELS)
    fake.lengths = LENGTHS
    async with listening(fake) as ollama:
        row = {"kind": "ollama", "base_url": f"http://127.0.0.1:{ollama.port}/v1"}
        gateway = {"upstreams": {"box": row}, "aliases": {"mine": ["box/gemma:2b", "box/qwen3:4b"]}}
        async with app_with(tmp_path, probe=False, tables={"gateway": gateway}) as app:
            assert (await chat(app, "mine")).json()["model"] == "gemma:2b"
            path = "/v1/chat/completions"
            tools = await app.client.post(
                path, json=body_of(path, "mine", "hello", **PATHS[path]), headers=app.bearer
            )
            assert tools.json()["model"] == "qwen3:4b"
            both = body_of(path, "mine", "word " * 2000, **PATHS[path])
            error = await reject(app, ollama, path, both)
            assert error["param"] == "tools"


@pytest.mark.parametrize(
    ("kind", "server", "context"),
    [
        ("llamacpp", fakes.llama_cpp("m.gguf", vision=False), 4096),
        ("vllm", fakes.vllm("m.gguf"), 4096),
        (
            "lmstudio",
            LocalModels(
                {
                    "/v1/models": fakes.openai_list("m.gguf"),
                    "/api/v0/models": {
                        "data": [
                            {"id": "m.gguf", "type": "llm", "state": "loaded", "max_context_length": 512}
                        ]
                    },
                }
            ),
            512,
        ),
        ("llamaswap", fakes.llama_swap("m.gguf"), None),
    ],
)
async def test_context_of_a_local_server_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, server: LocalModels, context: int | None
) -> None:
    async with listening(dataclasses.replace(server, paths=[])) as there:
        look_at(monkeypatch, **{kind: there.port})
        async with app_with(tmp_path) as app:
            row = (await app.client.get(f"/v1/models/{kind}/m.gguf", headers=app.bearer)).json()
            assert row.get("context_length") == context
