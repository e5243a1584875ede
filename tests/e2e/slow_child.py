"""Server with one slow run, which tests stop during it: `slow_child FOLDER SECONDS`; prints its end state."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sixfold.core.predictions.events import ProgressEvent, StateChanged
from sixfold.drivers.process import ProcessDriver
from tests.harness.pipeline import Options, running_pipeline


async def main(folder: Path, seconds: float) -> None:
    """Start the run, and print `running` when its worker reports."""
    async with running_pipeline(folder, Options(driver=ProcessDriver(), lease_seconds=0.6)) as pipeline:
        request = pipeline.request("slow", idempotency_id="slow", extras={"seconds": seconds})
        prediction = await pipeline.service.submit(request)
        response = "queued"
        async for event in pipeline.service.events(prediction):
            match event:
                case ProgressEvent() if response != "running":
                    response = "running"
                    print(response, flush=True)  # noqa: T201 - what the parent reads
                case StateChanged(ended) if ended.is_terminal:
                    print(f"{ended.state} {ended.attempt}", flush=True)  # noqa: T201 - the same
                case _:
                    pass


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
