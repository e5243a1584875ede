"""Checkpoints of the operator's ComfyUI servers as models, and load sharing between servers."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from sixfold.app import catalog as app_catalog
from sixfold.engines import image_models
from sixfold.engines.providers.comfyui import availability as comfyui_availability
from sixfold.engines.providers.comfyui import checkpoints
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.fakes.comfyui import Comfy, comfyui
from tests.fakes.comfyui_nodes import InstalledFiles

RUN = "/api/containers/run"
XL, PONY = "sd_xl_base_1.0.safetensors", "styles/Pony Diffusion v6.safetensors"
TWO = InstalledFiles(checkpoints=(XL, PONY), loras=("styles/ink wash.safetensors", "detail.safetensors"))
MODEL = "comfyui/sd_xl_base_1.0"


@asynccontextmanager
async def using(
    folder: Path, *servers: InstalledFiles, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[AppFixture, Sequence[Comfy]]]:
    monkeypatch.setattr(comfyui_availability, "PROBE_SECONDS", 30.0)
    async with AsyncExitStack() as stack:
        comfys = [await stack.enter_async_context(comfyui(each)) for each in servers]
        urls = tuple(each.url for each in comfys)
        app = await stack.enter_async_context(
            running_app(folder, app_catalog.models_document(), comfyui_urls=urls)
        )
        await app.server.availability.refresh()
        yield app, comfys


@pytest.fixture
async def server_with_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[AppFixture, Comfy]]:
    async with using(tmp_path, TWO, monkeypatch=monkeypatch) as (app, (comfy,)):
        yield app, comfy


async def run(app: AppFixture, model: str = MODEL, **inputs: Any) -> httpx.Response:
    inputs = {"prompt": "a lake", "size": "256x256", "steps": 2, "seed": 1, **inputs}
    return await app.client.post(RUN, json={"model": model, "input": inputs}, headers=app.bearer)


def sample(comfy: Comfy) -> dict[str, Any]:
    """Return the inputs of the sampler and the loaders of the last prompt."""
    prompt = next(reversed(comfy.history.values()))["prompt"][2]
    nodes: dict[str, Any] = {}
    for node in prompt.values():
        nodes.setdefault(node["class_type"], []).append(node["inputs"])
    return nodes


async def test_checkpoints_are_listed_as_models(server_with_checkpoints: tuple[AppFixture, Comfy]) -> None:
    app, _ = server_with_checkpoints
    names = {MODEL, "comfyui/Pony-Diffusion-v6"}
    models = (await app.client.get("/v1/models", headers=app.bearer)).json()["data"]
    assert {row["id"] for row in models if row["id"].startswith("comfyui/")} == names
    templates = (await app.client.get("/api/containers/templates", headers=app.bearer)).json()["templates"]
    assert {row["name"] for row in templates} >= names
    services = (await app.client.get("/api/services")).json()["services"]
    row = next(row for row in services if row["service"] == MODEL)
    assert (row["available"], row["engine"], row["price"]) == (True, "comfyui-image", "0.04 USD per image")
    inputs = {each["name"]: each for each in row["inputs"]}
    assert inputs["sampler"]["default"] == "dpmpp_2m"
    assert "euler" in inputs["sampler"]["choices"]
    assert "detail, ink-wash" in inputs["lora"]["description"]
    detail = await app.client.get(f"/api/containers/templates/{MODEL}", headers=app.bearer)
    assert detail.json()["schema"]["outputKind"] == "image"
    for path in ("/catalog", f"/catalog/{MODEL}"):
        page = await app.client.get(path, headers=app.bearer)
        assert (page.status_code, MODEL in page.text) == (200, True)


async def test_inputs_of_a_checkpoint_reach_its_graph(
    server_with_checkpoints: tuple[AppFixture, Comfy],
) -> None:
    app, comfy = server_with_checkpoints
    response = await run(
        app,
        "comfyui/Pony-Diffusion-v6",
        negative_prompt="blur",
        steps=3,
        cfg=4.5,
        sampler="euler",
        scheduler="normal",
        seed=7,
        lora=["ink-wash:0.6", "detail"],
    )
    assert response.status_code in (200, 201), response.text
    nodes = sample(comfy)
    assert [each["ckpt_name"] for each in nodes["CheckpointLoaderSimple"]] == [PONY]
    (sampler,) = nodes["KSampler"]
    assert (sampler["steps"], sampler["cfg"], sampler["seed"]) == (3, 4.5, 7)
    assert (sampler["sampler_name"], sampler["scheduler"]) == ("euler", "normal")
    assert [(each["lora_name"], each["strength_model"]) for each in nodes["LoraLoader"]] == [
        ("styles/ink wash.safetensors", 0.6),
        ("detail.safetensors", 1.0),
    ]
    assert {each["text"] for each in nodes["CLIPTextEncode"]} == {"a lake", "blur"}
    assert await app.balance() == ("4.96", "0.00")


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        ({"sampler": "magic"}, "sampler must be one of"),
        ({"scheduler": "magic"}, "scheduler must be one of"),
        ({"lora": ["other:0.5"]}, "lora must have the form"),
        ({"lora": ["detail:50"]}, "lora must have the form"),
        ({"lora": ["detail"] * 9}, "lora must"),
        ({"size": "4096x4096"}, "size must have the form"),
        ({"steps": 1000}, "steps must"),
        ({"cfg": 99}, "cfg must"),
    ],
)
async def test_input_that_comfyui_does_not_have_is_refused(
    server_with_checkpoints: tuple[AppFixture, Comfy], inputs: dict[str, Any], named: str
) -> None:
    app, comfy = server_with_checkpoints
    response = await run(app, **inputs)
    assert (response.status_code, named in response.text) == (400, True), response.text
    assert comfy.history == {}
    assert await app.balance() == ("5.00", "0.00")


async def test_images_api_takes_the_inputs_of_a_checkpoint(
    server_with_checkpoints: tuple[AppFixture, Comfy],
) -> None:
    app, comfy = server_with_checkpoints
    body = {"model": MODEL, "prompt": "a lake", "size": "256x256", "n": 2, "steps": 2, "lora": ["detail:0.3"]}
    response = await app.client.post("/v1/images/generations", json=body, headers=app.bearer)
    assert (response.status_code, len(response.json()["data"])) == (200, 2), response.text
    (sampler,) = sample(comfy)["KSampler"]
    assert sampler["steps"] == 2
    assert await app.balance() == ("4.92", "0.00")
    body = {"service": MODEL, "prompt": "a lake", "size": "256x256", "steps": 1}
    response = await app.client.post("/api/service", json=body, headers=app.bearer)
    assert response.status_code == 200, response.text


async def test_checkpoint_is_quoted_and_queued_by_its_path(
    server_with_checkpoints: tuple[AppFixture, Comfy],
) -> None:
    app, _ = server_with_checkpoints
    body = {"input": {"prompt": "a lake", "size": "256x256", "steps": 1}}
    quote = await app.client.post(f"/api/containers/{MODEL}/quote", json=body, headers=app.bearer)
    assert (quote.status_code, quote.json()["price_usd"]) == (200, "0.04"), quote.text
    joined = await app.client.post(f"/api/containers/{MODEL}/queue/join", json=body, headers=app.bearer)
    assert joined.status_code == 202, joined.text


async def test_unknown_checkpoint_is_404_with_near_names(
    server_with_checkpoints: tuple[AppFixture, Comfy],
) -> None:
    app, _ = server_with_checkpoints
    response = await run(app, "comfyui/sd_xl_base")
    assert (response.status_code, f"did you mean {MODEL}" in response.text) == (404, True), response.text
    body = {"model": "comfyui/sd_xl_base", "prompt": "a"}
    response = await app.client.post("/v1/images/generations", json=body, headers=app.bearer)
    assert (response.status_code, MODEL in response.json()["error"]["message"]) == (404, True)
    allowed = bearer(app.other)
    assert (await app.client.get(f"/v1/models/{MODEL}", headers=allowed)).status_code == 200


async def test_models_follow_the_checkpoints_of_the_server(
    server_with_checkpoints: tuple[AppFixture, Comfy],
) -> None:
    app, comfy = server_with_checkpoints
    comfy.installed = dataclasses.replace(TWO, checkpoints=(PONY, "dreamshaper_8.safetensors"))
    await app.server.availability.refresh()
    assert set(app.server.catalog.discovered) == {"comfyui/Pony-Diffusion-v6", "comfyui/dreamshaper_8"}
    assert (await run(app)).status_code == 404
    assert (await run(app, "comfyui/dreamshaper_8")).status_code in (200, 201)
    await comfy.stop()
    await app.server.availability.refresh()
    assert app.server.catalog.discovered == {}


async def test_servers_share_runs_and_skip_those_without_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = InstalledFiles(checkpoints=("dreamshaper_8.safetensors",))
    moved = InstalledFiles(checkpoints=(f"xl/{XL}",))
    async with using(tmp_path, TWO, moved, other, monkeypatch=monkeypatch) as (app, (first, second, third)):
        assert list(app.server.catalog.discovered).count(MODEL) == 1
        holds = [first.hold("KSampler"), second.hold("KSampler")]
        runs = [asyncio.create_task(run(app, seed=seed)) for seed in (1, 2)]
        await asyncio.gather(*(hold.reached.wait() for hold in holds))
        for hold in holds:
            hold.go.set()
        assert {(await each).status_code for each in runs} <= {200, 201}
        assert [len(each.history) for each in (first, second, third)] == [1, 1, 0]
        assert (await run(app, "comfyui/dreamshaper_8")).status_code in (200, 201)
        assert len(third.history) == 1


async def test_run_moves_from_a_dead_server_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with using(tmp_path, TWO, TWO, monkeypatch=monkeypatch) as (app, (first, second)):
        assert (await run(app)).status_code in (200, 201)
        await first.stop()
        assert (await run(app, seed=2)).status_code in (200, 201)
        assert (await run(app, seed=3)).status_code in (200, 201)
        assert len(second.history) >= 2
        await app.server.availability.refresh()
        assert app.server.availability("comfyui-image").detail.endswith(second.url)


def test_ids_are_sanitized_and_unique_within_a_server() -> None:
    files = ("a/model.safetensors", "b\\model.ckpt", "häß lich!.safetensors", "…", "x" * 300 + ".gguf")
    named = checkpoints.ids(files)
    assert list(named) == ["a-model", "b-model", "h-lich", "x" * 100]
    assert named["b-model"] == "b\\model.ckpt"


@pytest.mark.parametrize(
    ("text", "parsed"),
    [("a", ("a", 1.0)), ("a:0.5", ("a", 0.5)), ("a:-1", ("a", -1.0)), ("a:b", ("a:b", 1.0)), ("", ("", 1.0))],
)
def test_lora_is_a_name_with_an_optional_weight(text: str, parsed: tuple[str, float]) -> None:
    assert image_models.parse_lora(text) == parsed
