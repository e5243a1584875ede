"""Guarantees of process workers: limits, isolation, no orphans, no zombies."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from sixfold.app import catalog as app_catalog
from sixfold.clients.nvml import GpuDevice
from sixfold.core.catalog.engines import Task
from sixfold.core.workers.policy import RESIDENT
from sixfold.core.workers.ports import (
    Outcome,
    RunCompleted,
    RunFailed,
    RunReports,
    WorkerLost,
    WorkerSpec,
    WorkerStartFailed,
)
from sixfold.drivers.forkserver import environment
from sixfold.drivers.gpus import GpuSlots
from sixfold.drivers.process import PRELOAD, ProcessDriver, ProcessTimeouts, ProcessWorker
from sixfold.settings import Settings, worker_environment
from tests.harness.waiting import wait_until

SECRETS: Mapping[str, str] = {
    "SIXFOLD_SECRET": "canary",
    "SIXFOLD_API_KEY": "canary",
    "OPENAI_API_KEY": "canary",
    "AWS_SECRET_ACCESS_KEY": "canary",
    "HF_TOKEN": "canary",
    "DATABASE_URL": "postgres://canary",
}
MIB = 1 << 20


@pytest.fixture
async def driver() -> AsyncIterator[ProcessDriver]:
    result = ProcessDriver(preload=(), timeouts=ProcessTimeouts(60, 0.2, 1))
    yield result
    await result.close()


def spec(engine: str, scratch: Path, memory_bytes: int = 256 * MIB) -> WorkerSpec:
    return WorkerSpec(engine.lower(), f"tests.fakes.engines:{engine}Engine", memory_bytes, scratch)


async def run(worker: ProcessWorker, inputs: Mapping[str, object]) -> tuple[Outcome, list[str]]:
    lines: list[str] = []
    return await worker.run(Task("t", "m", inputs), RunReports(lambda _: None, lines.append)), lines


def pidfd(pid: int) -> int:
    """A descriptor that becomes readable when the process has ended."""
    return os.pidfd_open(pid)


async def wait_for_exit(*handles: int) -> None:
    """Wait for the processes to end."""
    for handle in handles:
        await asyncio.to_thread(select.select, [handle], [], [], 60)
        assert select.select([handle], [], [], 0)[0], "the process is still there"
        os.close(handle)


def remaining_files(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def children() -> set[int]:
    me = os.getpid()
    names: set[int] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == me:
                names.add(int(stat.parent.name))
    return names


async def test_worker_cannot_access_secrets_of_the_server(
    driver: ProcessDriver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    worker = await driver.start(spec("Probe", tmp_path))
    outcome, _ = await run(worker, {})
    assert isinstance(outcome, RunCompleted)
    data = outcome.data
    assert SECRETS.keys().isdisjoint(data["environ"])
    assert not [value for value in data["environ"].values() if "canary" in value]
    assert data["descriptors"] == [0, 1, 2, 3]
    assert data["core"] == [0, 0]
    assert data["session"] == data["pid"] == worker.pid
    assert data["mask"] == 0o077
    assert data["nice"] >= 5
    assert 256 * MIB < data["address_space"] < 2048 * MIB
    assert data["environ"]["TMPDIR"] == data["folder"] == str(tmp_path / f"{worker.id}.tmp")


async def test_worker_usage_includes_its_child_processes(driver: ProcessDriver, tmp_path: Path) -> None:
    worker = await driver.start(spec("Greedy", tmp_path))
    before = worker.peak_bytes()
    await run(worker, {"bytes": 64 * MIB})
    assert before + 48 * MIB < worker.peak_bytes() < before + 128 * MIB
    await worker.kill()
    assert worker.peak_bytes() == 0


async def test_worker_has_lower_priority_unless_interactive(driver: ProcessDriver, tmp_path: Path) -> None:
    priorities: list[int] = []
    for watched in (False, True):
        worker = await driver.start(replace(spec("Probe", tmp_path), watched=watched))
        outcome, _ = await run(worker, {})
        assert isinstance(outcome, RunCompleted)
        priorities.append(outcome.data["nice"])
    ours = os.nice(0)
    assert priorities == [min(ours + 5, 19), ours]


async def test_exceeded_memory_limit_fails_the_run_only(driver: ProcessDriver, tmp_path: Path) -> None:
    worker = await driver.start(spec("Greedy", tmp_path, 128 * MIB))
    outcome, _ = await run(worker, {"bytes": 1024 * MIB})
    assert outcome == RunFailed("The model ran out of memory.", public=True)
    second_outcome, lines = await run(worker, {"bytes": 16 * MIB})
    assert isinstance(second_outcome, RunCompleted)
    assert lines == ["took 16 MiB"]


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ({"exit": 3}, "the worker exited with status 3"),
        ({"exit": 0}, "the worker exited with status 0"),
        ({"signal": signal.SIGKILL}, "the worker was killed by SIGKILL"),
        ({"signal": signal.SIGSEGV}, "the worker was killed by SIGSEGV"),
    ],
)
async def test_crash_reports_its_exit_status(
    driver: ProcessDriver, tmp_path: Path, inputs: Mapping[str, int], reason: str
) -> None:
    worker = await driver.start(spec("Crash", tmp_path))
    outcome, lines = await run(worker, inputs)
    assert outcome == WorkerLost(reason)
    assert lines[0] == "about to crash"
    assert worker.pid is None
    assert remaining_files(tmp_path) == []


async def test_printed_output_is_in_the_log_of_the_run(driver: ProcessDriver, tmp_path: Path) -> None:
    worker = await driver.start(spec("Echo", tmp_path))
    printed = [f"printed {number}" for number in range(3000)]
    outcome, lines = await run(worker, {"log": ["logged"], "print": printed})
    assert isinstance(outcome, RunCompleted)
    assert lines == ["logged", *printed]
    assert (await run(worker, {"print": ["x" * 100_000]}))[1] == ["x" * 4000]


async def test_every_run_begins_in_the_temporary_folder(driver: ProcessDriver, tmp_path: Path) -> None:
    worker = await driver.start(spec("Untidy", tmp_path))
    for _ in range(2):
        outcome, _ = await run(worker, {})
        assert isinstance(outcome, RunCompleted), outcome
        assert outcome.data == {"folder": str(tmp_path / f"{worker.id}.tmp")}


async def test_every_run_has_the_same_random_state(driver: ProcessDriver, tmp_path: Path) -> None:
    worker = await driver.start(spec("Dice", tmp_path))
    first, second = [(await run(worker, {}))[0] for _ in range(2)]
    assert isinstance(first, RunCompleted)
    assert isinstance(second, RunCompleted)
    assert first.data == second.data


async def test_killed_zygote_loses_only_its_workers(driver: ProcessDriver, tmp_path: Path) -> None:
    worker = await driver.start(spec("Slow", tmp_path))
    assert driver.zygote_pid
    assert worker.pid
    handles = pidfd(worker.pid), pidfd(driver.zygote_pid)
    start_event = asyncio.Event()
    task = asyncio.create_task(
        worker.run(Task("t", "m", {}), RunReports(lambda _: start_event.set(), lambda _: None))
    )
    await start_event.wait()
    os.kill(driver.zygote_pid, signal.SIGKILL)
    assert isinstance(await task, WorkerLost)
    await wait_for_exit(*handles)
    second_worker = await driver.start(spec("Echo", tmp_path))
    assert isinstance((await run(second_worker, {}))[0], RunCompleted)


async def test_worker_starts_after_the_zygote_was_killed(driver: ProcessDriver, tmp_path: Path) -> None:
    await driver.warm()
    assert driver.zygote_pid
    # The event loop has not noticed the end of the zygote when it requests a fork.
    os.kill(driver.zygote_pid, signal.SIGKILL)
    worker = await driver.start(spec("Echo", tmp_path))
    assert isinstance((await run(worker, {}))[0], RunCompleted)


RECORDING = """
import os
from pathlib import Path
from sixfold.core.catalog.engines import Result

