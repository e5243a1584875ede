"""Partial images of `/v1/images`: from the steps of ComfyUI, over the events of OpenAI's API."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from PIL import Image

from tests.api.test_comfyui import ComfySetup, comfy_setup, png

SIZE: Any = "256x256"


@pytest.fixture
async def setup(tmp_path: Path) -> AsyncIterator[ComfySetup]:
    async with comfy_setup(tmp_path) as built:
        async with asyncio.timeout(60):
            # The first probe may time out on a busy machine, and another engine would serve.
            while not built.app.server.availability("comfyui-image").ready:
                await built.app.server.availability.refresh()
        yield built


def client(setup: ComfySetup) -> openai.AsyncOpenAI:
    transport = httpx2.ASGITransport(setup.app.asgi, client=("127.0.0.1", 40000))
    return openai.AsyncOpenAI(
        api_key=setup.app.key,
        base_url="http://127.0.0.1:8600/v1",
        http_client=httpx2.AsyncClient(transport=transport),
        max_retries=0,
    )


def opened(event: Any) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(event.b64_json)))


async def test_partial_images_come_before_the_complete_one(setup: ComfySetup) -> None:
    stream = await client(setup).images.generate(
        model="ra2", prompt="a lake", size=SIZE, stream=True, partial_images=2
    )
    events: list[Any] = [event async for event in stream]
    assert [event.type for event in events] == [
        "image_generation.partial_image",
        "image_generation.partial_image",
        "image_generation.completed",
    ]
    assert [event.partial_image_index for event in events[:2]] == [0, 1]
    assert (opened(events[0]).format, opened(events[0]).size) == ("JPEG", (32, 32))
    assert events[0].output_format == "jpeg"
    assert opened(events[2]).size == (256, 256)
    assert await setup.app.balance() == ("4.96", "0.00")


async def test_partial_images_of_an_edit(setup: ComfySetup) -> None:
    image = png(Image.new("RGB", (128, 64), (200, 30, 30)))
    stream = await client(setup).images.edit(
        model="ra2", image=image, prompt="watercolour", stream=True, partial_images=1
    )
    events: list[Any] = [event async for event in stream]
    assert [event.type for event in events] == ["image_edit.partial_image", "image_edit.completed"]
    assert opened(events[1]).size == (128, 64)


async def test_a_failure_after_a_partial_image_is_an_event_and_free(setup: ComfySetup) -> None:
    setup.comfy.raises["VAEDecode"] = ("RuntimeError", "broken")
    event_types: list[str] = []
    stream = await client(setup).images.generate(
        model="ra2", prompt="a lake", size=SIZE, stream=True, partial_images=1
    )

    async def read() -> None:
        async for event in stream:
            event_types.append(event.type)

    with pytest.raises(openai.APIError, match="broken"):
        await read()
    assert event_types == ["image_generation.partial_image"]
    assert await setup.app.balance() == ("5.00", "0.00")


async def test_without_partial_images_no_preview_is_requested(setup: ComfySetup) -> None:
    stream = await client(setup).images.generate(model="ra2", prompt="a lake", size=SIZE, stream=True)
    assert [event.type async for event in stream] == ["image_generation.completed"]
    (entry,) = setup.comfy.history.values()
    assert "preview_method" not in entry["prompt"][3]


async def test_canceled_run_with_partial_images_is_charged(setup: ComfySetup) -> None:
    hold = setup.comfy.hold("KSampler")
    body = {"model": "ra2", "prompt": "a lake", "size": SIZE, "stream": True, "partial_images": 1}
    generation = asyncio.create_task(
        setup.app.client.post("/v1/images/generations", headers=setup.app.bearer, json=body)
    )
    async with asyncio.timeout(60):
        await hold.reached.wait()
    page = await setup.app.client.get("/api/containers/predictions", headers=setup.app.bearer)
    (prediction,) = page.json()["predictions"]
    canceled = await setup.app.client.post(prediction["urls"]["cancel"], headers=setup.app.bearer)
    assert canceled.json()["status"] == "running"
    generation.cancel()
    await asyncio.gather(generation, return_exceptions=True)
    hold.go.set()
    await setup.app.until("4.96", "0.00")
    assert setup.comfy.called("/interrupt") == 0
