"""Ollama and ComfyUI on one GPU: models that do not fit together run in turn, and none fails."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from sixfold.app import catalog as app_catalog
from sixfold.app import gpu as gpu_sharing
from sixfold.core.gpu.report import GpuSchema
from tests.api.app_fixture import AppFixture, bearer, running_app
from tests.api.local_servers import chat
from tests.api.test_pages import signed_in
from tests.fakes.comfyui import Comfy, comfyui
from tests.fakes.local_models import COMPLETION, Ollama, listening, look_at
from tests.fakes.shared_gpu import GIB, FakeGpu

CHAT, CHECKPOINT = "qwen3:latest", "sd_xl_base_1.0.safetensors"
MODEL = f"ollama/{CHAT}"


@dataclass
class Shared:
    """A Sixfold server, and the two programs that share a GPU."""

    app: AppFixture
    gpu: FakeGpu
    comfy: Comfy
    ollama: Ollama

    async def image(self, seed: int = 1) -> httpx.Response:
        values = {"prompt": "a lake", "width": 256, "height": 256, "seed": seed}
        body = {"model": "ra2", "input": values}
        return await self.app.client.post("/api/containers/run", json=body, headers=self.app.bearer)

    async def chat(self) -> httpx.Response:
        return await chat(self.app, MODEL)

    async def report(self) -> GpuSchema:
        response = await self.app.client.get("/api/engines", headers=bearer(await self.app.operator_key()))
        (row,) = response.json()["gpus"]
        return row

    async def until(self, holds: Callable[[GpuSchema], bool]) -> GpuSchema:
        async with asyncio.timeout(30):
            while not holds(row := self.app.server.gpu.reports()[0]):  # noqa: ASYNC110 - shared by file
                await asyncio.sleep(0.01)
        return row


@asynccontextmanager
async def sharing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, chat_gib: float, image_gib: float, **changes: Any
) -> AsyncIterator[Shared]:
    """A GPU of 24 GiB with models of these sizes."""
    gpu = FakeGpu()
    ollama = Ollama({CHAT: COMPLETION})
    ollama.gpu, ollama.sizes = gpu, {CHAT: int(chat_gib * GIB)}
    async with comfyui() as comfy, listening(ollama):
        comfy.vram.gpu, comfy.vram.sizes = gpu, {CHECKPOINT: int(image_gib * GIB)}
        look_at(monkeypatch, ollama=ollama.port)
        models = app_catalog.models_document()
        async with running_app(folder, models, comfyui_url=comfy.url, **changes) as app:
            await app.server.gateway_runtime.wait_refreshed()
            async with asyncio.timeout(60):
                while not app.server.availability("comfyui-image").ready:
                    await app.server.availability.refresh()
            await app.server.gpu.refresh()
            yield Shared(app, gpu, comfy, ollama)


@pytest.fixture
async def small_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Shared]:
    """Two models of which only one fits."""
    async with sharing(tmp_path, monkeypatch, 14, 16) as built:
        yield built


def ok(*answers: httpx.Response) -> None:
    assert [response.status_code for response in answers] == [200] * len(answers), [a.text for a in answers]


async def test_models_that_do_not_fit_together_run_in_turn(small_gpu: Shared) -> None:
    ok(await small_gpu.chat(), await small_gpu.image())
    assert small_gpu.gpu.unloaded == [("ollama", CHAT)]
    ok(await small_gpu.chat())
    assert small_gpu.gpu.unloaded == [("ollama", CHAT), ("comfyui", CHECKPOINT)]
    ok(
        *await asyncio.gather(
            *(small_gpu.image(seed) for seed in (2, 3)), *(small_gpu.chat() for _ in range(4))
        )
    )
    assert small_gpu.gpu.refusals == []
    assert await small_gpu.app.faults() == ()


async def test_models_that_fit_run_concurrently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sharing(tmp_path, monkeypatch, 8, 7) as two:
        # The first run measures the memory of the checkpoint.
        ok(await two.image(), await two.chat())
        unloaded = list(two.gpu.unloaded)
        hold = two.comfy.hold("KSampler")
        image = asyncio.create_task(two.image(2))
        await hold.reached.wait()
        ok(await two.chat())
        hold.go.set()
        ok(await image)
        assert (two.gpu.refusals, two.gpu.unloaded) == ([], unloaded)


async def test_report_lists_loaded_models_and_waiting_calls(small_gpu: Shared) -> None:
    ok(await small_gpu.image())
    hold = small_gpu.comfy.hold("KSampler")
    image = asyncio.create_task(small_gpu.image(2))
    await hold.reached.wait()
    pending_task = asyncio.create_task(small_gpu.chat())
    await small_gpu.until(lambda row: bool(row["waiting"]))
    row = await small_gpu.report()
    assert (row["note"], row["total_bytes"]) == ("", 24 * GIB)
    (model,) = row["models"]
    assert (model["model"], model["size_bytes"], model["state"]) == (CHECKPOINT, 16 * GIB, "in use")
    assert [each["model"] for each in row["waiting"]] == [CHAT]
    operator = bearer(await small_gpu.app.operator_key())
    metrics = (await small_gpu.app.client.get("/metrics", headers=operator)).text
    match = re.search(r'sixfold_gpu_memory_bytes\{gpu="gpu",holder="ComfyUI [^"]*"\} (\S+)', metrics)
    assert match is not None
    assert float(match[1]) == 16 * GIB
    assert 'sixfold_gpu_waiting{gpu="gpu"} 1.0' in metrics
    await signed_in(small_gpu.app, small_gpu.app.operator)
    page = (await small_gpu.app.client.get("/admin")).text
    assert re.search(rf"<td>{CHECKPOINT}</td><td>in use</td>", page)
    assert re.search(rf"<td>{CHAT}</td><td>waiting, ", page)
    hold.go.set()
    ok(await image, await pending_task)
    # The image would have to be loaded again, which takes as long as it did.
    engine = small_gpu.app.server.catalog.engines()["comfyui-image"]
    assert small_gpu.app.server.gpu.switch_seconds(engine) > 0


async def test_a_canceled_wait_leaves_the_queue_at_once(small_gpu: Shared) -> None:
    ok(await small_gpu.image())
    hold = small_gpu.comfy.hold("KSampler")
    image = asyncio.create_task(small_gpu.image(2))
    await hold.reached.wait()
    pending_task = asyncio.create_task(small_gpu.chat())
    await small_gpu.until(lambda row: bool(row["waiting"]))
    pending_task.cancel()
    await small_gpu.until(lambda row: not row["waiting"])
    hold.go.set()
    ok(await image)
    assert small_gpu.ollama.count("/v1/chat/completions") == 0


async def test_a_call_fails_at_its_deadline_in_a_clear_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(tmp_path, monkeypatch, 14, 16, gpu_wait_seconds=1.5) as two:
        ok(await two.image())
        hold = two.comfy.hold("KSampler")
        image = asyncio.create_task(two.image(2))
        await hold.reached.wait()
        response = await two.chat()
        assert (response.status_code, response.json()["error"]["code"]) == (503, "gpu_busy")
        message = response.json()["error"]["message"]
        assert re.search(r"The GPU was in use by ComfyUI .*sd_xl_base.* for the 1.5 seconds", message)
        assert int(response.headers["retry-after"]) > 0
        hold.go.set()
        ok(await image)
        # The wait is no failure of the server.
        ok(await two.chat())


async def test_a_stream_keeps_the_gpu_until_it_ends(small_gpu: Shared) -> None:
    ok(await small_gpu.image())
    small_gpu.ollama.gate = asyncio.Event()
    talking = asyncio.create_task(small_gpu.chat())
    await small_gpu.ollama.entered.wait()
    image = asyncio.create_task(small_gpu.image(2))
    row = await small_gpu.until(lambda row: bool(row["waiting"]))
    assert [each["model"] for each in row["waiting"]] == [CHECKPOINT]
    assert [each["state"] for each in row["models"]] == ["in use"]
    small_gpu.ollama.gate.set()
    ok(await talking, await image)
    assert small_gpu.gpu.refusals == []


@pytest.mark.parametrize("kind", ["chat", "image"])
async def test_out_of_memory_unloads_other_models_and_retries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async with sharing(tmp_path, monkeypatch, 8, 7) as two:
        ok(await two.image(), await two.chat())
        # A longer context, or another program, takes more than was measured.
        two.gpu.others = 10 * GIB
        first: Callable[[], Awaitable[httpx.Response]] = two.chat if kind == "chat" else lambda: two.image(2)
        two.gpu.allocations.pop(("ollama", CHAT) if kind == "chat" else ("comfyui", CHECKPOINT))
        ok(await first())
        assert len(two.gpu.refusals) == 1
        assert two.app.server.gpu.figures()["gpu"].memory_retries == 1


async def test_without_a_gpu_no_call_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sharing(tmp_path, monkeypatch, 1, 1) as two:
        two.comfy.vram.device = "cpu"
        await two.app.server.gpu.refresh()
        assert all(server.gpu is None for server in two.app.server.gateway_runtime.model_servers())
        assert "memory of the GPU is not known" in two.app.server.gpu.reports()[0]["note"]
        ok(await two.chat(), await two.image())
        assert not two.gpu.unloaded


async def test_single_model_server_is_not_queried_for_gpu_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ollama = Ollama({CHAT: COMPLETION})
    async with listening(ollama):
        look_at(monkeypatch, ollama=ollama.port)
        async with running_app(tmp_path) as app:
            await app.server.gateway_runtime.wait_refreshed()
            assert any(server.ready for server in app.server.gateway_runtime.model_servers())
            before = ollama.count("/api/ps")
            await app.server.gpu.refresh()
            assert ollama.count("/api/ps") == before
            assert app.server.gpu.reports() == ()


async def test_a_server_that_hangs_does_not_stop_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_sharing, "ANSWER_SECONDS", 0.05)
    async with sharing(tmp_path, monkeypatch, 1, 1) as two:
        gpu = two.app.server.gpu
        for server in two.app.server.gateway_runtime.model_servers():
            server.gpu = None
        two.ollama.slow = True
        async with asyncio.timeout(10):
            await gpu.refresh()
        assert two.ollama.request_event.is_set()
        assert all(server.gpu is None for server in two.app.server.gateway_runtime.model_servers())
