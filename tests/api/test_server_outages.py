"""A model server that no longer responds: where its state is shown, which calls fail how, and its return."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from sixfold.app import catalog as app_catalog
from sixfold.engines.availability import EngineAvailability
from sixfold.engines.providers.comfyui import availability as comfyui_availability
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.api.local_servers import app_with, chat, model_names, service, serving_model, status
from tests.api.test_pages import signed_in
from tests.fakes import local_models as fakes
from tests.fakes.comfyui import comfyui
from tests.fakes.local_models import COMPLETION, Ollama, listening, look_at

SINCE = "has not responded since "


@asynccontextmanager
async def app_with_box(folder: Path, port: int) -> AsyncIterator[AppFixture]:
    """Run a server with the configured model server `box` on a port."""
    upstreams = {"box": {"kind": "vllm", "base_url": f"http://127.0.0.1:{port}/v1"}}
    tables = {"gateway": {"retries": 0, "upstreams": upstreams}}
    async with app_with(folder, probe=False, tables=tables) as app:
        yield app


async def free_port() -> int:
    async with listening(fakes.vllm("mistral")) as server:
        return server.port


async def post_chat(app: AppFixture) -> httpx.Response:
    body = {"service": "chat", "prompt": "hello"}
    return await app.client.post("/api/service", json=body, headers=app.bearer)


async def report(app: AppFixture) -> dict[str, Any]:
    response = await app.client.get("/api/engines", headers=bearer(await app.operator_key()))
    return response.json()


async def test_a_configured_server_that_stops_and_returns(tmp_path: Path) -> None:
    box, port = fakes.vllm("mistral"), await free_port()
    async with app_with_box(tmp_path, port) as app:
        runtime = app.server.gateway_runtime
        async with listening(box, port=port):
            await runtime.refresh()
            assert (await service(app, "chat"))["available"] is True
            assert (await post_chat(app)).status_code == 200
        await runtime.refresh()
        # One failed probe does not make the service unavailable.
        assert (await service(app, "chat"))["available"] is True
        await runtime.refresh()

        row = await service(app, "chat")
        assert row["available"] is False
        assert f"No engine can serve chat now: the model server box {SINCE}" in row["unlock"]
        body = {"model": "text-llm", "input": {"prompt": "hello"}}
        refused = await app.client.post("/api/containers/run", json=body, headers=app.bearer)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "15")
        assert f"the model server box {SINCE}" in refused.json()["error"]
        # Direct calls are tried, so that they work as soon as the server returns.
        failed, direct = await post_chat(app), await chat(app, "box/mistral")
        assert [failed.status_code, direct.status_code] == [502, 502]
        assert failed.json()["error"] == direct.json()["error"]["message"]
        assert "The model server box could not be reached: try again later" in failed.json()["error"]
        for text in (refused.text, failed.text, direct.text, str(row)):
            assert f":{port}" not in text

        document = await report(app)
        found = next(each for each in document["found"] if each["name"] == "box (vLLM)")
        assert (found["state"], found["url"]) == ("unreachable", f"http://127.0.0.1:{port}")
        relay = next(each for each in document["engines"] if each["engine"] == "relay")
        assert not relay["ready"]
        assert relay["detail"].startswith(f"box {SINCE}")
        await signed_in(app, app.operator)
        for path in ("/admin", "/admin/models", "/admin/engines", "/catalog/text-llm", "/chat"):
            assert SINCE in (await app.client.get(path)).text, path
        view = await app.client.get("/api/operator/configuration", headers=bearer(await app.operator_key()))
        assert view.json()["servers"][0]["outage"].startswith(SINCE)

        async with listening(box, port=port):
            await runtime.refresh()
            assert (await service(app, "chat"))["available"] is True
            assert (await post_chat(app)).status_code == 200
            assert SINCE not in (await app.client.get("/admin")).text


async def test_a_server_that_never_responded_is_named(tmp_path: Path) -> None:
    async with app_with_box(tmp_path, await free_port()) as app:
        assert (await service(app, "chat"))["available"] is False
        failed = await chat(app, "default")
        assert failed.status_code == 503
        message = failed.json()["error"]["message"]
        assert f"No engine can serve default now: the model server box {SINCE}" in message
        assert "x-should-retry" not in failed.headers


async def test_a_discovered_server_that_stops_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ollama = Ollama({"qwen3:latest": COMPLETION})
    async with listening(ollama):
        port = ollama.port
        look_at(monkeypatch, ollama=port)
    async with app_with(tmp_path) as app:
        runtime = app.server.gateway_runtime
        # A known port where no server was found is not an outage.
        assert (await chat(app, "default")).json()["error"]["message"].startswith("No model server is conf")
        async with listening(ollama, port=port):
            await runtime.refresh()
            assert runtime.gateway.router.resolve("default")[0].name == "ollama/qwen3:latest"
        await runtime.refresh()
        assert status(app, "ollama").state == "absent"
        for name in ("default", "qwen3", "ollama/other"):
            failed = await chat(app, name)
            assert failed.status_code == 503
            text = failed.json()["error"]["message"]
            assert f"No engine can serve {name} now: the model server ollama {SINCE}" in text
        assert "the model server ollama" in (await service(app, "chat"))["unlock"]
        assert "ollama/qwen3:latest" not in await model_names(app)
        async with listening(ollama, port=port):
            await runtime.refresh()
            assert await serving_model(app) == "qwen3:latest"


async def test_a_proxy_without_its_server_is_not_a_model_server(tmp_path: Path) -> None:
    box = fakes.vllm("mistral")
    async with listening(box), app_with_box(tmp_path, box.port) as app:
        box.responses["/v1/models"] = 502
        await app.server.gateway_runtime.refresh()
        assert status(app, "box").state == "ready"
        await app.server.gateway_runtime.refresh()
        outage = status(app, "box").outage
        assert outage is not None
        assert outage.reason == "responds with status 502"


async def test_default_uses_a_server_that_responds(tmp_path: Path) -> None:
    async with listening(fakes.vllm("phi")) as second:
        upstreams = {
            "box": {"kind": "vllm", "base_url": f"http://127.0.0.1:{await free_port()}", "models": ["small"]},
            "second": {"kind": "vllm", "base_url": f"http://127.0.0.1:{second.port}/v1"},
        }
        async with app_with(tmp_path, probe=False, tables={"gateway": {"upstreams": upstreams}}) as app:
            assert await serving_model(app) == "phi"
            assert (await service(app, "chat"))["available"] is True


async def test_a_silent_server_does_not_delay_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comfyui_availability, "PROBE_SECONDS", 3600.0)
    async with comfyui() as comfy, listening(fakes.vllm("phi")) as box:
        comfy.silent.add("/system_stats")
        box.slow = True
        upstreams = {"box": {"kind": "vllm", "base_url": f"http://127.0.0.1:{box.port}/v1"}}
        async with running_app(
            tmp_path,
            app_catalog.models_document(),
            probe=False,
            comfyui_url=comfy.url,
            tables={"gateway": {"upstreams": upstreams}},
        ) as app:
            assert (await app.client.get("/readyz")).status_code == 200


async def test_a_failed_check_at_the_start_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_self: EngineAvailability) -> None:
        raise RuntimeError("the folder cannot be read")

    monkeypatch.setattr(EngineAvailability, "refresh", fail)
    async with running_app(tmp_path) as app:
        assert (await app.client.get("/readyz")).status_code == 200
    assert "first availability" in caplog.text


async def test_a_comfyui_that_stops_is_reported(tmp_path: Path) -> None:
    async with comfyui() as comfy:
        url = comfy.url
        async with running_app(
            tmp_path,
            app_catalog.models_document(),
            probe=False,
            comfyui_url=url,
            public_url="https://a.example",
        ) as app:
            assert (await service(app, "ra1"))["engine"] == "comfyui-image"
            await comfy.stop()
            await app.server.availability.refresh()
            row = await service(app, "ra1")
            assert row["available"] is False
            assert f"No engine can serve ra1 now: ComfyUI {SINCE}" in row["unlock"]
            found = next(each for each in (await report(app))["found"] if each["name"] == "ComfyUI")
            assert (found["state"], found["url"]) == ("unreachable", url)
