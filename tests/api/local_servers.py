"""Server that has discovered local model servers, and requests that tests send to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from sixfold.app import catalog as app_catalog
from sixfold.clients.chat.servers import ServerStatus
from tests.api.app_fixture import AppFixture, running_app
from tests.fakes.local_models import COMPLETION, EMBEDDING, Ollama, listening, look_at

USUAL = {"nomic-embed-text:latest": EMBEDDING, "llama3.2:latest": COMPLETION, "qwen3:latest": COMPLETION}
SEEING = {**USUAL, "llava:7b": (*COMPLETION, "vision")}


@asynccontextmanager
async def app_with(folder: Path, **changes: Any) -> AsyncIterator[AppFixture]:
    async with running_app(folder, app_catalog.models_document(), **changes) as app:
        await app.server.gateway_runtime.wait_refreshed()
        yield app


@asynccontextmanager
async def app_with_ollama(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ollama: Ollama, **changes: Any
) -> AsyncIterator[AppFixture]:
    """Run a server that has discovered an Ollama."""
    async with listening(ollama):
        look_at(monkeypatch, ollama=ollama.port)
        async with app_with(folder, **changes) as app:
            yield app


async def chat(app: AppFixture, model: str, content: Any = "hello") -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": content}]}
    return await app.client.post("/v1/chat/completions", json=body, headers=app.bearer)


async def serving_model(app: AppFixture, model: str = "default") -> str:
    """Return the model that serves a chat completion, as the response names it."""
    response = await chat(app, model)
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["message"]["content"]).removeprefix("I am ")


def status(app: AppFixture, name: str) -> ServerStatus:
    return {each.name: each for each in app.server.gateway_runtime.statuses()}[name]


async def model_names(app: AppFixture) -> set[str]:
    """Return the names that `/v1/models` lists."""
    response = await app.client.get("/v1/models", headers=app.bearer)
    return {row["id"] for row in response.json()["data"]}


async def service(app: AppFixture, name: str) -> dict[str, Any]:
    rows = (await app.client.get("/api/services")).json()["services"]
    return next(row for row in rows if row["service"] == name)
