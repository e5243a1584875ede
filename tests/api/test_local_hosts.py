"""Discovery of model servers and ComfyUI: shared ports, other hosts, and never another Sixfold."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import msgspec
import pytest

from sixfold.clients import hosts, local_servers
from sixfold.clients.chat import servers as server_list
from sixfold.core import reachability
from sixfold.engines.providers.comfyui import availability as comfyui_availability
from tests.api.app_fixture import running_app
from tests.api.gateway import listening as served
from tests.api.local_servers import USUAL, app_with, chat, serving_model, status
from tests.fakes import local_models as fakes
from tests.fakes.comfyui import comfyui
from tests.fakes.local_models import LocalModels, Ollama, listening, look_at


@pytest.mark.parametrize(
    ("server", "kind"),
    [(fakes.llama_cpp("gemma", vision=False), "llamacpp"), (fakes.llama_swap("gemma"), "llamaswap")],
)
async def test_kind_of_server_on_a_shared_port_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: LocalModels, kind: str
) -> None:
    async with listening(dataclasses.replace(server, paths=[])) as there:
        look_at(monkeypatch, llamacpp=there.port, llamaswap=there.port)
        async with app_with(tmp_path) as app:
            ready = [
                each.kind
                for each in app.server.gateway_runtime.statuses()
                if each.discovered and each.state == "ready"
            ]
            assert ready == [kind]
            assert await serving_model(app, f"{kind}/gemma") == "gemma"


async def test_server_on_a_configured_host_is_named_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(Ollama(USUAL), "127.0.0.2") as ollama:
        look_at(monkeypatch, ollama=ollama.port)
        async with app_with(tmp_path, probe_hosts=("127.0.0.2",)) as app:
            assert await serving_model(app, "default") == "llama3.2:latest"
            assert await serving_model(app, "ollama@127.0.0.2/qwen3") == "qwen3"
            assert await serving_model(app, "ollama/qwen3") == "qwen3"
            there = status(app, "ollama@127.0.0.2")
            assert (there.state, there.kind, there.title) == ("ready", "ollama", "Ollama")
            assert (there.host, there.url) == ("127.0.0.2", f"http://127.0.0.2:{ollama.port}")
            assert status(app, "ollama").state == "absent"


async def test_server_on_the_container_host_is_discovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "CONTAINER_HOST", "127.0.0.3")
    async with listening(Ollama(USUAL), "127.0.0.3") as ollama:
        look_at(monkeypatch, ollama=ollama.port)
        async with app_with(tmp_path) as app:
            assert await serving_model(app) == "llama3.2:latest"
            assert status(app, "ollama@127.0.0.3").state == "ready"


async def test_local_server_is_not_found_again_on_container_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosts, "CONTAINER_HOST", "127.0.0.3")
    monkeypatch.setattr(server_list, "CONTAINER_HOST", "127.0.0.3")
    async with listening(Ollama(USUAL), "0.0.0.0") as ollama:
        look_at(monkeypatch, ollama=ollama.port)
        async with app_with(tmp_path) as app:
            assert status(app, "ollama").state == "ready"
            assert status(app, "ollama@127.0.0.3").state == "absent"


async def test_no_host_is_probed_when_probing_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(Ollama(USUAL), "0.0.0.0") as ollama:
        look_at(monkeypatch, ollama=ollama.port)
        async with app_with(tmp_path, probe=False, probe_hosts=("127.0.0.2",)) as app:
            assert ollama.paths == []
            assert [each for each in app.server.gateway_runtime.statuses() if each.discovered] == []


@pytest.mark.parametrize(
    ("kind", "title"), [("ollama", "box (Ollama)"), ("openai", "box")], ids=["ollama", "openai"]
)
async def test_configured_server_on_a_known_port_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, title: str
) -> None:
    async with listening(Ollama(USUAL)) as ollama:
        look_at(monkeypatch, ollama=ollama.port)
        url = f"http://localhost:{ollama.port}"
        upstreams = {"box": {"kind": kind, "base_url": f"{url}/v1"}}
        async with app_with(tmp_path, tables={"gateway": {"upstreams": upstreams}}) as app:
            rows = [
                row
                for row in await app.server.resources.resources()
                if row.kind == "chat" and (row.found or row.name == "Ollama")
            ]
            assert [(row.name, row.found) for row in rows] == [(title, f"at {url}")]
            assert (await chat(app, "qwen3:latest")).headers["X-Sixfold-Engine"] == "box/qwen3:latest"


async def test_another_sixfold_on_a_known_port_is_no_model_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_app(tmp_path / "other", probe=False) as other, served(other.asgi) as origin:
        port = int(origin.rpartition(":")[2])
        look_at(monkeypatch, lmstudio=port, ollama=port)
        async with app_with(tmp_path / "own") as app:
            assert {status(app, kind).state for kind in ("lmstudio", "ollama")} == {"absent"}


async def test_every_probe_request_has_the_hop_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with listening(Ollama(USUAL)) as ollama:
        look_at(monkeypatch, ollama=ollama.port)
        async with app_with(tmp_path):
            assert {"/api/version", "/api/tags", "/api/show", "/api/ps"} <= set(ollama.paths)
            assert {headers.get("x-sixfold-hop") for headers in ollama.headers} == {"1"}


async def test_slow_server_is_kept_and_does_not_delay_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_list, "PROBE_SECONDS", 0.3)
    async with listening(Ollama(USUAL)) as ollama, listening(fakes.vllm("mistral")) as vllm:
        look_at(monkeypatch, ollama=ollama.port, vllm=vllm.port)
        vllm.slow = True
        async with app_with(tmp_path) as app:
            # No probe has found the server ready yet.
            assert status(app, "vllm").state == "slow"
            assert await serving_model(app) == "llama3.2:latest"
            vllm.slow = False
            await app.server.gateway_runtime.refresh()
            assert status(app, "vllm").state == "ready"
            monkeypatch.setattr(server_list, "_LIST_SECONDS", 0.3)
            vllm.slow = True
            await app.server.gateway_runtime.refresh()
            # The server is still busy, and is listed with its known models.
            assert status(app, "vllm").state == "ready"
            assert status(app, "vllm").models == ("mistral",)
            monkeypatch.setattr(reachability, "BUSY_SECONDS", 0.0)
            await app.server.gateway_runtime.refresh()
            assert status(app, "vllm").state == "slow"


async def test_a_comfyui_on_a_probed_host_makes_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with comfyui(host="127.0.0.2") as comfy:
        port = int(comfy.url.rpartition(":")[2])
        look_at(monkeypatch)
        monkeypatch.setattr(comfyui_availability, "PROBE_SECONDS", 30.0)
        monkeypatch.setattr(
            local_servers, "COMFYUI", msgspec.structs.replace(local_servers.COMFYUI, port=port)
        )
        async with app_with(tmp_path, probe_hosts=("127.0.0.2",)) as app:
            await app.server.availability.refresh()
            assert app.server.availability("comfyui-image").detail.endswith(f"at {comfy.url}")
            body = {"prompt": "a lighthouse", "size": "1024x1024"}
            response = await app.client.post("/api/ra1", json=body, headers=app.bearer)
            assert response.headers["x-sixfold-engine"] == "comfyui-image", response.text
            remote = app.server.workflows.remote
            assert remote is not None
            await remote.refresh()
            assert remote.known


async def test_comfyui_is_not_probed_when_probing_is_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with comfyui(host="127.0.0.2") as comfy:
        port = int(comfy.url.rpartition(":")[2])
        monkeypatch.setattr(
            local_servers, "COMFYUI", msgspec.structs.replace(local_servers.COMFYUI, port=port)
        )
        async with app_with(tmp_path, probe=False, probe_hosts=("127.0.0.2",)) as app:
            await app.server.availability.refresh()
            assert not app.server.availability("comfyui-image").ready
            assert comfy.calls == []
