"""A ComfyUI behind every API: images are charged when they are stored and only then."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image, ImageChops

from sixfold.app import catalog as app_catalog
from sixfold.core.provenance import embed
from tests.api.app_fixture import AppFixture, running_app
from tests.fakes.comfyui import Comfy, comfyui
from tests.fakes.comfyui_nodes import InstalledFiles
from tests.harness import image_files

RUN = "/api/containers/run"


@dataclass
class ComfySetup:
    """A server, and the ComfyUI that it uses."""

    app: AppFixture
    comfy: Comfy

    async def ra2(self, prompt: str = "a lake", **more: Any) -> httpx.Response:
        """Run a prediction of a small image."""
        body = {"model": "ra2", "input": {"prompt": prompt, "width": 256, "height": 256, "seed": 1}, **more}
        return await self.app.client.post(RUN, json=body, headers=self.app.bearer)


@asynccontextmanager
async def comfy_setup(
    folder: Path, installed: InstalledFiles | None = None, **changes: Any
) -> AsyncIterator[ComfySetup]:
    async with (
        comfyui(installed) as comfy,
        running_app(folder, app_catalog.models_document(), comfyui_url=comfy.url, **changes) as app,
    ):
        yield ComfySetup(app, comfy)


def png(image: Image.Image) -> bytes:
    return image_files.encode(image)


@pytest.fixture
async def comfy_app(tmp_path: Path) -> AsyncIterator[ComfySetup]:
    async with comfy_setup(tmp_path) as built:
        async with asyncio.timeout(60):
            # The first probe may time out on a busy machine, and another engine would serve.
            while not built.app.server.availability("comfyui-image").ready:
                await built.app.server.availability.refresh()
        yield built


async def test_media_api_returns_a_comfyui_image_at_list_price(comfy_app: ComfySetup) -> None:
    request = {"api_key": comfy_app.app.key, "prompt": "a lake", "size": "1360x768"}
    response = await comfy_app.app.client.post("/api/ra1", json=request)
    assert response.status_code == 200
    assert response.headers["X-Sixfold-Engine"] == "comfyui-image"
    assert response.headers["X-Sixfold-Quality"] == "full"
    image = await comfy_app.app.client.get(response.json()["image_url"])
    assert Image.open(io.BytesIO(image.content)).size == (1360, 768)
    assert await comfy_app.app.balance() == ("4.96", "0.00")
    assert await comfy_app.app.faults() == ()


async def test_masked_edit_uses_the_inpainting_model(comfy_app: ComfySetup) -> None:
    image, mask = Image.new("RGB", (96, 64), (200, 30, 30)), Image.new("RGBA", (96, 64), (0, 0, 0, 255))
    mask.paste((0, 0, 0, 0), (60, 20, 80, 40))
    files = {
        name: (f"{name}.png", png(content), "image/png")
        for name, content in (("image", image), ("mask", mask))
    }
    data = {"prompt": "a blue boat", "model": "gpt-image-1"}
    answer = await comfy_app.app.client.post(
        "/v1/images/edits", data=data, files=files, headers=comfy_app.app.bearer
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["X-Sixfold-Engine"] == "comfyui-fill"
    assert "ignored" not in answer.json()
    edited = Image.open(io.BytesIO(base64.b64decode(answer.json()["data"][0]["b64_json"])))
    assert edited.size == (96, 64)
    box = ImageChops.difference(edited.convert("RGB"), image).getbbox()
    assert box is not None
    assert (box[0] >= 44, box[1] >= 4, box[2] <= 96, box[3] <= 56) == (True,) * 4
    assert await comfy_app.app.balance() == ("4.96", "0.00")
    without = {**data, "model": "image-fill"}
    only = {"image": files["image"]}
    response = await comfy_app.app.client.post(
        "/v1/images/edits", data=without, files=only, headers=comfy_app.app.bearer
    )
    assert (response.status_code, response.json()["error"]["param"]) == (400, "mask")
    assert await comfy_app.app.faults() == ()


async def test_manifest_names_the_engine_version_and_checkpoint(comfy_app: ComfySetup) -> None:
    body = (await comfy_app.ra2()).json()
    image = await comfy_app.app.client.get(body["output"]["url"])
    manifest = embed.extract(image.content)
    assert manifest is not None
    assert "comfyui-image" in manifest
    assert "1/comfyui-0.8.0/sd_xl_base_1.0/RealESRGAN_x4plus" in manifest
    assert "ComfyUI 0.8.0: sd_xl_base_1.0.safetensors" in body["logs"]


async def test_concurrent_runs_get_their_own_results(comfy_app: ComfySetup) -> None:
    answers = await asyncio.gather(*(comfy_app.ra2(f"lake {n}") for n in range(4)))
    images = [(await comfy_app.app.client.get(a.json()["output"]["url"])).content for a in answers]
    assert len(set(images)) == 4
    second_response = await comfy_app.app.client.get((await comfy_app.ra2("lake 2")).json()["output"]["url"])
    first, second = (Image.open(io.BytesIO(data)).tobytes() for data in (images[2], second_response.content))
    assert first == second


async def test_style_prompt_restyles_an_image(comfy_app: ComfySetup) -> None:
    uri = image_files.data_uri(image_files.encode(Image.new("RGB", (320, 200), "teal")))
    order = {"source_image_url": uri, "style_prompt": "a mural on wet plaster", "format": "webp"}
    body = {"model": "style-transfer", "input": order}
    document = (await comfy_app.app.client.post(RUN, json=body, headers=comfy_app.app.bearer)).json()
    assert document["status"] == "succeeded"
    image = Image.open(io.BytesIO((await comfy_app.app.client.get(document["output"]["url"])).content))
    assert (image.format, image.size) == ("WEBP", (320, 200))
    assert comfy_app.comfy.called("/upload/image") == 1


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("memory", "ComfyUI ran out of memory in KSampler: a smaller image, or fewer at a time, may fit."),
        ("page", "ComfyUI returned an image that cannot be read: try again."),
        ("dead", "ComfyUI cannot be reached."),
    ],
)
async def test_comfyui_fault_is_reported_and_free(comfy_app: ComfySetup, fault: str, message: str) -> None:
    if fault == "memory":
        comfy_app.comfy.raises["KSampler"] = ("OutOfMemoryError", "Allocation on device")
    elif fault == "page":
        comfy_app.comfy.responses["/view"] = b"<html>"
    else:
        await comfy_app.comfy.stop()
    body = (await comfy_app.ra2()).json()
    assert (body["status"], body["error"]) == ("failed", message)
    assert await comfy_app.app.balance() == ("5.00", "0.00")
    assert await comfy_app.app.faults() == ()


async def test_cancelation_stops_comfyui_and_is_free(comfy_app: ComfySetup) -> None:
    hold = comfy_app.comfy.hold("KSampler")
    queued = await comfy_app.ra2(wait=0)
    assert queued.status_code == 202
    async with asyncio.timeout(60):
        await hold.reached.wait()
    await comfy_app.app.client.post(queued.json()["urls"]["cancel"], headers=comfy_app.app.bearer)
    await comfy_app.app.until("5.00", "0.00")
    hold.go.set()
    async with asyncio.timeout(60):
        while comfy_app.comfy.running:
            comfy_app.comfy.change_event.clear()
            await comfy_app.comfy.change_event.wait()
    assert "VAEDecode" not in comfy_app.comfy.executed_classes
    assert comfy_app.comfy.called("/interrupt") == 1


async def test_next_engine_serves_without_a_checkpoint(tmp_path: Path) -> None:
    async with comfy_setup(tmp_path, InstalledFiles(checkpoints=())) as built:
        response = await built.ra2()
    assert response.headers["X-Sixfold-Engine"] == "scene-painter"


async def test_missing_checkpoint_is_503_if_only_comfyui_may_serve(tmp_path: Path) -> None:
    tables = {"engines": {"models": {"ra2": "comfyui-image"}}}
    async with comfy_setup(tmp_path, InstalledFiles(checkpoints=()), tables=tables) as built:
        response = await built.ra2()
    assert response.status_code == 503
    assert "SIXFOLD_COMFYUI_URL" in response.json()["error"]
