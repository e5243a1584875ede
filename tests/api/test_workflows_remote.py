"""Graphs with classes that only a ComfyUI has: sent unchanged, results stored, charged as usual."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sixfold.app import catalog as app_catalog
from sixfold.core.accounts.tenants import Tenant
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.api.test_comfyui_clients import PAINT, node
from tests.fakes.comfyui import Comfy, comfyui
from tests.harness import image_files
from tests.harness.waiting import wait_until

SPACES = "/api/graph/spaces"
TINT = {
    "1": node("LoadImage", image="mine.png"),
    "2": node("CustomTint", image=["1", 0], strength=0.5),
    "3": node("SaveImage", images=["2", 0], filename_prefix="art/tinted"),
}
CHECKPOINT = {"ckpt_name": "sd_xl_base_1.0.safetensors"}
PAINT_AND_TINT = {
    **PAINT,
    "4": node("CheckpointLoaderSimple", **CHECKPOINT),
    "10": node("CustomTint", image=["8", 0], strength=0.5),
    "9": node("SaveImage", filename_prefix="made", images=["10", 0]),
}


@dataclass
class ComfySetup:
    """A server, and the ComfyUI that it uses."""

    app: AppFixture
    comfy: Comfy

    async def imported(self, graph: Any, name: str) -> Any:
        """Import a graph as a workflow of the first account."""
        body = {"workflow": graph, "name": name}
        response = await self.app.client.post(SPACES, json=body, headers=self.app.bearer)
        assert response.status_code == 201
        return response.json()

    async def run(self, slug: str, wait: float = 60, **inputs: Any) -> Any:
        body = {"input": inputs, "wait": wait}
        return await self.app.client.post(f"{SPACES}/{slug}/run", json=body, headers=self.app.bearer)


@pytest.fixture
async def comfy_app(tmp_path: Path) -> AsyncIterator[ComfySetup]:
    async with (
        comfyui() as comfy,
        running_app(tmp_path, app_catalog.models_document(), comfyui_url=comfy.url) as app,
    ):
        yield ComfySetup(app, comfy)


def png(color: str = "blue") -> bytes:
    return image_files.encode(Image.new("RGB", (40, 24), color))


async def test_graph_runs_on_comfyui_with_its_files_and_returns(comfy_app: ComfySetup) -> None:
    file = {"image": ("mine.png", png(), "image/png")}
    await comfy_app.app.client.post("/upload/image", files=file, headers=comfy_app.app.bearer)
    space = await comfy_app.imported(TINT, "tint")
    assert (space["verification"]["status"], space["kind"]) == ("unverified", "image")
    assert space["customNodes"] == ["http://127.0.0.1:8600/object_info/CustomTint"]
    document = (await comfy_app.run("tint", strength=0.25)).json()
    assert (document["status"], document["cost"], document["quality"]) == ("succeeded", "0.00", "full")
    image = Image.open(io.BytesIO((await comfy_app.app.client.get(document["output"]["url"])).content))
    assert (image.size, image.getpixel((5, 5))) == ((40, 24), (64, 0, 191))
    [entry] = comfy_app.comfy.history.values()
    sent = entry["prompt"][2]
    assert sent["2"]["inputs"] == {"image": ["1", 0], "strength": 0.25}
    assert sent["1"]["inputs"]["image"].startswith("sixfold-")
    assert ("input", sent["1"]["inputs"]["image"]) in comfy_app.comfy.files
    text = (await comfy_app.app.client.get(document["urls"]["events"], headers=comfy_app.app.bearer)).text
    states = [json.loads(line[6:]) for line in text.splitlines() if '"class_type"' in line]
    assert [each["state"] for each in states if each["node"] == "2"] == [
        "started",
        "progress",
        "progress",
        "finished",
    ]
    body = (await comfy_app.run("tint", image=f"data:image/png;base64,{_base64(png('lime'))}")).json()
    image = Image.open(io.BytesIO((await comfy_app.app.client.get(body["output"]["url"])).content))
    assert image.getpixel((5, 5)) == (128, 128, 0)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


async def test_remote_run_is_held_once_at_the_usual_price(comfy_app: ComfySetup) -> None:
    check = {"workflow": PAINT_AND_TINT}
    body = (
        await comfy_app.app.client.post("/api/graph/validate", json=check, headers=comfy_app.app.bearer)
    ).json()
    assert (body["valid"], body["errors"], body["estimate"]["price_usd"]) == (True, [], "0.04")
    await comfy_app.imported(PAINT_AND_TINT, "paint")
    body = (await comfy_app.run("paint", text="a lake")).json()
    assert (body["status"], body["cost"]) == ("succeeded", "0.04")
    assert comfy_app.comfy.executed_classes.count("KSampler") == 1
    page = await comfy_app.app.client.get("/api/containers/predictions", headers=comfy_app.app.bearer)
    assert [each["model"] for each in page.json()["predictions"]] == ["space:paint"]
    second_body = (await comfy_app.run("paint", text="a lake")).json()
    assert (second_body["status"], second_body["cost"]) == ("succeeded", "0.00")
    # Older servers do not send cached results over the socket.
    comfy_app.comfy.old = True
    old = (await comfy_app.run("paint", text="a lake")).json()
    assert (old["status"], old["output"]["content_type"]) == ("succeeded", "image/png")
    assert await comfy_app.app.balance() == ("4.96", "0.00")
    assert await comfy_app.app.faults() == ()


async def test_comfyui_client_gets_the_messages_of_a_remote_run(comfy_app: ComfySetup) -> None:
    hub, client = comfy_app.app.server.workflows.hub, comfy_app.app.client
    await comfy_app.app.server.workflows.refresh_remote()
    assert "CustomTint" in (await client.get("/object_info/CustomTint")).json()
    graph = {**PAINT_AND_TINT, "11": node("SaveImageWebsocket", images=["10", 0])}
    with hub.open(Tenant(comfy_app.app.operator.id, keyless=True), "me") as events:
        response = await client.post("/prompt", json={"prompt": graph, "client_id": "me"})
        assert response.status_code == 200, response.text
        prompt_id, kinds, images = response.json()["prompt_id"], [], []
        async with asyncio.timeout(60):
            while not kinds or kinds[-1] != ("executing", None):
                heard_next = await events.next()
                if isinstance(heard_next, bytes):
                    images.append(heard_next)
                else:
                    message = json.loads(heard_next)
                    kinds.append((message["type"], message["data"].get("node")))
    assert ("progress", "3") in kinds
    assert ("executing", "10") in kinds
    assert ("executed", "9") in kinds
    assert ("execution_success", None) in kinds
    assert Image.open(io.BytesIO(images[-1][8:])).size == (96, 64)
    entry = (await client.get(f"/history/{prompt_id}")).json()[prompt_id]
    [image] = entry["outputs"]["9"]["images"]
    observed_response = await client.get("/view", params=image)
    assert Image.open(io.BytesIO(observed_response.content)).size == (96, 64)
    refused_response = await client.post(
        "/prompt", json={"prompt": {**PAINT_AND_TINT, "10": node("CustomTint", image=["8", 0], strength=3)}}
    )
    assert refused_response.json()["node_errors"]["10"]["errors"][0]["type"] == "value_bigger_than_max"


async def test_canceled_remote_run_is_interrupted_and_free(comfy_app: ComfySetup) -> None:
    await comfy_app.imported(PAINT_AND_TINT, "paint")
    hold = comfy_app.comfy.hold("KSampler")
    body = (await comfy_app.run("paint", wait=0, text="a lake")).json()
    await hold.reached.wait()
    await comfy_app.app.client.post(body["urls"]["cancel"], headers=comfy_app.app.bearer)
    await wait_until(lambda: comfy_app.comfy.called("/interrupt"))
    hold.go.set()
    prediction = await comfy_app.app.predictions.wait(await comfy_app.app.predictions.get_any(body["id"]), 60)
    assert (str(prediction.state), prediction.cost) == ("canceled", 0)
    assert await comfy_app.app.balance() == ("5.00", "0.00")


async def test_failed_remote_node_is_named_and_free(comfy_app: ComfySetup) -> None:
    await comfy_app.imported(PAINT_AND_TINT, "paint")
    comfy_app.comfy.raises["CustomTint"] = ("ValueError", "The tint is /srv/models/off.")
    body = (await comfy_app.run("paint", text="a lake")).json()
    assert (body["status"], body["cost"]) == ("failed", "0.00")
    assert body["error"] == "CustomTint (node 10): The tint is off."
    assert await comfy_app.app.balance() == ("5.00", "0.00")


async def test_result_of_an_unpaid_remote_run_is_not_free_later(either: Path) -> None:
    async with (
        comfyui() as comfy,
        running_app(either, app_catalog.models_document(), comfyui_url=comfy.url) as app,
    ):
        comfy_app = ComfySetup(app, comfy)
        await comfy_app.imported(PAINT_AND_TINT, "paint")
        comfy.raises["CustomTint"] = ("ValueError", "off")
        assert (await comfy_app.run("paint", text="a lake")).json()["status"] == "failed"
        assert await app.balance() == ("5.00", "0.00")
        comfy.raises.clear()
        costs: list[tuple[str, str]] = []
        for _ in range(2):
            body = (await comfy_app.run("paint", text="a lake")).json()
            costs.append((body["status"], body["cost"]))
        assert comfy.executed_classes.count("KSampler") == 1, "ComfyUI reuses the image of the failed run"
        assert costs == [("succeeded", "0.04"), ("succeeded", "0.00")]
        # Another account has not paid for it, and the refund of the run that paid ends its effect.
        await app.client.post(
            SPACES, json={"workflow": PAINT_AND_TINT, "name": "paint"}, headers=bearer(app.other)
        )
        run = {"input": {"text": "a lake"}, "wait": 60}
        other = await app.client.post(f"{SPACES}/paint/run", json=run, headers=bearer(app.other))
        assert (other.json()["status"], other.json()["cost"]) == ("succeeded", "0.04")
        page = await app.client.get("/api/containers/predictions", headers=app.bearer)
        [paid] = [each for each in page.json()["predictions"] if each["cost"] == "0.04"]
        await app.predictions.refund(await app.predictions.get_any(paid["id"]), "test")
        assert (await comfy_app.run("paint", text="a lake")).json()["cost"] == "0.04"
        assert await app.balance() == ("4.96", "0.00")
        assert await app.faults() == ()


async def test_refund_of_a_remote_run_leaves_what_a_later_run_paid(either: Path) -> None:
    sampler = {**PAINT_AND_TINT["3"], "inputs": {**PAINT_AND_TINT["3"]["inputs"], "seed": 6}}
    two = {
        **PAINT_AND_TINT,
        "13": sampler,
        "18": node("VAEDecode", samples=["13", 0], vae=["4", 2]),
        "19": node("SaveImage", filename_prefix="second", images=["18", 0]),
    }
    async with (
        comfyui() as comfy,
        running_app(either, app_catalog.models_document(), comfyui_url=comfy.url) as app,
    ):
        comfy_app = ComfySetup(app, comfy)
        await comfy_app.imported(PAINT_AND_TINT, "paint")
        await comfy_app.imported(two, "two")
        first = (await comfy_app.run("paint")).json()
        costs = [first["cost"], (await comfy_app.run("two")).json()["cost"]]
        await app.predictions.refund(await app.predictions.get_any(first["id"]), "test")
        costs.append((await comfy_app.run("two")).json()["cost"])
        assert costs == ["0.04", "0.04", "0.04"], "each image is paid for once, and the refunded one again"
        assert await app.balance() == ("4.92", "0.00")
        assert await app.faults() == ()


async def test_graph_that_no_single_executor_supports_is_refused(comfy_app: ComfySetup) -> None:
    unknown = {**TINT, "4": node("Nowhere", image=["2", 0])}
    check = "/api/graph/validate"
    response = await comfy_app.app.client.post(
        check, json={"workflow": unknown}, headers=comfy_app.app.bearer
    )
    assert response.json()["missing_classes"] == ["Nowhere"]
    mixed = {**TINT, "4": node("SixfoldSaveText", text="words")}
    response = await comfy_app.app.client.post(check, json={"workflow": mixed}, headers=comfy_app.app.bearer)
    assert response.json()["missing_classes"] == ["SixfoldSaveText"]
    sentences = {
        "unknown": "The connected ComfyUI lacks them",
        "mixed": "a graph cannot use both",
    }
    for name, graph in (("unknown", unknown), ("mixed", mixed)):
        await comfy_app.imported(graph, name)
        result = await comfy_app.run(name, image=image_files.data_uri(png()))
        assert (result.status_code, result.json()["code"]) == (503, "engine_unavailable")
        assert sentences[name] in result.json()["error"]
        # The URL is set, so the remedy must not name it.
        assert "SIXFOLD_COMFYUI_URL" not in result.json()["error"]


async def test_missing_classes_are_listed_with_their_remedy(tmp_path: Path) -> None:
    async with running_app(tmp_path, app_catalog.models_document()) as app:
        body = {"workflow": {**TINT, "1": node("LoadImage", image="example.png")}, "name": "tint"}
        space = await app.client.post(SPACES, json=body, headers=app.bearer)
        assert space.json()["verification"]["status"] == "unverified"
        response = await app.client.post(f"{SPACES}/tint/run", json={}, headers=app.bearer)
        assert (response.status_code, response.json()["code"]) == (503, "engine_unavailable")
        assert "CustomTint" in response.json()["error"]
        assert "SIXFOLD_COMFYUI_URL" in response.json()["error"]


async def test_public_graphs_reach_comfyui_only_when_allowed(tmp_path: Path) -> None:
    body = {"workflow": {**TINT, "1": node("LoadImage", image="example.png")}, "name": "tint"}
    public = {"public_url": "https://sixfold.example", "previews": "allow"}
    for allowed, status in (("", 503), ("allow", 200)):
        folder = tmp_path / f"data{allowed}"
        folder.mkdir()
        changes = {**public, "comfyui_graphs": allowed}
        async with (
            comfyui() as comfy,
            running_app(folder, app_catalog.models_document(), comfyui_url=comfy.url, **changes) as app,
        ):
            visitor = app.visitor("203.0.113.9", "https://sixfold.example")
            await visitor.post(SPACES, json=body, headers=app.bearer)
            response = await visitor.post(f"{SPACES}/tint/run", json={}, headers=app.bearer)
            assert response.status_code == status, response.text
            assert allowed or "SIXFOLD_COMFYUI_GRAPHS=allow" in response.json()["error"]
            await visitor.aclose()
