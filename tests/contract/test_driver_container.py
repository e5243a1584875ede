"""Workers as containers: the protocol against a loopback server, and real runs with Podman."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from sixfold.clients.containers import ContainersFailed, ContainerSpec
from sixfold.core.accounts.prices import PriceTable
from sixfold.core.catalog import models as catalog_models
from sixfold.core.catalog.engine_selection import EngineStatus
from sixfold.core.catalog.engines import EngineError, Task
from sixfold.core.catalog.models import Catalog
from sixfold.core.gpu import run_clock
from sixfold.core.gpu.run_clock import RunClock
from sixfold.core.workers.ports import (
    Outcome,
    RunCompleted,
    RunFailed,
    RunStopped,
    Worker,
    WorkerLost,
    WorkerSpec,
)
from sixfold.core.workers.ports import WorkerStartFailed as StartFailed
from sixfold.drivers.container import ContainerDriver
from sixfold.drivers.spaces import SpaceDriver, SpaceTarget
from sixfold.engines.providers import cog as cog_engine
from tests.contract.test_driver import RecordedReports, remaining_files
from tests.fakes.cog import FakeCog
from tests.fakes.fault_server import serve
from tests.harness import podman as podman_harness
from tests.harness.podman import Podman


class FakeContainers:
    """Containers that are loopback servers; a container ends on request."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self.cog = FakeCog()
        self.started: list[FakeContainer] = []
        self.specs: list[ContainerSpec] = []
        self.tidied = 0
        self._is_closed = False
        self._stack = stack

    async def image_id(self, image: str) -> str:
        if image == "none":
            raise ContainersFailed("no such image: none")
        return "0123456789abcdef0123"

    async def has(self, image: str) -> bool:
        return image != "none"

    async def start(self, name: str, spec: ContainerSpec) -> FakeContainer:
        self.specs.append(spec)
        stack = await self._stack.enter_async_context(AsyncExitStack())
        port = await stack.enter_async_context(serve(self.cog.routes))
        self.started.append(FakeContainer(f"http://127.0.0.1:{port}"))
        return self.started[-1]

    async def build(self, image: str, context: bytes) -> None:
        raise ContainersFailed(f"{image} is not built here: {len(context)} bytes")

    async def tidy(self) -> int:
        if self._is_closed:
            raise RuntimeError("Cannot send a request, as the client has been closed.")
        self.tidied += 1
        return 0

    async def close(self) -> None:
        self._is_closed = True


