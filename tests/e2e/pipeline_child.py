"""Prediction pipeline in a process that tests kill: `pipeline_child FOLDER FAILPOINTS MUTANT`.

It submits `ORDERS` predictions under fixed idempotency ids, prints `accepted <id>` for each that was
acknowledged, and `done` when all have ended. The mutant `refund` refunds the first of them before that.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sixfold.core.accounts import ledger, ledger_batches
from sixfold.core.database import Query, Transaction
from sixfold.core.predictions import repository as predictions
from sixfold.drivers.process import ProcessDriver
from tests.harness.pipeline import Options, PipelineFixture, running_pipeline

ORDERS = 6


async def submit_all(pipeline: PipelineFixture) -> list[predictions.Prediction]:
    """Submit every prediction with its own idempotency id, and print its id when it is accepted."""
    results: list[predictions.Prediction] = []
    for number in range(ORDERS):
        request = pipeline.request(idempotency_id=f"order-{number}", extras={"n": number, "bytes": [500]})
        results.append(await pipeline.service.submit(request))
        print(f"accepted {results[-1].id}", flush=True)  # noqa: T201 - what the parent reads
    return results


def _no_capture(*_arguments: object) -> Transaction[None]:
    yield Query("clock", {})


# A success that costs its whole hold is captured as a batch of one.
_CAPTURES = ((ledger, "capture"), (ledger_batches, "capture_all"))


def _capture_apart() -> None:
    for module, name in _CAPTURES:
        setattr(module, name, _no_capture)


MUTANTS = {"capture-apart": _capture_apart}


async def main(folder: Path, failpoints: str, mutant: str) -> None:
    """Run to the end, unless a failpoint ends the process first."""
    if mutant in MUTANTS:
        MUTANTS[mutant]()
    async with running_pipeline(folder, Options(failpoints=failpoints, driver=ProcessDriver())) as pipeline:
        result = await submit_all(pipeline)
        for prediction in result:
            await pipeline.service.wait(prediction, 60)
        if mutant == "refund":
            await pipeline.service.refund(result[0], "a test")
        print("done", flush=True)  # noqa: T201 - what the parent reads


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
