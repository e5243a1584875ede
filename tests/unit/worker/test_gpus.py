"""GPUs for workers: detection by the driver's library, and assignment."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from sixfold.clients import nvml
from sixfold.clients.nvml import GpuDevice
from sixfold.core.catalog.engines import Task
from sixfold.core.workers.ports import RunCompleted, WorkerSpec
from sixfold.drivers.gpus import GpuSlots
from sixfold.drivers.process import ProcessDriver
from tests.contract.test_driver import RecordedReports

GIB = 2**30


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library of that interface, loaded as the driver's own is."""
    if not shutil.which("gcc"):
        pytest.skip("needs gcc")
    source = Path(__file__).parents[2] / "fakes" / "nvml.c"
    result = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Os", "-w", source, "-o", result], check=True)
    return str(result)


def test_every_responding_gpu_is_listed(library: str) -> None:
    assert nvml.list_gpus(library) == (
        GpuDevice("GPU-0", "Test card", 24 * GIB, 8 * GIB),
        GpuDevice("GPU-1", "Test card", 80 * GIB, 70 * GIB),
    )
    assert nvml.list_gpus("no-such-library.so") == ()


async def test_fullest_gpu_with_enough_free_memory_is_used(library: str) -> None:
    cards = GpuSlots(lambda: nvml.list_gpus(library))
    first, small = await cards.take(6 * GIB)
    assert small == "GPU-0"
    assert (await cards.take(7 * GIB))[1] == "GPU-1", "of the 8 GiB that others left, 6 are promised"
    assert (await cards.take(62 * GIB))[1] == "GPU-1"
    assert (await cards.take(20 * GIB))[1] == "GPU-0", "it fits nowhere, and shares the largest rest"
    assert cards.promised() == {"GPU-0": 26 * GIB, "GPU-1": 69 * GIB}
    cards.release(first)
    cards.release(first)
    assert cards.promised()["GPU-0"] == 20 * GIB


async def test_unknown_size_gets_the_gpu_with_most_free_memory(library: str) -> None:
    assert (await GpuSlots(lambda: nvml.list_gpus(library)).take(0))[1] == "GPU-1"
    assert await GpuSlots(lambda: ()).take(GIB) == (0, "")


async def test_weights_worker_sees_only_its_gpu_and_returns_it(library: str, tmp_path: Path) -> None:
    cards = GpuSlots(lambda: nvml.list_gpus(library))
    driver = ProcessDriver(environ={}, cards=cards, preload=())
    factory = "tests.fakes.engines:ProbeEngine"
    try:
        with_card = await driver.start(WorkerSpec("w", factory, 0, tmp_path, vram_bytes=6 * GIB))
        response = await with_card.run(Task("t", "m", {}), RecordedReports().reports())
        assert isinstance(response, RunCompleted)
        assert response.data["environ"]["CUDA_VISIBLE_DEVICES"] == "GPU-0"
        without = await driver.start(WorkerSpec("w", factory, 0, tmp_path))
        response = await without.run(Task("t", "m", {}), RecordedReports().reports())
        assert isinstance(response, RunCompleted)
        assert "CUDA_VISIBLE_DEVICES" not in response.data["environ"]
        await with_card.kill()
        assert cards.promised() == {}
    finally:
        await driver.close()
