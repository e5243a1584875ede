"""Measure the pipeline's overhead per job: a trivial engine in a worker process, every job durable.

.venv/bin/python -m bench job_overhead
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from bench.reporting import Row, calibration, of_samples
from sixfold.drivers.process import ProcessDriver
from tests.harness.pipeline import Options, PipelineFixture, running_pipeline

TITLE = "The pipeline with a trivial engine"
ONE_BY_ONE, AT_ONCE = 500, 2_000


async def _measure(folder: Path) -> list[Row]:
    async with running_pipeline(
        folder, Options(credit=10**12, driver=ProcessDriver(), queue_limit=10**6)
    ) as built:
        first = await built.run()
        await asyncio.gather(built.run(), built.run())
        alone = await _alone(built)
        cpu, began = time.process_time(), time.perf_counter()
        await asyncio.gather(*(built.run(extras={"n": n}) for n in range(AT_ONCE)))
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
        return [
            Row("cold start of the first worker, zygote included", first.durations.cold_start / 1000, "ms"),
            of_samples(
                "priced … captured, one at a time", alone, "ms", "the engine's own time is about 0.05 ms"
            ),
            Row(f"jobs per second, {AT_ONCE} at once on two workers", AT_ONCE / wall, "per s"),
            Row("server CPU per job", cpu / AT_ONCE * 1e6, "µs"),
        ]


async def _alone(built: PipelineFixture) -> list[float]:
    samples: list[float] = []
    for number in range(ONE_BY_ONE):
        began = time.perf_counter()
        await built.run(extras={"n": number})
        samples.append(time.perf_counter() - began)
    return samples


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        return calibration() + asyncio.run(_measure(Path(folder)))