class FakeContainer:
    """A container that runs until it is removed."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.stopped = asyncio.Event()

    async def wait(self) -> str:
        await self.stopped.wait()
        return "exited with status 137"

    async def log(self) -> str:
        return "the last line"

    async def remove(self) -> None:
        self.stopped.set()


@pytest.fixture
async def containers() -> AsyncIterator[FakeContainers]:
    async with AsyncExitStack() as stack:
        yield FakeContainers(stack)


@pytest.fixture
async def driver(containers: FakeContainers) -> AsyncIterator[ContainerDriver]:
    result = ContainerDriver(lambda: containers, failpoints={"crashing": "crash"}, start_seconds=5)
    yield result
    await result.close()


def spec(scratch: Path, **options: object) -> WorkerSpec:
    return WorkerSpec("cog", "container", 1 << 28, scratch, options={"image": "sharpen:2", **options})


@pytest.fixture
async def worker(driver: ContainerDriver, tmp_path: Path) -> Worker:
    return await driver.start(spec(tmp_path / "scratch"))


async def run(worker: Worker, name: str = "t", **inputs: object) -> tuple[Outcome, RecordedReports]:
    reports = RecordedReports()
    return await worker.run(Task(name, "m", {"prompt": "a fox", **inputs}), reports.reports()), reports


async def test_run_returns_its_file_log_and_image_id(worker: Worker) -> None:
    outcome, reports = await run(worker)
    assert isinstance(outcome, RunCompleted)
    assert [file.path.read_text() for file in outcome.files] == ["a fox"]
    assert [file.content_type for file in outcome.files] == ["text/plain"]
    assert outcome.engine_version == "0123456789abcdef0123"
    assert reports.lines == ["loaded", "made"]
    assert reports.progress[-1] == 1


async def test_object_output_has_named_files_and_data(worker: Worker) -> None:
    outcome, _ = await run(worker, do="object")
    assert isinstance(outcome, RunCompleted)
    assert [file.info["name"] for file in outcome.files] == ["mask", "parts", "parts"]
    assert outcome.data == {"score": 0.25}


async def test_concatenated_output_is_one_text(
    containers: FakeContainers, driver: ContainerDriver, tmp_path: Path
) -> None:
    containers.cog.output = {
        "type": "array",
        "items": {"type": "string"},
        "x-cog-array-display": "concatenate",
    }
    outcome, _ = await run(await driver.start(spec(tmp_path)), do="words")
    assert isinstance(outcome, RunCompleted)
    assert outcome.data == {"value": "Once upon"}


async def test_media_are_copied_in_and_mounts_are_visible(
    containers: FakeContainers, worker: Worker, tmp_path: Path
) -> None:
    (tmp_path / "photo").write_bytes(b"\x89PNG\r\n\x1a\n")
    (tmp_path / "score").write_bytes(b"MThd")
    files = {"photo": tmp_path / "photo", "artifacts/score.mid": tmp_path / "score"}
    await worker.run(Task("t", "m", {"prompt": "x", "none": None}, files), RecordedReports().reports())
    assert containers.cog.requests["t"] == {"prompt": "x", "photo": "data:image/png;base64,iVBORw0KGgo="}
    folder = containers.specs[0].folders["/mnt/sixfold/artifacts"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"score.mid": b"MThd"}
    await run(worker, "next")
    assert list(folder.iterdir()) == [], "the next run sees none of it"


async def test_failure_has_the_message_of_the_model(worker: Worker) -> None:
    failed, _ = await run(worker, do="fail")
    outcome, _ = await run(worker, do="refuse")
    deep, _ = await run(worker, do="deep")
    problem = "The model returned too much: a result must have at most 100 nesting levels."
    assert deep == RunFailed(problem, public=True)
    assert failed == RunFailed("The prompt has no verb.", public=True)
    assert outcome == RunFailed(
        "The model does not accept these inputs: prompt field required.", public=True, unusable=True
    )
    assert worker.alive


async def test_canceled_run_is_canceled_in_the_container(containers: FakeContainers, worker: Worker) -> None:
    pending_task = asyncio.create_task(run(worker, "a", do="wait"))
    await containers.cog.start_event.wait()
    worker.cancel("a")
    assert (await pending_task)[0] == RunStopped()
    assert containers.cog.canceled == ["a"]
    assert isinstance((await run(worker, "b"))[0], RunCompleted)


async def test_a_container_that_ignores_a_cancelation_is_removed(
    containers: FakeContainers, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cog_engine, "_CANCEL_SECONDS", 0.05)
    cancel_event = containers.cog.cancel_event = asyncio.Event()
    pending_task = asyncio.create_task(run(worker, "a", do="wait"))
    await containers.cog.start_event.wait()
    worker.cancel("a")
    assert (await pending_task)[0] == RunStopped()
    assert not worker.alive
    assert containers.started[0].stopped.is_set()
    cancel_event.set()


async def test_run_waits_for_an_occupied_slot(containers: FakeContainers, worker: Worker) -> None:
    slot = containers.cog.run_events["somebody"] = asyncio.Event()
    pending_task = asyncio.create_task(run(worker))
    await asyncio.sleep(0)
    assert not slot.is_set()
    del containers.cog.run_events["somebody"]
    assert isinstance((await pending_task)[0], RunCompleted)


async def test_time_of_an_occupied_slot_is_not_part_of_the_run(
    containers: FakeContainers, worker: Worker
) -> None:
    containers.cog.run_events["somebody"] = asyncio.Event()
    async with asyncio.timeout(60) as limit:
        clock = RunClock(limit)
        run_clock.current.set(clock)
        pending_task = asyncio.create_task(run(worker))
        asyncio.get_running_loop().call_later(1.0, containers.cog.run_events.pop, "somebody")
        outcome, _ = await pending_task
    assert isinstance(outcome, RunCompleted)
    assert clock.waited > 0


async def test_a_killed_container_loses_its_run_and_its_worker(
    containers: FakeContainers, worker: Worker
) -> None:
    pending_task = asyncio.create_task(run(worker, do="wait"))
    await containers.cog.start_event.wait()
    containers.started[0].stopped.set()
    assert (await pending_task)[0] == WorkerLost("the worker went away: its container exited with status 137")
    assert not worker.alive
    assert isinstance((await run(worker))[0], WorkerLost)


async def test_failed_setup_is_reported_with_its_output(
    containers: FakeContainers, driver: ContainerDriver, tmp_path: Path
) -> None:
    containers.cog.status = "SETUP_FAILED"
    with pytest.raises(StartFailed, match="there are no weights\nthe last line"):
        await driver.start(spec(tmp_path))
    assert containers.started[0].stopped.is_set()
    assert remaining_files(tmp_path) == []


async def test_missing_image_and_unknown_option_are_reported(driver: ContainerDriver, tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="no such image"):
        await driver.start(spec(tmp_path, image="none"))
    with pytest.raises(StartFailed, match="'privileged'"):
        await driver.start(spec(tmp_path, privileged=True))


async def test_missing_docker_and_podman_are_named_in_the_error(tmp_path: Path) -> None:
    driver = ContainerDriver(lambda: None)
    with pytest.raises(StartFailed, match="start Docker, or Podman's socket"):
        await driver.start(spec(tmp_path))
    await driver.close()


async def test_closing_removes_every_container(
    containers: FakeContainers, driver: ContainerDriver, tmp_path: Path
) -> None:
    for _ in range(2):
        await driver.start(spec(tmp_path))
    assert containers.tidied == 1
    await driver.close()
    assert containers.tidied == 2, "containers that were starting are removed"
    assert [container.stopped.is_set() for container in containers.started] == [True, True]
    assert remaining_files(tmp_path) == []
    with pytest.raises(StartFailed):
        await driver.start(spec(tmp_path))


async def test_inspected_image_describes_its_model(
    containers: FakeContainers, driver: ContainerDriver, tmp_path: Path
) -> None:
    document = await driver.inspect("host.example:5000/ann/Sharpen_It:2", tmp_path)
    assert containers.started[0].stopped.is_set()
    model = catalog_models.parse_custom(document, Catalog({}, PriceTable({})), "sharpen-it")
    results = [(each.name, each.type, each.required, each.default) for each in model.inputs]
    assert results == [
        ("prompt", "string", True, None),
        ("photo", "image", False, None),
        ("strength", "number", False, 0.5),
        ("voice", "audio", False, None),
        ("look", "string", False, "plain"),
        ("tags", "texts", False, None),
        ("weights", "numbers", False, None),
        ("do", "string", False, ""),
    ]
    assert model.inputs[4].choices == ("plain", "bold")
    assert (model.inputs[2].min, model.inputs[2].max) == (0, 1)
    assert (model.output_kind, model.price, model.engines[0].kind) == ("file", "container-time", "container")


async def test_inspected_image_has_a_memory_limit(containers: FakeContainers, tmp_path: Path) -> None:
    driver = ContainerDriver(lambda: containers, memory_bytes=1 << 28)
    await driver.inspect("sharpen:2", tmp_path)
    with pytest.raises(StartFailed):
        await SpaceDriver(driver, start_seconds=0).inspect(SpaceTarget(image="shouter:1"))
    assert [spec.memory_bytes for spec in containers.specs] == [1 << 28, 1 << 28]
    await driver.close()


async def test_missing_cog_image_is_named_in_the_error(driver: ContainerDriver, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="none cannot be used: no such image"):
        await driver.inspect("none", tmp_path)


async def test_status_of_an_image_is_known_without_a_start(
    containers: FakeContainers, driver: ContainerDriver
) -> None:
    assert await driver.standing("sharpen:2") == EngineStatus(True, "the image sharpen:2")
    assert await driver.standing("none") == EngineStatus(False, "the image none is not present")
    assert (containers.started, containers.tidied) == ([], 0)
    bare = ContainerDriver(lambda: None)
    assert await bare.standing("sharpen:2") == EngineStatus(False, "neither Docker nor Podman was found")
    await bare.close()


# -- the whole, with Podman ------------------------------------------------------------------------------

SCRIPT = """
import asyncio, json, pathlib, sys
from sixfold.core.catalog.engines import Task
from sixfold.core.workers.ports import RunReports, WorkerSpec
from sixfold.clients.containers import ContainerSpec
from sixfold.drivers.container import ContainerDriver, open_engine

