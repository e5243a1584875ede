"""Claims leave free runs above an account's share in the queue, and take all others oldest first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sixfold.core import ids
from sixfold.core.accounts import accounts
from sixfold.core.accounts.accounts import Account
from sixfold.core.predictions import claims
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.repository import FailureRecord, RunLease
from tests.harness.pipeline import Options, PipelineFixture, running_pipeline

LEASE = RunLease("boot_test", 30_000_000)


@pytest.fixture
async def still(either: Path) -> AsyncIterator[PipelineFixture]:
    async with running_pipeline(either, Options(start=False)) as pipeline:
        yield pipeline


async def claimed(pipeline: PipelineFixture, limit: int = 10, hardware: str | None = None) -> list[str]:
    claim = claims.claim("echo", LEASE, limit, warm=True, hardware=hardware, free_runs=2)
    return [each.id for each in await pipeline.database.write(claim)]


async def submit(
    pipeline: PipelineFixture, count: int, *, charged: bool = False, account: Account | None = None
) -> list[Prediction]:
    results: list[Prediction] = []
    for _ in range(count):
        extras = {"n": ids.new("n")}
        request = pipeline.request(
            charged=charged, extras=extras, principal=(account or pipeline.payer).owner
        )
        results.append(await pipeline.service.submit(request))
    return results


async def test_free_runs_above_the_share_wait_and_block_no_others(still: PipelineFixture) -> None:
    free = await submit(still, 4)
    other = await still.database.write(accounts.create("other@example.com"))
    priced = await submit(still, 3, charged=True)
    others = await submit(still, 1, account=other)
    assert await claimed(still) == [each.id for each in (*free[:2], *priced, *others)]
    assert await claimed(still) == []
    ended = await still.database.read(predictions.get_any(free[0].id))
    await still.database.write(predictions.fail(ended.id, ended.attempt, FailureRecord("no", "engine")))
    assert await claimed(still) == [free[2].id]
    assert await claimed(still) == []


async def test_share_of_free_runs_is_counted_over_all_servers(still: PipelineFixture) -> None:
    await submit(still, 6)
    leases = [RunLease(f"boot_{number}", 30_000_000) for number in range(3)]
    result = await asyncio.gather(
        *(still.database.write(claims.claim("echo", lease, 2, warm=True, free_runs=2)) for lease in leases)
    )
    assert sum(map(len, result)) == 2


async def test_share_of_free_runs_applies_to_one_hardware_too(still: PipelineFixture) -> None:
    free = await submit(still, 3)
    assert await claimed(still, hardware="gpu") == []
    assert await claimed(still, hardware="") == [each.id for each in free[:2]]


async def test_free_runs_keep_their_order_after_a_restart(still: PipelineFixture) -> None:
    free = await submit(still, 4)
    assert await claimed(still) == [each.id for each in free[:2]]
    back = await still.database.write(predictions.recover("boot_next", 3))
    assert {each.id for each in back} == {each.id for each in free[:2]}
    assert await claimed(still) == [each.id for each in free[:2]]
