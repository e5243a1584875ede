"""Hundreds of concurrent predictions: limits are exact, and equal requests are deduplicated."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sixfold import errors
from sixfold.core.accounts import accounts
from sixfold.core.accounts.keys import Principal
from sixfold.core.predictions import claims
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.repository import FailureRecord, RunLease
from sixfold.core.predictions.requests import PredictionRequest
from tests.harness.pipeline import PRICE, Options, PipelineFixture, running_pipeline
from tests.unit.predictions.test_service import FREE

pytestmark = pytest.mark.asyncio


async def submit(
    pipeline: PipelineFixture, requests: list[PredictionRequest]
) -> tuple[list[Prediction], Counter[Any]]:
    """Submit all requests at once; return those accepted, and the other results by type."""
    results = await asyncio.gather(
        *(pipeline.service.submit(request) for request in requests), return_exceptions=True
    )
    accepted = [result for result in results if isinstance(result, Prediction)]
    return accepted, Counter(type(result) for result in results if not isinstance(result, Prediction))


async def test_queue_limit_is_exact_among_a_thousand_requests(either: Path) -> None:
    async with running_pipeline(either, Options(credit=10**9, start=False, queue_limit=333)) as pipeline:
        requests = [pipeline.request(extras={"n": number}) for number in range(1_000)]
        accepted, others = await submit(pipeline, requests)
        assert (len(accepted), others) == (333, {errors.QueueFull: 667})
        account = await pipeline.account()
        assert (account.held, account.posted) == (333 * PRICE, 10**9)
        assert await pipeline.faults() == ()


async def test_free_share_of_each_account_is_exact(either: Path) -> None:
    async with running_pipeline(
        either, Options(start=False, queue_limit=500, free_queue_limit=7)
    ) as pipeline:
        owners: list[Principal] = [pipeline.payer.owner]
        for number in range(4):
            other = await pipeline.database.write(accounts.create(f"other{number}@example.com"))
            owners.append(other.owner)
        requests = [
            pipeline.request(hold=FREE, principal=owner, extras={"n": number})
            for number in range(40)
            for owner in owners
        ]
        accepted, others = await submit(pipeline, requests)
        assert Counter(prediction.account_id for prediction in accepted) == dict.fromkeys(
            (owner.account_id for owner in owners), 7
        )
        assert others == {errors.QueueFull: 5 * 33}


async def test_free_share_counts_all_models_and_running_requests(either: Path) -> None:
    async with running_pipeline(either, Options(start=False, free_queue_limit=3)) as pipeline:
        free = pipeline.request(hold=FREE)
        first = await pipeline.service.submit(free)
        await pipeline.service.submit(pipeline.request("slow", hold=FREE))
        lease = RunLease("a-server", 10**9)
        claimed = await pipeline.database.write(claims.claim(first.engine, lease, 1, warm=True))
        assert [prediction.id for prediction in claimed] == [first.id]
        accepted, others = await submit(pipeline, [free] * 5)
        assert (len(accepted), others) == (1, {errors.QueueFull: 4})
        failure = FailureRecord("canceled by the test", "lost")
        await pipeline.database.write(predictions.fail(first.id, claimed[0].attempt, failure))
        accepted, others = await submit(pipeline, [free] * 2)
        assert (len(accepted), others) == (1, {errors.QueueFull: 1})


async def test_balance_is_spent_to_the_last_request(either: Path) -> None:
    async with running_pipeline(either, Options(credit=PRICE * 123, start=False)) as pipeline:
        accepted, others = await submit(pipeline, [pipeline.request(extras={"n": n}) for n in range(400)])
        assert (len(accepted), others) == (123, {errors.InsufficientCredits: 277})
        account = await pipeline.account()
        assert (account.held, account.posted) == (PRICE * 123, PRICE * 123)
        assert await pipeline.faults() == ()


async def test_equal_requests_share_their_origin(either: Path) -> None:
    async with running_pipeline(either, Options(credit=10**9, start=False)) as pipeline:
        requests = [pipeline.request(extras={"n": number % 5}) for number in range(200)]
        accepted, others = await submit(pipeline, requests)
        assert (len(accepted), others) == (200, {})
        groups: dict[str, list[Prediction]] = {}
        for prediction in accepted:
            groups.setdefault(prediction.origin_id, []).append(prediction)
        assert sorted(map(len, groups.values())) == [40] * 5
        assert all(origin in {prediction.id for prediction in group} for origin, group in groups.items())


async def test_equal_idempotency_ids_are_accepted_once(either: Path) -> None:
    async with running_pipeline(either, Options(credit=10**9, start=False)) as pipeline:
        requests = [pipeline.request(idempotency_id=f"key-{number % 10}") for number in range(100)]
        accepted, others = await submit(pipeline, requests)
        assert (len(accepted), others) == (100, {})
        assert Counter(Counter(prediction.id for prediction in accepted).values()) == {10: 10}
        assert (await pipeline.account()).held == 10 * PRICE
        assert await pipeline.faults() == ()