async def main(socket, folder):
    driver = ContainerDriver(lambda: open_engine(socket, folder), start_seconds=30)
    reports = RunReports(lambda fraction: None, lambda line: None)
    options = {"image": "localhost/sixfold-probe", "cpus": 1.0}
    try:
        document = await driver.inspect(options["image"], folder / "scratch")
        worker = await driver.start(
            WorkerSpec("probe", "container", 64 << 20, folder / "scratch", options=options)
        )
        other = ContainerDriver(lambda: open_engine(socket, folder, 1), start_seconds=30)
        await other.inspect(options["image"], folder / "scratch-1")
        await other.run_container(ContainerSpec(options["image"]))
        await other.close()
        files = {"artifacts/score.mid": folder / "score"}
        done = await worker.run(Task("t1", "m", {"prompt": "hello"}, files), reports)
        await worker.run(Task("t2", "m", {"prompt": "talk"}), reports)
        log_bytes = sum(path.stat().st_size for path in socket.parent.glob("store/**/ctr.log"))
        lost = await worker.run(Task("t3", "m", {"prompt": "die"}), reports)
        said = [file.path.read_text() for file in done.files]
        left = await driver.start(
            WorkerSpec("probe", "container", 64 << 20, folder / "scratch", options=options)
        )
        restarted = ContainerDriver(lambda: open_engine(socket, folder))
        await restarted.tidy()
        await restarted.close()
        async with asyncio.timeout(30):
            while left.alive:
                await asyncio.sleep(0.05)
        ends = type(lost).__name__, worker.alive, log_bytes
        print(json.dumps([list(document["models"]), done.data, said, *ends]))
    finally:
        await driver.close()

asyncio.run(main(*map(pathlib.Path, sys.argv[1:])))
"""


@pytest.fixture
def podman() -> Iterator[Podman]:
    with podman_harness.running_service() as result:
        yield result


def test_real_container_is_isolated_runs_and_is_killed(podman: Podman, tmp_path: Path) -> None:
    (tmp_path / "score").write_bytes(b"MThd")
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(podman.socket), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    models, data, text, lost, alive, log_bytes = json.loads(result.stdout)
    assert models == ["sixfold-probe"]
    assert data == {
        "root": "no",
        "tmp": "yes",
        "mount": "yes",
        "mount_write": "no",
        "net": "no",
        "volume": "memory",
    }
    assert text == ["hi"]
    assert (lost, alive) == ("WorkerLost", False)
    assert 0 < log_bytes <= 8 << 20, "of 32 MiB"
    assert podman.output_of("ps", "-aq") == "", "no container is left"
    owner = hashlib.blake2b(str(tmp_path).encode(), digest_size=8).hexdigest()
    left_over = podman.output_of("network", "ls", "-q", "--filter", f"label=sixfold.owner={owner}")
    assert left_over == "", "and no network"