with Path({log!r}).open("a") as log:
    log.write(f"{{os.getpid()}}\\n")

class Engine:
    name, version = "recording", "1"

    def run(self, task, context):
        return Result(data={{}})
"""


async def test_resident_engine_is_imported_once_for_all_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "imports.log"
    (tmp_path / "recording.py").write_text(RECORDING.format(log=str(log)))
    monkeypatch.syspath_prepend(tmp_path)
    driver = ProcessDriver(preload=(), timeouts=ProcessTimeouts(60, 0.2, 1))
    recording = WorkerSpec("recording", "recording:Engine", 0, tmp_path / "scratch")
    try:
        workers = [await driver.start(replace(recording, resident=True)) for _ in range(2)]
        outcomes = [(await run(worker, {}))[0] for worker in workers]
        zygote = driver.zygote_pid
    finally:
        await driver.close()
    assert all(isinstance(outcome, RunCompleted) for outcome in outcomes)
    assert log.read_text().split() == [str(zygote)]


async def test_broken_resident_engine_fails_only_its_own_worker(
    driver: ProcessDriver, tmp_path: Path
) -> None:
    healthy = await driver.start(spec("Echo", tmp_path))
    broken = WorkerSpec("none", "sixfold.no_such_module:Engine", 0, tmp_path, resident=True)
    with pytest.raises(WorkerStartFailed, match="no_such_module"):
        await driver.start(broken)
    assert isinstance((await run(healthy, {}))[0], RunCompleted)


IMPORTED = """
import importlib, os, sys
for module in sys.argv[1:]:
    importlib.import_module(module)
    assert len(os.listdir("/proc/self/task")) == 1, module
