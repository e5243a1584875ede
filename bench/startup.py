"""Measure cold starts, scale-down after idleness, and recovery after kill −9.

.venv/bin/python -m bench startup

A cold start is the time from the request for a worker to the result of its first trivial run, for each
driver: a thread, a forked process, a container under Podman (as root, with runc), and an actor on a Ray
cluster on loopback. Unavailable drivers are skipped with a reason. Then a worker is left idle, a worker is
killed during a run, and a server is killed with jobs in its queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from bench.reporting import Row, calibration, of_samples
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.catalog.engines import Task
from sixfold.core.predictions.events import StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.states import PredictionState
from sixfold.core.workers.ports import Driver, RunCompleted, RunReports, WorkerSpec
from sixfold.drivers.container import ContainerDriver, open_engine
from sixfold.drivers.inline import InlineDriver
from sixfold.drivers.process import ProcessDriver
from tests.e2e import ray_cluster, servers
from tests.harness import podman
from tests.harness.pipeline import Options, PipelineFixture, running_pipeline

TITLE = "Cold starts, idle workers and kill −9"
IDLE_SECONDS, JOBS = 1.0, 100
_ENDED = ("succeeded", "failed")
_QUIET = RunReports(lambda _: None, lambda _: None)
_ECHO = '''from sixfold import model

@model
def echo(text: str) -> str:
    """Return the input."""
    return text
'''


async def starts(name: str, driver: Driver, spec: WorkerSpec, count: int, note: str = "") -> Row:
    """Start workers one after the other, with one run each, and return their times without the first."""
    seconds: list[float] = []
    try:
        for number in range(count + 1):
            began = time.perf_counter()
            worker = await driver.start(spec)
            outcome = await worker.run(Task(f"t{number}", "m", {"prompt": "x"}), _QUIET)
            seconds.append(time.perf_counter() - began)
            if not isinstance(outcome, RunCompleted):
                raise SystemExit(f"{name}: {outcome}")
            await worker.kill()
    finally:
        await driver.close()
    return of_samples(f"cold start and first run: {name}", seconds[1:], "ms", note)


def echo(folder: Path) -> WorkerSpec:
    """Return a worker of a trivial engine."""
    return WorkerSpec("echo", "tests.fakes.engines:EchoEngine", 1 << 28, folder / "scratch", resident=True)


def skipped_row(name: str, why: str) -> Row:
    """Return the row of a driver that cannot be measured here."""
    return Row(f"cold start and first run: {name}, skipped", 0, "", note=why)


def containers(folder: Path) -> Row:
    """Measure the start of containers from an image with one static executable."""
    name = "container"
    try:
        with podman.running_service() as served:
            options = {"image": podman.IMAGE, "cpus": 1.0}
            spec = WorkerSpec("probe", "container", 64 << 20, folder / "scratch", options=options)
            driver = ContainerDriver(lambda: open_engine(served.socket, folder), start_seconds=30)
            return asyncio.run(starts(name, driver, spec, 5, "Podman with runc, a program of 1 MB"))
    except pytest.skip.Exception as skipped:
        return skipped_row(name, str(skipped))
    except subprocess.CalledProcessError as error:
        return skipped_row(name, str(error))


async def cluster(folder: Path) -> Row:
    """Measure the start of actors on a cluster of three raylets on this machine."""
    if importlib.util.find_spec("ray") is None:
        return skipped_row("Ray actor", "Ray is not installed: `make cluster`")
    os.environ.update(ray_cluster.QUIET)  # before Ray is imported
    module = importlib.import_module("sixfold.drivers.ray")
    async with ray_cluster.running_cluster(folder, 2, ()) as started:
        driver: Driver = module.RayDriver(started.address)
        return await starts("Ray actor", driver, echo(folder), 5, "three raylets on this machine")


async def idle(folder: Path) -> Row:
    """Return the time from the end of the last run until its worker is gone, less the idle time."""
    driver, seconds = ProcessDriver(), list[float]()
    async with running_pipeline(folder, Options(driver=driver, idle_seconds=IDLE_SECONDS)) as built:
        for number in range(3):
            await built.run(extras={"n": number})
            began = time.perf_counter()
            while driver.workers:  # noqa: ASYNC110 - a driver tells nobody of an end
                await asyncio.sleep(0.005)
            seconds.append(time.perf_counter() - began - IDLE_SECONDS)
    return of_samples(f"idle until stopped, beyond the {IDLE_SECONDS:.0f} s", seconds, "ms")


async def wait_for_attempt(built: PipelineFixture, prediction: Prediction, attempt: int) -> None:
    async for event in built.service.events(prediction):
        if isinstance(event, StateChanged):
            moved = event.prediction
            if moved.attempt == attempt and moved.state is PredictionState.RUNNING:
                return


async def restart_run(folder: Path) -> Row:
    """Kill a worker during its run, and return the seconds until the run is executing again."""
    driver, seconds = ProcessDriver(), list[float]()
    async with running_pipeline(folder, Options(driver=driver)) as built:
        for number in range(5):
            request = built.request("slow", extras={"seconds": 60, "n": number})
            prediction = await built.service.submit(request)
            await wait_for_attempt(built, prediction, 1)
            began = time.perf_counter()
            for worker in driver.workers:
                os.kill(worker.pid or 0, signal.SIGKILL)
            await wait_for_attempt(built, await built.service.get_any(prediction.id), 2)
            seconds.append(time.perf_counter() - began)
            await built.service.cancel(prediction.id, Tenant(built.payer.id))
            await built.service.wait(prediction, 10)
    return of_samples("killed worker until its job runs again", seconds, "ms")


async def restart_server(folder: Path) -> list[Row]:
    """Kill a server with queued jobs; return the seconds until it responds, and the results of the jobs."""
    home = folder / "home"
    (home / "models").mkdir(parents=True)
    (home / "models" / "echo.py").write_text(_ECHO)
    async with servers.serving(home, SIXFOLD_SANDBOX="off") as server:
        key = {"Authorization": f"Bearer {server.key}"}
        while (await server.call("GET", "/api/containers/templates/echo", **key)).status != 200:
            pass  # a new file is live within two seconds

        async def join(number: int) -> str:
            body = {"input": {"text": f"{number}"}}
            answer = await server.call("POST", "/api/containers/echo/queue/join", body, **key)
            return str(answer.json["prediction_id"])

        joined = await asyncio.gather(*(join(number) for number in range(JOBS)))
        await server.kill()
        began = time.perf_counter()
        await server.restart()
        serving = time.perf_counter() - began
        statuses: dict[str, str] = {}
        while left := [name for name in joined if statuses.get(name) not in _ENDED]:
            for name in left:
                answer = await server.call("GET", f"/api/containers/predictions/{name}", **key)
                statuses[name] = str(answer.json["status"])
        whole = time.perf_counter() - began
        lost = sum(status != "succeeded" for status in statuses.values())
        verified, text = await server.command("ledger", "verify")
    note = f"{lost} of {JOBS} lost; the ledger {'verifies' if not verified else text}"
    return [
        Row("killed server until it responds again", serving * 1000, "ms"),
        Row(f"killed server until {JOBS} accepted jobs are complete", whole * 1000, "ms", note=note),
    ]


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as result, contextlib.chdir(result):
        folder = Path(result)
        results = [*calibration(), asyncio.run(starts("inline", InlineDriver(), echo(folder), 50))]
        results.append(asyncio.run(starts("forked process", ProcessDriver(), echo(folder), 50)))
        results.append(containers(folder))
        results.append(asyncio.run(cluster(folder)))
        results.append(asyncio.run(idle(folder / "idle")))
        results.append(asyncio.run(restart_run(folder / "bereft")))
        return results + asyncio.run(restart_server(folder))
