"""Programs with GPU memory: own weights, llama.cpp's router, llama-swap; and the line of `doctor`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sixfold.cli.doctor import shared_gpus
from sixfold.clients.chat.listing import ModelQueries
from sixfold.clients.chat.transports.scheme import SchemeTransport
from sixfold.clients.gpu_holders import LlamaRouterHolder
from sixfold.core.catalog.engines import Task
from sixfold.core.workers.ports import Outcome, RunReports, RunStopped, Worker, WorkerSpec
from sixfold.drivers.gpu_workers import GpuWorkerDriver, WeightsHolder
from tests.fakes.local_models import LocalModels, listening
from tests.unit.gpu.test_arbiter import Holder, arbiter, waiting

TASK = Task("t", "sdxl", {})
REPORTS = RunReports(lambda _fraction: None, lambda _line: None)


class Process:
    """A worker without a process."""

    def __init__(self) -> None:
        self.id = "w"
        self.alive = True

    async def run(self, task: Task, reports: RunReports) -> Outcome:
        return RunStopped()

    def cancel(self, task_id: str) -> None:
        raise AssertionError("no run to cancel")

    async def give_up(self, task_id: str) -> None:
        await self.kill()

    async def kill(self) -> None:
        self.alive = False

    async def stop(self) -> None:
        self.alive = False


class Processes:
    """A driver that starts them."""

    name = "process"

    def __init__(self) -> None:
        self.started: list[Process] = []

    async def start(self, spec: WorkerSpec) -> Worker:
        self.started.append(Process())
        return self.started[-1]

    async def close(self) -> None:
        return


async def test_an_unloaded_worker_starts_again_with_its_next_run(tmp_path: Path) -> None:
    driver, weights, ollama = Processes(), WeightsHolder("p"), Holder("ollama", {"m": 90})
    spec = WorkerSpec("sdxl", "module:Engine", 0, tmp_path, vram_bytes=90)
    async with arbiter(tmp_path, "p") as gpu:
        access = gpu.access(weights)
        gpu.access(ollama)
        worker = await GpuWorkerDriver(driver, weights, lambda: access).start(spec)
        lease = await gpu.acquire(ollama, "m", 10)
        assert (driver.started[0].alive, worker.alive) == (False, True)
        running = asyncio.create_task(worker.run(TASK, REPORTS))
        await waiting(gpu)
        worker.cancel(TASK.id)
        assert isinstance(await running, RunStopped)
        assert len(driver.started) == 1
        ollama.loaded["m"] = 90
        lease.release()
        assert isinstance(await worker.run(TASK, REPORTS), RunStopped)
        assert (len(driver.started), ollama.unloaded) == (2, ["m"])
        await worker.stop()
        assert not worker.alive


async def test_worker_without_a_shared_gpu_is_not_wrapped(tmp_path: Path) -> None:
    driver = Processes()
    shared = GpuWorkerDriver(driver, WeightsHolder("p"), lambda: None)
    worker = await shared.start(WorkerSpec("sdxl", "module:Engine", 0, tmp_path, vram_bytes=90))
    assert worker is driver.started[0]


class Router(LocalModels):
    """llama.cpp's router with two models, or llama-swap."""

    loaded: list[str]

    def respond(self, path: str, body: dict[str, Any]) -> Any:
        loaded = self.__dict__.setdefault("loaded", ["a"])
        if path == "/models/unload":
            loaded.remove(body["model"])
        if path.startswith("/api/models/unload/"):
            loaded.remove(path.rpartition("/")[2])
        rows = [
            {"id": name, "status": {"value": "loaded" if name in loaded else "unloaded"}} for name in "ab"
        ]
        running_models = [{"model": name, "state": "ready"} for name in loaded]
        self.responses = {
            "/models": {"data": rows},
            "/running": {"running": running_models},
            "/models/unload": {},
        }
        return super().respond(path, body)


@pytest.mark.parametrize("swap", [False, True], ids=["router", "swap"])
async def test_llama_servers_unload_one_model(swap: bool) -> None:
    transport = SchemeTransport(5, 5)
    async with listening(Router()) as server:
        queries = ModelQueries(transport, f"http://127.0.0.1:{server.port}/v1", _no_headers)
        holder = LlamaRouterHolder("llamacpp", queries, swap=swap)
        assert await holder.residents() == {"a": None}
        await holder.unload("a")
        assert await holder.residents() == {}
    await transport.aclose()


async def _no_headers(_method: str, _url: str, _body: bytes) -> dict[str, str]:
    return {}


async def test_llama_server_with_one_model_is_not_managed() -> None:
    transport = SchemeTransport(5, 5)
    async with listening(LocalModels({"/models": {"data": [{"id": "gemma"}]}})) as server:
        queries = ModelQueries(transport, f"http://127.0.0.1:{server.port}/v1", _no_headers)
        assert await LlamaRouterHolder("llamacpp", queries).residents() is None
    await transport.aclose()


def test_doctor_names_holders_and_waiting_uses() -> None:
    model = {"holder": "Ollama", "model": "qwen3", "size_bytes": 8_000_000_000, "state": "idle"}
    gpu = {
        "name": "gpu",
        "note": "",
        "total_bytes": 24_000_000_000,
        "other_bytes": 1_000_000_000,
        "members": ["Ollama", "ComfyUI"],
        "models": [model],
        "waiting": [{"holder": "ComfyUI", "model": "sdxl", "seconds": 3.0}],
    }
    assert shared_gpus.rows([gpu, {**gpu, "note": "nothing states its memory"}]) == [
        (
            "gpu",
            "24.0 GB, shared by Ollama, ComfyUI; Ollama qwen3 8.0 GB (idle); other programs 1.0 GB; "
            "waiting: ComfyUI sdxl for 3 s",
        ),
        ("gpu", "Ollama, ComfyUI do not take turns: nothing states its memory"),
    ]