"""


def test_no_resident_engine_starts_a_thread_on_import() -> None:
    engines = app_catalog.catalog(Settings(), app_catalog.price_table(Settings())).engines().values()
    modules = {each.factory.partition(":")[0] for each in engines if each.kind in RESIDENT}
    assert "sixfold.engines.image.scene.engine" in modules
    command = [sys.executable, "-c", IMPORTED, *PRELOAD, *sorted(modules)]
    subprocess.run(command, check=True, env=environment(worker_environment()))


async def test_failed_start_releases_the_memory_of_its_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = GpuSlots(lambda: [GpuDevice("GPU-1", "Card", 8 * MIB, 8 * MIB)])
    driver = ProcessDriver(preload=(), timeouts=ProcessTimeouts(60, 0.2, 1), cards=cards)
    await driver.starter()

    def fail(_flags: int) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    try:
        monkeypatch.setattr(os, "pipe2", fail)
        with pytest.raises(WorkerStartFailed, match="Too many open files"):
            await driver.start(replace(spec("Dot", tmp_path), vram_bytes=MIB))
        assert cards.promised() == {}
    finally:
        await driver.close()


async def test_closing_leaves_no_process(tmp_path: Path) -> None:
    before = children()
    driver = ProcessDriver(preload=())
    workers = [await driver.start(spec("Slow", tmp_path)) for _ in range(3)]
    handles = [pidfd(worker.pid) for worker in workers if worker.pid]
    assert len(handles) == 3
    await driver.close()
    await wait_for_exit(*handles)
    assert children() == before, "neither a child nor a zombie is left"


@pytest.mark.parametrize("apart", [False, True])
async def test_child_processes_end_with_their_worker(
    driver: ProcessDriver, tmp_path: Path, apart: bool
) -> None:
    worker = await driver.start(spec("Parent", tmp_path))
    outcome, _ = await run(worker, {"apart": apart})
    assert isinstance(outcome, RunCompleted)
    grandchild = pidfd(outcome.data["pid"])
    await worker.kill()
    await wait_for_exit(grandchild)


async def test_child_processes_of_workers_end_with_the_server(tmp_path: Path) -> None:
    driver = ProcessDriver(preload=())
    worker = await driver.start(spec("Parent", tmp_path))
    outcome, _ = await run(worker, {"apart": True})
    assert isinstance(outcome, RunCompleted)
    grandchild = pidfd(outcome.data["pid"])
    await driver.close()
    await wait_for_exit(grandchild)


SERVER = """
import asyncio, pathlib, sys

sys.path.append(str(pathlib.Path.cwd()))
from sixfold.core.catalog.engines import Task
from sixfold.core.workers.ports import RunReports, WorkerSpec
from sixfold.drivers.process import ProcessDriver

async def main():
    driver = ProcessDriver(preload=())
    spec = WorkerSpec("slow", "tests.fakes.engines:SlowEngine", 1 << 28, pathlib.Path(sys.argv[1]))
    workers = [await driver.start(spec) for _ in range(2)]
    say = lambda _: print(driver.zygote_pid, *(worker.pid for worker in workers), flush=True)
    await workers[0].run(Task("t", "m", {"stubborn": True}), RunReports(say, lambda _: None))

asyncio.run(main())
"""


async def test_a_killed_server_leaves_no_orphan(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SERVER, str(tmp_path)]
    server = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert server.stdout
    handles = [pidfd(int(pid)) for pid in (await server.stdout.readline()).split()]
    assert len(handles) == 3
    server.kill()
    await wait_for_exit(*handles)
    await server.communicate()


@pytest.mark.parametrize("modules", ["drivers.process, sixfold.drivers.inline", "cli.server.serve"])
def test_server_imports_no_media_library(modules: str) -> None:
    code = f"import sys, sixfold.{modules}; print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "cv2", "PIL.Image", "torch", "onnxruntime"} & set(imported.stdout.split())


async def test_run_over_the_cpu_time_limit_loses_its_worker(tmp_path: Path) -> None:
    driver = ProcessDriver()
    try:
        spec = WorkerSpec("burn", "tests.fakes.engines:BurnEngine", 0, tmp_path / "scratch", cpu_seconds=1)
        worker = await driver.start(spec)
        outcome = await worker.run(Task("t", "burn", {}), RunReports(lambda _: None, lambda _: None))
        assert isinstance(outcome, WorkerLost)
        assert not worker.alive
    finally:
        await driver.close()


async def test_result_over_a_limit_fails_and_leaves_no_files(driver: ProcessDriver, tmp_path: Path) -> None:
    worker = await driver.start(spec("Echo", tmp_path))
    outcome, _ = await run(worker, {"bytes": [10], "members": {str(n): n for n in range(100_001)}})
    assert outcome == RunFailed(
        "The model returned too much: an object must have at most 100,000 members.", public=True
    )
    await worker.stop()
    await wait_until(lambda: remaining_files(tmp_path) == [])
