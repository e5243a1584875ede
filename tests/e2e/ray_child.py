"""Pipeline on a Ray cluster, in a process that a test kills: `ray_child FOLDER ADDRESS`.

It submits `ORDERS` predictions under fixed idempotency ids, prints `ended` for each that has ended, and
finally one line of JSON with the result.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.repository import Prediction
from sixfold.drivers.ray import RayDriver
from sixfold.web import logs
from tests.harness.pipeline import HARDWARE, Options, PipelineFixture, models, running_pipeline

# An optional extra without type stubs.
ray: Any = importlib.import_module("ray")

ORDERS = 200
SMALL = 2**28


async def submit_all(pipeline: PipelineFixture) -> list[Prediction]:
    """Submit every prediction, half of them charged by hardware time."""
    results: list[Prediction] = []
    for number in range(ORDERS):
        hardware = HARDWARE if number % 2 else None
        extras = {"n": number, "bytes": [300]}
        request = pipeline.request(idempotency_id=f"order-{number}", extras=extras, hardware=hardware)
        results.append(await pipeline.service.submit(request))
    return results


async def final_state(pipeline: PipelineFixture, submissions: list[Prediction]) -> dict[str, Any]:
    final_predictions = [
        await pipeline.database.read(predictions.get_any(prediction.id)) for prediction in submissions
    ]
    files = [
        file for prediction in final_predictions if prediction.output for file in prediction.output.files
    ]
    stored = [await pipeline.blobs.stat(file.blob) for file in files]
    account = await pipeline.account()
    return {
        "states": Counter(prediction.state for prediction in final_predictions),
        "again": sum(prediction.attempt > 1 for prediction in final_predictions),
        "charged": sum(prediction.cost for prediction in final_predictions),
        "posted": account.posted,
        "held": account.held,
        "files": len([info for info in stored if info is not None]),
        "faults": await pipeline.faults(),
    }


async def main(folder: Path, address: str) -> None:
    """Run to the end, unless the process is killed first."""
    driver = RayDriver(address, hardware={HARDWARE: 24})
    facts = {"echo": {"memory_bytes": SMALL}}
    expected = Options(
        slots=4, lease_seconds=3, max_attempts=9, driver=driver, models=models(facts=facts), placed=True
    )
    async with running_pipeline(folder, expected) as pipeline:
        submissions = await submit_all(pipeline)
        for prediction in submissions:
            await pipeline.service.wait(prediction, 60)
            print("ended", flush=True)  # noqa: T201 - what the parent reads
        while any(  # noqa: ASYNC110 - the end of an actor has no event
            not name.startswith(pipeline.scheduler.boot) for name in ray.util.list_named_actors()
        ):
            # The sweep stops workers of the previous server.
            await asyncio.sleep(0.2)
        print(json.dumps(await final_state(pipeline, submissions)), flush=True)  # noqa: T201 - the same


if __name__ == "__main__":
    logs.configure("info")
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
