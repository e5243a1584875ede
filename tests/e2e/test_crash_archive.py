"""Kill −9 during pruning, archiving and erasure: nothing is lost or duplicated."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from sixfold.core.account_data.archive import segments
from sixfold.core.account_data.archive.reader import ArchiveReader
from sixfold.core.account_data.archive.segments import SegmentLine
from sixfold.core.database import many
from sixfold.core.failpoints import ARCHIVE_POINTS, ERASE_POINTS
from tests.e2e import retention_child
from tests.harness import processes
from tests.harness.cases import nightly_after
from tests.harness.pipeline import PRICE, PipelineFixture, running_pipeline

RUNS, CREDIT = 4, 1_000_000
BOTH = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


async def crash(folder: Path, failpoints: str) -> None:
    """Run retention in a child process until it is killed at a failpoint."""
    command = (sys.executable, "-m", "tests.e2e.retention_child", str(folder), failpoints)
    child = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    async with asyncio.timeout(processes.STORY_SECONDS):
        _, error = await child.communicate()
    assert child.returncode == -signal.SIGKILL, error.decode()


async def create_runs(folder: Path) -> set[str]:
    async with running_pipeline(folder) as pipeline:
        submissions = [await pipeline.service.submit(pipeline.request(extras={"n": n})) for n in range(RUNS)]
        return {(await pipeline.service.wait(prediction, 60)).id for prediction in submissions}


async def lines_of(pipeline: PipelineFixture) -> list[SegmentLine]:
    reader = ArchiveReader(pipeline.database, pipeline.blobs)
    return [line async for row in reader.rows() for line in (await reader.read(row)).lines]


async def leftovers(pipeline: PipelineFixture) -> list[str]:
    """Return the segments in the store that are not part of the archive."""
    named = {row["blob"] async for row in ArchiveReader(pipeline.database, pipeline.blobs).rows()}
    return [
        info.key
        async for info in pipeline.blobs.list()
        if info.key not in named and await is_segment(pipeline, info.key)
    ]


async def is_segment(pipeline: PipelineFixture, key: str) -> bool:
    try:
        segments.parse(await pipeline.blobs.get(key))
    except segments.SegmentDamaged:
        return False
    return True


async def check_ledger(pipeline: PipelineFixture) -> None:
    """Check the ledger and the archive, whether or not a sweep has ended."""
    account = await pipeline.account()
    assert (account.posted, account.held) == (CREDIT - RUNS * PRICE, 0)
    assert await pipeline.faults() == ()
    assert (await ArchiveReader(pipeline.database, pipeline.blobs).verify()).faults == []


async def remaining(pipeline: PipelineFixture) -> set[str]:
    query = many("retention_predictions", after="", before="q", limit=1000)
    return {str(row["id"]) for row in await pipeline.database.read(query)}


@pytest.mark.parametrize("either", BOTH, indirect=True)
@pytest.mark.parametrize(
    "point",
    nightly_after(
        len(ARCHIVE_POINTS) - 1, [f"{name}=crash@{hit}" for hit in (1, 3) for name in ARCHIVE_POINTS[1:]]
    ),
)
async def test_killed_archiving_is_completed(either: Path, point: str) -> None:
    runs = await create_runs(either)
    await crash(either, point)
    async with running_pipeline(either) as pipeline:
        await check_ledger(pipeline)
        archived = Counter(line.row["id"] for line in await lines_of(pipeline) if line.table == "prediction")
        assert archived + Counter(await remaining(pipeline)) == Counter(runs)
        await retention_child.sweep(pipeline.database, either)
        await check_ledger(pipeline)
        lines = await lines_of(pipeline)
        for table, name in (("prediction", "id"), ("transfer", "hold_id")):
            assert Counter(line.row[name] for line in lines if line.table == table) == Counter(runs)
        assert await remaining(pipeline) == set()
        assert await leftovers(pipeline) == []


@pytest.mark.parametrize("either", BOTH, indirect=True)
async def test_killed_sweep_is_completed(either: Path) -> None:
    await create_runs(either)
    await crash(either, "sweep.deleted=crash")
    async with running_pipeline(either) as pipeline:
        await check_ledger(pipeline)
        await retention_child.sweep(pipeline.database, either)
        await check_ledger(pipeline)
        assert await remaining(pipeline) == set()


@pytest.mark.parametrize("either", BOTH, indirect=True)
@pytest.mark.parametrize("point", ERASE_POINTS)
async def test_killed_erasure_is_completed(either: Path, point: str) -> None:
    await create_runs(either)
    async with running_pipeline(either) as pipeline:
        await retention_child.sweep(pipeline.database, either)
        count = len(await lines_of(pipeline))
        await pipeline.database.write(many("erase_archived", account_id=pipeline.payer.id))
    await crash(either, f"{point}=crash")
    async with running_pipeline(either) as pipeline:
        await check_ledger(pipeline)
        await retention_child.sweep(pipeline.database, either)
        await check_ledger(pipeline)
        lines = await lines_of(pipeline)
        assert len(lines) == count
        owned = {line.table for line in lines if line.account == pipeline.payer.id}
        assert owned == segments.PERMANENT, "erased, but for the amounts"
        assert await leftovers(pipeline) == []
