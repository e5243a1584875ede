"""text-llm: a run whose text comes from a model server, charged by time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.concurrency.memory_limit import MemoryLimit
from sixfold.engines.providers import chat
from tests.api.app_fixture import running_app
from tests.api.gateway import running_gateway
from tests.api.test_gateway import PIXEL

RUN = "/api/containers/run"


async def test_text_of_the_model_server_is_charged_by_time(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, models=app_catalog.models_document()) as there:
        body: dict[str, Any] = {"model": "text-llm", "input": {"prompt": "say 3 words", "system": "be short"}}
        response = await there.app.client.post(RUN, json=body, headers=there.headers)
        document = response.json()
        assert (response.status_code, document["status"]) == (200, "succeeded"), document
        assert isinstance(document["output"], str)
        assert document["output"]
        assert (document["output_kind"], document["engine"], document["hardware"]) == (
            "text",
            "relay",
            "gpu-32gb",
        )
        assert 0 < float(document["cost"]) < 0.01
        request = there.acme.requests[-1].document
        assert (request["max_tokens"], request["top_p"]) == (1024, 0.8)
        (call,) = await there.settled()
        assert call["cost_usd"] == "0.00", call
        assert await there.pending() == 0


async def test_every_input_reaches_the_model(tmp_path: Path) -> None:
    wish: dict[str, Any] = {
        "max_tokens": 7,
        "temperature": 0.2,
        "top_p": 0.5,
        "system": "be short",
        "image": PIXEL,
    }
    async with running_gateway(tmp_path, models=app_catalog.models_document()) as there:
        body: dict[str, Any] = {"model": "text-llm", "input": {"prompt": "what is it?", **wish}}
        document = (await there.app.client.post(RUN, json=body, headers=there.headers)).json()
        assert (document["status"], document["output"]) == ("succeeded", "I see a picture"), document
        request = there.acme.requests[-1].document
        assert (request["max_tokens"], request["temperature"], request["top_p"]) == (7, 0.2, 0.5)
        system, user = request["messages"]
        assert system == {"role": "system", "content": "be short"}
        words, image = user["content"]
        assert words == {"type": "text", "text": "what is it?"}
        assert image["image_url"]["url"] == PIXEL


async def test_images_of_concurrent_runs_have_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[MemoryLimit] = []

    def limit(*arguments: Any) -> MemoryLimit:
        limits.append(MemoryLimit(*arguments))
        return limits[-1]

    monkeypatch.setattr(chat, "MemoryLimit", limit)
    async with running_gateway(tmp_path, models=app_catalog.models_document()) as there:
        body: dict[str, Any] = {"model": "text-llm", "input": {"prompt": "what is it?", "image": PIXEL}}

        async def run() -> dict[str, Any]:
            return (await there.app.client.post(RUN, json=body, headers=there.headers)).json()

        assert (await run())["status"] == "succeeded"
        (memory,) = limits
        assert memory.total == 0
        monkeypatch.setattr(memory, "wait_seconds", 0.01)
        await memory.lease("another account").resize(chat._MEMORY_BYTES)
        document = await run()
        assert document["status"] == "failed"
        assert "try again later" in document["error"]
        monkeypatch.setattr(chat, "MAX_IMAGE_BYTES", 1)
        assert "must be at most" in (await run())["error"]


async def test_missing_model_server_is_503_with_remedy(tmp_path: Path) -> None:
    async with running_app(tmp_path, app_catalog.models_document(), probe=False) as app:
        body = {"model": "text-llm", "input": {"prompt": "hello"}}
        response = await app.client.post(RUN, json=body, headers=app.bearer)
        assert (response.status_code, response.json()["code"]) == (503, "engine_unavailable")
        assert "OPENAI_API_KEY" in response.json()["error"]
