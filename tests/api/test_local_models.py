"""Discovered model servers: the default model, and models that accept images."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.gateway.capabilities import CHAT, TOOLS
from tests.api.local_servers import (
    SEEING,
    USUAL,
    app_with,
    app_with_ollama,
    chat,
    model_names,
    service,
    serving_model,
    status,
)
from tests.api.test_gateway import PIXEL
from tests.fakes import local_models as fakes
from tests.fakes.local_models import COMPLETION, EMBEDDING, LocalModels, Ollama, listening, look_at

# -- the default model -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["default", "chat", "auto", "text-llm"])
async def test_default_skips_an_embedding_model_that_is_listed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with app_with_ollama(tmp_path, monkeypatch, Ollama(USUAL)) as app:
        assert await serving_model(app, name) == "llama3.2:latest"
        talk = {"service": "chat", "prompt": "hello"}
        response = await app.client.post("/api/service", json=talk, headers=app.bearer)
        assert response.json()["engine"] == "ollama/llama3.2:latest"


async def test_default_prefers_a_loaded_chat_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ollama = Ollama(USUAL, "nomic-embed-text:latest", "qwen3:latest")
    async with app_with_ollama(tmp_path, monkeypatch, ollama) as app:
        assert await serving_model(app) == "qwen3:latest"
        loaded = {model.name for model in status(app, "ollama").listing if model.loaded}
        assert loaded == {"nomic-embed-text:latest", "qwen3:latest"}
        ollama.loaded = ["llama3.2:latest"]
        await app.server.gateway_runtime.refresh()
        assert app.server.gateway_runtime.gateway.router.resolve("default")[0].model == "llama3.2:latest"


async def test_default_prefers_the_loaded_model_of_another_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(Ollama(USUAL)) as ollama, listening(fakes.vllm("mistral")) as vllm:
        look_at(monkeypatch, ollama=ollama.port, vllm=vllm.port)
        async with app_with(tmp_path) as app:
            assert await serving_model(app) == "mistral"


async def test_default_prefers_a_local_model_to_a_cloud_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ollama = Ollama({"gpt-oss:120b-cloud": COMPLETION, "qwen3:latest": COMPLETION})
    ollama.remote = {"gpt-oss:120b-cloud"}
    async with app_with_ollama(tmp_path, monkeypatch, ollama) as app:
        assert await serving_model(app) == "qwen3:latest"
        assert await serving_model(app, "gpt-oss:120b-cloud") == "gpt-oss:120b-cloud"


async def test_default_model_is_never_an_aliased_embedding_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(Ollama(USUAL)) as ollama:
        look_at(monkeypatch, ollama=ollama.port)
        aliases = {"vectors": "ollama/nomic-embed-text", "talk": "ollama/qwen3"}
        async with app_with(tmp_path, tables={"gateway": {"aliases": aliases}}) as app:
            assert await serving_model(app) == "qwen3"


async def test_default_with_only_embedding_models_is_503_with_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ollama = Ollama({"nomic-embed-text:latest": EMBEDDING})
    async with app_with_ollama(tmp_path, monkeypatch, ollama) as app:
        response = await chat(app, "default")
        assert (response.status_code, ollama.count("/v1/chat/completions")) == (503, 0)
        assert "The model servers do not list a chat model" in response.json()["error"]["message"]
        assert (await service(app, "chat"))["available"] is False


@pytest.mark.parametrize(
    ("kind", "server", "first"),
    [
        ("vllm", fakes.vllm("BAAI/bge-m3", "mistral-7b"), "mistral-7b"),
        ("llamaswap", fakes.llama_swap("all-minilm", "llama", "qwen", running=("qwen",)), "qwen"),
        ("llamaswap", fakes.llama_swap("bge-reranker-v2", "llama"), "llama"),
        (
            "lmstudio",
            fakes.lm_studio(
                ("text-embedding-nomic", "embeddings", "loaded"),
                ("e5-chat", "llm", "not-loaded"),
                ("phi", "llm", "loaded"),
            ),
            "phi",
        ),
        ("lmstudio", LocalModels({"/v1/models": fakes.openai_list("mxbai-embed-large", "phi")}), "phi"),
        (
            "ollama",
            LocalModels({"/api/version": {"version": "0.1"}, "/v1/models": fakes.openai_list("e5", "x")}),
            "x",
        ),
        (
            "sglang",
            fakes.sglang("Qwen/Qwen3", is_generation=True, has_image_understanding=False),
            "Qwen/Qwen3",
        ),
        ("llamacpp", fakes.llama_cpp("gemma", vision=False), "gemma"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_default_of_each_kind_of_server_is_a_chat_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, server: LocalModels, first: str
) -> None:
    async with listening(dataclasses.replace(server, paths=[])) as there:
        look_at(monkeypatch, **{kind: there.port})
        async with app_with(tmp_path) as app:
            assert await serving_model(app) == first
            assert status(app, kind).state == "ready"


async def test_sglang_embedding_model_serves_embeddings_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(fakes.sglang("acme/vectors", is_generation=False)) as server:
        look_at(monkeypatch, sglang=server.port)
        async with app_with(tmp_path) as app:
            assert (await chat(app, "default")).status_code == 503
            assert (await chat(app, "acme/vectors")).status_code == 400
            body = {"model": "acme/vectors", "input": "a red fox"}
            response = await app.client.post("/v1/embeddings", json=body, headers=app.bearer)
            assert response.json()["data"][0]["embedding"] == [0.25, 0.5]


async def test_ollama_with_unreadable_models_describes_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = {f"broken-{number}:latest": COMPLETION for number in range(16)}
    ollama = Ollama({**broken, "eyes:latest": (*COMPLETION, "vision")})
    ollama.broken = set(broken)
    async with app_with_ollama(tmp_path, monkeypatch, ollama) as app:
        await app.server.gateway_runtime.refresh()
        stated = {model.name for model in status(app, "ollama").listing if model.stated}
        assert stated == {"eyes:latest"}
        # Each model is queried only once.
        assert sorted(ollama.show_requests) == sorted([*broken, "eyes:latest"])


@pytest.mark.parametrize("in_tags", [False, True])
async def test_ollama_unknown_capabilities_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_tags: bool
) -> None:
    many = (*COMPLETION, "tools", "x" * 100_000, *(f"word-{number}" for number in range(1000)))
    ollama = Ollama({"liar:latest": many, "other:latest": ("sing",)}, in_tags=in_tags)
    async with app_with_ollama(tmp_path, monkeypatch, ollama) as app:
        listing = {model.name: model for model in status(app, "ollama").listing}
        assert listing["liar:latest"].capabilities == {CHAT, TOOLS}
        assert (listing["other:latest"].capabilities, listing["other:latest"].stated) == (
            frozenset(),
            True,
        )


async def test_ollama_model_with_too_long_details_is_read_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = (*COMPLETION, "vision", "x" * 2**20)
    ollama = Ollama({"long:latest": long, "eyes:latest": (*COMPLETION, "vision")})
    async with app_with_ollama(tmp_path, monkeypatch, ollama) as app:
        listing = {model.name: model for model in status(app, "ollama").listing}
        assert (listing["long:latest"].stated, listing["eyes:latest"].stated) == (False, True)


# -- embedding models ------------------------------------------------------------------------------


async def test_ollama_embedding_model_serves_under_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ollama = Ollama(USUAL)
    async with app_with_ollama(tmp_path, monkeypatch, ollama) as app:
        for name in ("nomic-embed-text", "nomic-embed-text:latest", "ollama/nomic-embed-text"):
            body = {"model": name, "input": "a red fox"}
            response = await app.client.post("/v1/embeddings", json=body, headers=app.bearer)
            assert response.json()["data"][0]["embedding"] == [0.25, 0.5], name
        assert ollama.count("/v1/embeddings") == 3


async def test_openai_embedding_name_error_names_the_ollama_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ollama = Ollama(USUAL)
    async with app_with_ollama(tmp_path, monkeypatch, ollama) as app:
        body = {"model": "text-embedding-3-small", "input": "a red fox"}
        response = await app.client.post("/v1/embeddings", json=body, headers=app.bearer)
        assert response.status_code == 503
        assert "use `ollama/nomic-embed-text`" in response.json()["error"]["message"]
        del ollama.models["nomic-embed-text:latest"]
        await app.server.gateway_runtime.refresh()
        response = await app.client.post("/v1/embeddings", json=body, headers=app.bearer)
        assert "Or ask" not in response.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
async def test_chat_with_an_embedding_model_is_refused_by_every_api(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    ollama = Ollama(USUAL)
    async with app_with_ollama(tmp_path, monkeypatch, ollama) as app:
        text: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 9}
        body = {
            "model": "nomic-embed-text",
            **({"input": "hello"} if path.endswith("responses") else text),
        }
        response = await app.client.post(path, json=body, headers=app.bearer)
        assert response.status_code == 400
        assert response.json()["error"]["message"] == (
            "nomic-embed-text is an embedding model: send it to /v1/embeddings, or choose a chat model "
            "from GET /v1/models"
        )
        assert ollama.count("/v1/chat/completions") == 0
        assert await app.balance() == ("5.00", "0.00")


# -- images ----------------------------------------------------------------------------------------


async def test_vision_without_an_image_model_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ollama = Ollama(USUAL)
    async with app_with_ollama(tmp_path, monkeypatch, ollama) as app:
        assert (await service(app, "chat"))["quality"] == "full"
        row = await service(app, "vision")
        assert (row["available"], row["quality"]) == (False, None)
        assert "accepts images" in row["unlock"]
        assert not app.server.availability("relay-vision").ready
        request = {"service": "vision", "prompt": "what is it?", "image_url": PIXEL}
        for later in (False, True):
            response = await app.client.post(
                "/api/service", json={**request, "async": later}, headers=app.bearer
            )
            assert (response.status_code, "images" in response.json()["error"]) == (503, True), response.text
        assert (await chat(app, "vision")).status_code == 503
        assert ollama.count("/v1/chat/completions") == 0


async def test_vision_goes_to_the_model_that_accepts_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ollama = Ollama(SEEING, "llama3.2:latest")
    async with app_with_ollama(tmp_path, monkeypatch, ollama) as app:
        assert (await service(app, "vision"))["quality"] == "full"
        assert await serving_model(app, "vision") == "llava:7b"
        assert await serving_model(app, "chat") == "llama3.2:latest"
        request = {"service": "vision", "prompt": "what is it?", "image_url": PIXEL}
        response = await app.client.post("/api/service", json=request, headers=app.bearer)
        assert response.json()["engine"] == "ollama/llava:7b"
        assert ollama.bodies[-1]["messages"][-1]["content"][1]["image_url"]["url"] == PIXEL


@pytest.mark.parametrize(
    ("kind", "server", "sees"),
    [
        ("llamacpp", fakes.llama_cpp("model.gguf", vision=True), True),
        ("llamacpp", fakes.llama_cpp("llava.gguf", vision=False), False),
        ("sglang", fakes.sglang("acme/m", is_generation=True, has_image_understanding=True), True),
        ("lmstudio", fakes.lm_studio(("m", "vlm", "loaded")), True),
        ("lmstudio", fakes.lm_studio(("llava", "llm", "loaded")), False),
        ("vllm", fakes.vllm("Qwen/Qwen2.5-VL-7B-Instruct"), True),
        ("vllm", fakes.vllm("mistral-7b"), False),
    ],
)
async def test_vision_of_a_server_follows_its_statement_or_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, server: LocalModels, sees: bool
) -> None:
    async with listening(dataclasses.replace(server, paths=[])) as there:
        look_at(monkeypatch, **{kind: there.port})
        async with app_with(tmp_path) as app:
            assert (await service(app, "vision"))["available"] is sees


async def test_unstated_vision_of_a_configured_server_is_allowed(tmp_path: Path) -> None:
    async with listening(fakes.vllm("small")) as server:
        upstreams = {
            "acme": {"kind": "openai", "base_url": f"http://127.0.0.1:{server.port}/v1", "api_key": "k"}
        }
        tables = {"gateway": {"upstreams": upstreams, "allow_unpriced": True}}
        async with app_with(tmp_path, probe=False, tables=tables) as app:
            assert await serving_model(app, "vision") == "small"


async def test_models_list_has_the_general_names_that_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    general = {"default", "chat", "auto", "text-llm", "vision"}
    ollama = Ollama({"nomic-embed-text:latest": EMBEDDING})
    async with app_with_ollama(tmp_path, monkeypatch, ollama) as app:
        assert general.isdisjoint(await model_names(app))
        ollama.models |= USUAL
        await app.server.gateway_runtime.refresh()
        assert general & await model_names(app) == general - {"vision"}
        ollama.models |= SEEING
        await app.server.gateway_runtime.refresh()
        assert general <= await model_names(app)
        response = await app.client.get("/v1/models/vision", headers=app.bearer)
        assert (response.status_code, response.json()["id"]) == (200, "vision")


async def test_models_list_omits_transcription_without_an_engine(tmp_path: Path) -> None:
    async with app_with(tmp_path, probe=False, public_url="https://box.example") as app:
        assert "stt" not in await model_names(app)
        assert (await app.client.get("/v1/models/stt", headers=app.bearer)).status_code == 404


# -- what a look costs -----------------------------------------------------------------------------


async def test_ollama_models_are_queried_once_and_few_per_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = {f"model-{number}": COMPLETION for number in range(40)} | {"seer": (*COMPLETION, "vision")}
    ollama = Ollama(models, "seer")
    async with app_with_ollama(tmp_path, monkeypatch, ollama) as app:
        assert len(ollama.show_requests) == 16
        # Loaded models are queried first.
        assert "seer" in ollama.show_requests
        for most in (32, 41, 41):
            await app.server.gateway_runtime.refresh()
            assert len(ollama.show_requests) == most
        assert len(set(ollama.show_requests)) == 41
        # The model was pulled again, so its digest has changed.
        ollama.models["model-7"] = EMBEDDING
        await app.server.gateway_runtime.refresh()
        assert ollama.show_requests[41:] == ["model-7"]


async def test_ollama_list_with_capabilities_needs_no_details(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(Ollama(SEEING, in_tags=True)) as ollama:
        ollama.broken = set(SEEING)
        look_at(monkeypatch, ollama=ollama.port)
        async with app_with(tmp_path) as app:
            assert await serving_model(app) == "llama3.2:latest"
            assert await serving_model(app, "vision") == "llava:7b"


@pytest.mark.parametrize(
    "answers",
    [
        {"/api/tags": b"<html>", "/v1/models": fakes.openai_list("nomic-embed-text", "qwen3")},
        {"/api/tags": {"models": "none"}, "/v1/models": fakes.openai_list("e5", "qwen3")},
        {"/api/show": b"[" * 100_000},
        {"/api/show": 500, "/api/ps": 500},
        {"/api/show": b"{" + b" " * (5 * 2**20) + b"}"},
        {"/api/ps": {"models": [7, None]}},
        {"/api/tags": {"models": [{"name": 7}, {"name": "x" * 300}, {"name": "a\nb"}, {"name": "qwen3"}]}},
        {"/api/tags": {"models": [{"name": "qwen3", "digest": [1], "capabilities": {"completion": 1}}]}},
    ],
)
async def test_invalid_model_lists_leave_a_usable_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: dict[str, Any]
) -> None:
    ollama = Ollama({"nomic-embed-text": EMBEDDING, "qwen3": COMPLETION})
    ollama.responses = answers
    async with app_with_ollama(tmp_path, monkeypatch, ollama) as app:
        assert await serving_model(app) == "qwen3"
        assert all(name.isprintable() and len(name) < 200 for name in status(app, "ollama").models)


async def test_too_long_model_list_is_cut_and_oversized_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ollama = Ollama({"qwen3": COMPLETION})
    ollama.responses = {
        "/api/tags": {"models": [{"name": f"m{n}", "capabilities": ["completion"]} for n in range(5000)]}
    }
    async with app_with_ollama(tmp_path, monkeypatch, ollama) as app:
        assert len(status(app, "ollama").models) == 1000
        huge = b'{"models": [' + b'{"name": "other", "capabilities": ["completion"]},' * 100_000 + b"{}]}"
        assert len(huge) > 4 * 2**20
        ollama.responses = {"/api/tags": huge}
        await app.server.gateway_runtime.refresh()
        assert "other" not in status(app, "ollama").models
        # The list that was known before remains.
        assert len(status(app, "ollama").models) == 1000
