"""The status of ComfyUI: one probe for all engines, and a busy server stays ready."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from sixfold.clients.chat import servers
from sixfold.clients.comfyui.address import ComfyAddress
from sixfold.clients.hosts import ProbeHosts
from sixfold.core import reachability
from sixfold.core.catalog.engine_selection import EngineStatus
from sixfold.core.catalog.models import EngineSpec
from sixfold.engines.providers.comfyui import availability as comfyui_availability
from sixfold.engines.providers.comfyui.availability import ComfyAvailability
from tests.fakes.comfyui import comfyui
from tests.fakes.comfyui_nodes import InstalledFiles


def spec(task: str, url: str, **more: str) -> EngineSpec:
    row: dict[str, Any] = {"version": "1", "quality": "full", "concurrency": 1, "idle_seconds": 1}
    options = {"task": task, "url": url, **more}
    return EngineSpec(f"comfyui-{task}", "a:b", kind="comfyui", unlock="", options=options, **row)


async def test_one_probe_reports_the_status_of_every_engine() -> None:
    async with (
        comfyui(InstalledFiles(upscale_models=())) as comfy,
        httpx.AsyncClient(trust_env=False) as client,
    ):
        ask = ComfyAvailability(client, ComfyAddress((), ProbeHosts()))
        tasks = ("text-to-image", "image-to-image", "upscale")
        first, second, three = await asyncio.gather(*(ask(spec(task, comfy.url)) for task in tasks))
        assert comfy.called("/system_stats") == 1
    assert first.ready
    assert second.ready
    assert first.detail == f"sd_xl_base_1.0.safetensors, ComfyUI 0.8.0 at {comfy.url}"
    assert not three.ready
    assert "RealESRGAN_x4plus.safetensors into its folder models/upscale_models" in three.detail


async def test_busy_server_stays_ready_and_missing_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comfyui_availability, "PROBE_SECONDS", 0.6)
    async with comfyui() as comfy, httpx.AsyncClient(trust_env=False) as client:
        ask = ComfyAvailability(client, ComfyAddress((), ProbeHosts()))
        request = spec("text-to-image", comfy.url)
        comfy.silent.add("/system_stats")
        # The server has not responded yet.
        assert not (await ask(request)).ready
        comfy.silent.clear()
        # The limit leaves enough time for a response under load.
        monkeypatch.setattr(comfyui_availability, "PROBE_SECONDS", 10.0)
        assert (await ask(request)).ready
        comfy.silent.add("/system_stats")
        monkeypatch.setattr(comfyui_availability, "PROBE_SECONDS", 0.6)
        assert (await ask(request)).ready
        monkeypatch.setattr(reachability, "BUSY_SECONDS", 0.0)
        assert not (await ask(request)).ready
        monkeypatch.undo()
        comfy.silent.clear()
        assert (await ask(request)).ready
        await comfy.stop()
        assert (await ask(request)).detail == "ComfyUI cannot be reached."


async def test_slow_server_is_ready() -> None:
    assert comfyui_availability.PROBE_SECONDS == servers.PROBE_SECONDS
    async with comfyui() as comfy, httpx.AsyncClient(trust_env=False) as client:
        # Each response is in time, but all of them together take longer than the limit for one.
        comfy.delay_seconds = 1.2
        assert (
            await ComfyAvailability(client, ComfyAddress((), ProbeHosts()))(spec("upscale", comfy.url))
        ).ready


async def test_pinned_model_is_ready_if_installed() -> None:
    installed = InstalledFiles(checkpoints=("XL/sd_xl_base_1.0.safetensors", "v1-5-pruned.ckpt"))
    async with comfyui(installed) as comfy, httpx.AsyncClient(trust_env=False) as client:
        ask = ComfyAvailability(client, ComfyAddress((), ProbeHosts()))
        for named in ("v1-5-pruned.ckpt", "sd_xl_base_1.0.safetensors"):
            there = await ask(spec("text-to-image", comfy.url, checkpoint=named))
            assert there.ready
            assert named in there.detail
        status = await ask(spec("text-to-image", comfy.url, checkpoint="gone.ckpt"))
    assert status == EngineStatus(
        False, "ComfyUI does not have the model gone.ckpt, which this engine is configured to use."
    )


async def test_no_server_is_probed_if_probing_is_off() -> None:
    async with comfyui() as comfy, httpx.AsyncClient(trust_env=False) as client:
        standing = await ComfyAvailability(client, ComfyAddress((), ProbeHosts(probe=False)))(
            spec("text-to-image", "")
        )
        assert comfy.calls == []
    assert not standing.ready
