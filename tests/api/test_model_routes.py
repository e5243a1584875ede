"""Chats with a model that makes something else: the error names the route that runs the model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sixfold.app import catalog as app_catalog
from tests.api.app_fixture import AppFixture, running_app

MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AppFixture]:
    async with running_app(tmp_path, app_catalog.models_document(), probe=False) as app:
        yield app


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("ra1", "ra1 makes images: use POST /v1/images/generations"),
        ("dall-e-3", "dall-e-3 makes images: use POST /v1/images/generations"),
        ("upscaler", 'upscaler makes images: use POST /api/service with "service": "upscaler"'),
        ("video-text", "video-text makes videos: use POST /v1/videos"),
        ("tts-1", "tts-1 makes audio: use POST /v1/audio/speech"),
        ("whisper-1", "whisper-1 is not available on this route: use POST /v1/audio/transcriptions"),
        ("image-to-3d-voxel", "image-to-3d-voxel makes files: use POST /api/service with"),
    ],
)
async def test_a_chat_with_another_model_names_its_route(app: AppFixture, model: str, text: str) -> None:
    body = {"model": model, "messages": MESSAGES}
    response = await app.client.post("/v1/chat/completions", json=body, headers=app.bearer)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (404, "model_not_found")
    assert error["message"].startswith(text)
    assert error["message"].endswith(", or another model of GET /v1/models")


async def test_every_dialect_names_the_route(app: AppFixture) -> None:
    sentence = "ra1 makes images: use POST /v1/images/generations, or another model of GET /v1/models"

    async def post(path: str, **fields: object) -> tuple[int, Any]:
        body = {"model": "ra1", **fields}
        response = await app.client.post(path, json=body, headers=app.bearer)
        return response.status_code, response.json()["error"]

    status, error = await post("/v1/messages", messages=MESSAGES, max_tokens=9)
    assert (status, error) == (404, {"type": "not_found_error", "message": sentence, "code": error["code"]})
    assert await post("/ollama/api/chat", messages=MESSAGES) == (404, sentence)
    for path, fields in (("/v1/responses", {"input": "hello"}), ("/v1/completions", {"prompt": "hello"})):
        status, error = await post(path, **fields)
        assert (status, error["message"]) == (404, sentence), path


async def test_unknown_names_are_not_described(app: AppFixture) -> None:
    body = {"model": "nothing", "messages": MESSAGES}
    response = await app.client.post("/v1/chat/completions", json=body, headers=app.bearer)
    assert response.json()["error"]["message"].startswith("No model server is configured")
