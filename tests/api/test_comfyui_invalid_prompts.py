"""Malformed ComfyUI prompts: invalid names, texts that a database rejects, and huge values."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sixfold.app import catalog as app_catalog
from tests.api.app_fixture import AppFixture, running_app
from tests.api.test_comfyui_clients import node


async def finished_prompt(app: AppFixture, prompt_id: str) -> Any:
    """Wait for the history entry of a prompt, and return it."""
    async with asyncio.timeout(60):
        while not (body := (await app.client.get(f"/history/{prompt_id}")).json()):  # noqa: ASYNC110  # it polls
            await asyncio.sleep(0.01)
    return body[prompt_id]


@pytest.mark.parametrize("prefix", ["blue\0\n\x1b[1m/sky\0", "long/" * 30 + "x" * 5000, "\0", "../../up"])
async def test_file_with_any_filename_prefix_can_be_viewed(either: Path, prefix: str) -> None:
    graph = {
        "1": node("EmptyImage", width=8, height=8, batch_size=1, color=255),
        "2": node("SaveImage", images=["1", 0], filename_prefix=prefix),
    }
    async with running_app(either, app_catalog.models_document()) as app:
        sent = await app.client.post("/prompt", json={"prompt": graph, "prompt_id": "p"})
        assert sent.status_code == 200
        [file] = (await finished_prompt(app, "p"))["outputs"]["2"]["images"]
        assert file["filename"].isprintable()
        assert ".." not in file["subfolder"]
        response = await app.client.get("/view", params=file)
        assert Image.open(io.BytesIO(response.content)).size == (8, 8)
        assert list((await app.client.get("/history")).json()) == ["p"]


async def test_text_with_a_nul_or_its_escape_is_returned(either: Path) -> None:
    graph = {
        "1": node("PrimitiveString", value="a\0b \\u0000 \\\0"),
        "2": node("PreviewAny", source=["1", 0]),
    }
    async with running_app(either, app_catalog.models_document()) as app:
        await app.client.post("/prompt", json={"prompt": graph, "prompt_id": "p"})
        assert (await finished_prompt(app, "p"))["outputs"]["2"]["text"] == ["a\ufffdb \\u0000 \\\ufffd"]


async def test_graph_with_too_many_nodes_is_refused_before_queueing(tmp_path: Path) -> None:
    graph = {"0": node("PrimitiveString", value="x")}
    graph |= {str(at): node("PrimitiveString", value=[str(at - 1), 0]) for at in range(1, 5_000)}
    body = {"prompt": {**graph, "out": node("PreviewAny", source=["4999", 0])}}
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        response = await app.client.post("/prompt", json=body)
        assert response.status_code == 400
        assert "at most 5,000 nodes" in response.json()["error"]["message"]
        assert (await app.client.get("/history")).json() == {}
