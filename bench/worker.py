"""Measure the cost of a worker: its start, a round trip to it, and storing a blob.

.venv/bin/python -m bench worker
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bench.reporting import Row, calibration, of_samples
from sixfold.core.catalog.engines import Task
from sixfold.core.workers.ports import RunReports, WorkerSpec
from sixfold.drivers.process import ProcessDriver
from sixfold.store.file_store import FileStore

TITLE = "Workers and blobs"
ROUNDS = 2000
ROWS: list[Row] = []
QUIET = RunReports(lambda _: None, lambda _: None)


def row(name: str, samples: list[float], unit: str, note: str = "") -> float:
    """Store the median and the 95th percentile, and return the median."""
    measured = of_samples(name, samples, unit, note)
    ROWS.append(measured)
    return measured.median


async def measure(count: int, work: Callable[[], Awaitable[object]]) -> list[float]:
    """Return the duration of each of `count` calls in seconds."""
    samples: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        await work()
        samples.append(time.perf_counter() - began)
    return samples


async def starts(folder: Path) -> None:
    """Measure the zygote, forked workers, and new processes."""
    boots: list[float] = []
    for _ in range(5):
        driver = ProcessDriver()
        boots += await measure(1, driver.warm)
        await driver.close()
    row("zygote boot (numpy, Pillow, OpenCV), once per server", boots, "ms")
    spec = WorkerSpec("echo", "tests.fakes.engines:EchoEngine", 1 << 30, folder / "scratch", resident=True)
    driver = ProcessDriver()
    await driver.warm()
    samples: list[float] = []
    for _ in range(100):
        began = time.perf_counter()
        worker = await driver.start(spec)
        samples.append(time.perf_counter() - began)
        await worker.kill()
    forked = row("forked worker, request to ready", samples, "ms", "aim 30")
    command = [sys.executable, "-c", "import numpy, PIL.Image, cv2"]
    fresh = [_seconds(lambda: subprocess.run(command, check=True)) for _ in range(9)]
    median = row("fresh python importing the same", fresh, "ms")
    ROWS.append(Row("fork against a fresh python", median / forked, "times faster"))
    worker = await driver.start(spec)
    for _ in range(100):
        await worker.run(Task("t", "m", {}), QUIET)
    samples = await measure(ROUNDS, lambda: worker.run(Task("t", "m", {"prompt": "a fox"}), QUIET))
    trip = row("run, round trip with a trivial engine", samples, "µs", "aim 200")
    with ProcessPoolExecutor(1) as pool:
        list(pool.map(len, [{}] * 100))
        pooled = [_seconds(lambda: pool.submit(len, {}).result()) for _ in range(ROUNDS)]
    median = row("ProcessPoolExecutor, round trip with len()", pooled, "µs")
    ROWS.append(Row("round trip against the pool's", median / trip, "times faster"))
    await driver.close()


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


async def blobs(folder: Path) -> None:
    """Measure durable puts, one at a time and sixteen at once."""
    store = FileStore(folder / "store")
    for name, size, count in (("1 KB", 1 << 10, 100), ("1 MB", 1 << 20, 40), ("20 MB", 20 << 20, 8)):
        data = os.urandom(size)
        numbers = iter(range(count))
        times = await measure(count, lambda: store.put(f"a/b/{next(numbers)}", data))  # noqa: B023 - awaited here
        row(f"blob put {name}", times, "ms")
    began = time.perf_counter()
    await asyncio.gather(*(store.put(f"c/{number}", b"x" * 1024) for number in range(400)))
    each = (time.perf_counter() - began) / 400
    row("blob put 1 KB, 400 at once, each", [each], "ms")
    row("blob get 1 KB", await measure(500, lambda: store.get("c/1")), "µs")
    store.close()


def rows() -> list[Row]:
    ROWS.clear()
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as name:
        folder = Path(name)
        asyncio.run(starts(folder))
        asyncio.run(blobs(folder))
    return calibration() + ROWS
