"""Workers on a Ray cluster of two nodes on loopback, one of which is killed during a run."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sixfold.drivers import temp_dirs

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra `ray`"),
]
# Number of workers that SCRIPT starts.
WORKER_COUNT = 8
# A separate process, because a cluster connects to this machine's public address, which a test may not do.
SCRIPT = """
import asyncio, json, pathlib, sys
import ray
from ray.cluster_utils import Cluster
from sixfold.core.catalog.engines import Task
from sixfold.core.workers.ports import RunReports, WorkerSpec, WorkerStartFailed
from sixfold.drivers.ray import RayDriver

SMALL = {"object_store_memory": 80 << 20, "memory": 4 << 30}
LARGE = 20_000_000
folder = pathlib.Path(sys.argv[1])
lines = []

def spec(engine, hardware=""):
    factory = f"tests.fakes.engines:{engine}Engine"
    return WorkerSpec(engine.lower(), factory, 1 << 28, folder / "scratch", hardware=hardware)

async def begun(worker, name, **inputs):
    running = asyncio.Event()
    reports = RunReports(lambda fraction: running.set(), lines.append)
    run = asyncio.create_task(worker.run(Task(name, "m", inputs), reports))
    await running.wait()
    return run

async def main(cluster):
    quiet = RunReports(lambda fraction: None, lines.append)
    points = {"crashing": "crash"}
    driver = RayDriver(
        cluster.address, hardware={"far": 0}, failpoints=points, cancel_seconds=0.2, start_seconds=60
    )
    answers = {}
    echo = await driver.start(spec("Echo"))
    (folder / "in").write_bytes(b"x" * 77)
    done = await echo.run(
        Task("a", "m", {"bytes": [10, 0], "log": ["one", "two"]}, {"image": folder / "in"}), quiet
    )
    (folder / "large").write_bytes(b"x" * LARGE)
    moved = await echo.run(Task("l", "m", {"bytes": [LARGE]}, {"video": folder / "large"}), quiet)
    answers["large"] = [moved.files[0].path.stat().st_size, moved.data["files"]["video"]]
    many = {"bytes": [5], "values": {str(number): number for number in range(100_001)}}
    refused = await echo.run(Task("v", "m", many), quiet)
    answers["refused"] = [refused.message, len(list((folder / "scratch").iterdir()))]
    answers["files"] = [[f.path.stat().st_size, f.path.stat().st_mode & 0o777] for f in done.files]
    answers["seen"] = done.data["files"]
    answers["public"] = (await echo.run(Task("b", "m", {"raise": "public"}), quiet)).message
    crashed = await echo.run(Task("c", "crashing", {}), quiet)
    answers["crashed"] = [type(crashed).__name__, echo.alive]
    slow = await driver.start(spec("Slow"))
    run = await begun(slow, "d")
    slow.cancel("d")
    answers["canceled"] = [type(await run).__name__, slow.alive]
    run = await begun(slow, "e")
    await slow.kill()
    answers["killed"] = [type(await run).__name__, slow.alive]
    try:
        await driver.start(spec("Broken"))
    except WorkerStartFailed as failed:
        answers["broken"] = str(failed)
    driver.look_seconds = 60
    node = cluster.add_node(num_cpus=3, resources={"far": 3}, **SMALL)
    far, *idle = [await driver.start(spec("Slow", "far")) for _ in range(3)]
    run = await begun(far, "f")
    near = await driver.start(spec("Echo"))
    cluster.remove_node(node, allow_graceful=False)
    answers["machine"] = [type(await asyncio.wait_for(run, 60)).__name__, far.alive]
    answers["idle"] = [worker.alive for worker in (*idle, near)]
    again = await driver.start(spec("Echo"))
    answers["again"] = type(await again.run(Task("g", "m", {}), quiet)).__name__
    await driver.close()
    answers["lines"] = lines
    (folder / "answers.json").write_text(json.dumps(answers))

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False, **SMALL})
try:
    asyncio.run(main(cluster))
finally:
    ray.shutdown()
    cluster.shutdown()
"""


def test_cluster_runs_finish_and_a_killed_node_loses_its_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temp_root = tmp_path / "sessions"
    temp_root.mkdir()
    quiet = ["env", "RAY_AUTH_MODE=disabled", "RAY_USAGE_STATS_ENABLED=0"]
    quiet += [
        f"TMPDIR={temp_root}",
        f"RAY_TMPDIR={tempfile.gettempdir()}",
    ]  # Ray's own sockets need a short path
    result = subprocess.run(
        [*quiet, sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=220,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    response = json.loads((tmp_path / "answers.json").read_text())
    assert response["files"] == [[10, 0o600], [0, 0o600]]
    assert response["large"] == [20_000_000] * 2
    message = "The model returned too much: an object must have at most 100,000 members."
    assert response["refused"] == [message, 3], "no file of this run, three of the others"
    assert response["seen"] == {"image": 77}
    assert response["public"] == "No face was found in the image."
    assert response["crashed"] == ["WorkerLost", False]
    assert response["canceled"] == ["RunStopped", True]
    assert response["killed"] == ["WorkerLost", False]
    assert "the weights are missing" in response["broken"]
    assert response["machine"] == ["WorkerLost", False]
    assert response["idle"] == [False, False, True], "who idled on the dead machine gets no run any more"
    assert response["again"] == "RunCompleted"
    assert response["lines"][:2] == ["one", "two"]
    left = list(temp_root.iterdir())
    assert len(left) < WORKER_COUNT, "who began later has cleared after the dead"
    for path in left:
        _wait_for_its_end(path)
    monkeypatch.setattr(tempfile, "tempdir", str(temp_root))
    temp_dirs.clear()
    assert list(temp_root.iterdir()) == []


def _wait_for_its_end(folder: Path) -> None:
    """The lock on its folder goes with its process."""
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.close(descriptor)
