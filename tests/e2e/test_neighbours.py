"""Two servers on one PostgreSQL: each finishes what the other accepted, once, and waiters are notified."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sixfold.core import ids
from sixfold.core.accounts import idempotency
from sixfold.core.accounts.idempotency import ClaimedRequest, RequestInProgress
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.predictions import claims
from sixfold.core.predictions.events import ProgressEvent, StateChanged
from sixfold.core.predictions.repository import RunLease
from sixfold.core.predictions.states import PredictionState
from sixfold.core.workers import peer_events
from tests.harness import backends, postgres
from tests.harness.pipeline import PRICE, Options, PipelineFixture, running_pipeline

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one"),
]
CREDIT = 1_000_000


@asynccontextmanager
async def pair(
    folder: Path, first: Options, second: Options
) -> AsyncIterator[tuple[PipelineFixture, PipelineFixture]]:
    """Two pipelines with separate folders, one database and one blob store."""
    homes = [folder / "first", folder / "second"]
    for home in homes:
        home.mkdir()
    (folder / "store").mkdir()
    url = backends.database_url(homes[0], "postgres")
    (homes[1] / backends.DATABASE_FILE).write_text(url)
    if blobs := backends.blob_url(homes[0]):
        (homes[1] / backends.BLOB_FILE).write_text((homes[0] / backends.BLOB_FILE).read_text())
    else:
        for home in homes:
            (home / "store").symlink_to(folder / "store")
    assert blobs == backends.blob_url(homes[1])
    async with running_pipeline(homes[0], first) as one, running_pipeline(homes[1], second) as other:
        yield one, other


# The first server only accepts requests, and the second one runs them.
ASKS, WORKS = Options(slots=0), Options(slots=2)


async def test_request_of_one_server_runs_on_the_other_and_notifies(tmp_path: Path) -> None:
    async with pair(tmp_path, ASKS, WORKS) as (asks, works):
        prediction = await asks.run(extras={"bytes": [300]})
        assert prediction.state is PredictionState.SUCCEEDED
        assert prediction.output is not None
        assert await asks.blobs.stat(prediction.output.files[0].blob) is not None
        account = await asks.account()
        assert (account.posted, account.held) == (CREDIT - PRICE, 0)
        assert await works.faults() == ()


async def test_requests_of_two_servers_run_and_are_charged_once(tmp_path: Path) -> None:
    async with pair(tmp_path, WORKS, WORKS) as (first, second):
        submissions = [
            pipeline.run(extras={"n": number}) for number in range(40) for pipeline in (first, second)
        ]
        predictions = await asyncio.gather(*submissions)
        assert {prediction.state for prediction in predictions} == {PredictionState.SUCCEEDED}
        assert {prediction.attempt for prediction in predictions} == {1}
        account = await first.account()
        assert (account.posted, account.held) == (CREDIT - 80 * PRICE, 0)
        assert await second.faults() == ()


async def test_events_of_a_run_on_another_server_arrive_in_order(tmp_path: Path) -> None:
    async with pair(tmp_path, ASKS, WORKS) as (asks, _works):
        prediction = await asks.service.submit(asks.request())
        states = [
            event.prediction.state
            async for event in asks.service.events(prediction)
            if isinstance(event, StateChanged)
        ]
        assert states[-1] is PredictionState.SUCCEEDED


async def test_run_on_another_server_is_canceled(tmp_path: Path) -> None:
    async with pair(tmp_path, ASKS, WORKS) as (asks, works):
        prediction = await asks.service.submit(asks.request("slow", extras={"seconds": 60}))
        async for event in works.service.events(prediction):
            if isinstance(event, ProgressEvent):
                break
        await asks.service.cancel(prediction.id, Tenant.of(prediction))
        final_prediction = await asks.service.wait(prediction, 60)
        assert final_prediction.state is PredictionState.CANCELED
        assert (await asks.account()).posted == CREDIT
        assert await works.faults() == ()


async def test_lost_notification_is_replaced_by_polling(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_events.PeerEventListener, "_on_event", lambda *_: None)
    async with pair(tmp_path, ASKS, WORKS) as (asks, works):
        assert (await asks.run()).state is PredictionState.SUCCEEDED
        slow = await asks.service.submit(asks.request("slow", extras={"seconds": 60}))
        async for event in works.service.events(slow):
            if isinstance(event, ProgressEvent):
                break
        await asks.service.cancel(slow.id, Tenant.of(slow))
        assert (await asks.service.wait(slow, 60)).state is PredictionState.CANCELED


async def test_starting_server_keeps_runs_of_a_live_server(tmp_path: Path) -> None:
    async with pair(tmp_path, WORKS, dataclasses.replace(WORKS, start=False)) as (works, late):
        prediction = await works.service.submit(works.request("slow", extras={"seconds": 1}))
        async for event in works.service.events(prediction):
            if isinstance(event, ProgressEvent):
                break
        await late.start()
        final_prediction = await works.service.wait(prediction, 60)
        assert (final_prediction.state, final_prediction.attempt) == (PredictionState.SUCCEEDED, 1)


async def test_starting_server_requeues_runs_of_a_dead_server(tmp_path: Path) -> None:
    async with pair(
        tmp_path, dataclasses.replace(WORKS, start=False), dataclasses.replace(WORKS, start=False)
    ) as (asks, late):
        prediction = await asks.service.submit(asks.request())
        dead_server = RunLease(ids.new("boot"), 3_600_000_000)
        (claimed,) = await asks.database.write(claims.claim("echo", dead_server, 1, warm=True))
        assert claimed.id == prediction.id
        await late.start()
        # The lease of the run expires in an hour.
        final_prediction = await late.service.wait(prediction, 60)
        assert (final_prediction.state, final_prediction.attempt) == (PredictionState.SUCCEEDED, 2)


async def test_request_is_adopted_only_from_a_dead_server(tmp_path: Path) -> None:
    async with pair(tmp_path, WORKS, WORKS) as (first, second):
        scope = idempotency.scope_id("acct", "POST", "/x", "key")
        mine = await first.database.write(idempotency.begin(scope, b"body", first.scheduler.boot))
        assert isinstance(mine, ClaimedRequest)
        theirs = await second.database.write(idempotency.begin(scope, b"body", second.scheduler.boot))
        assert theirs == RequestInProgress(mine)
        dead = idempotency.scope_id("acct", "POST", "/x", "second")
        await first.database.write(idempotency.begin(dead, b"body", ids.new("boot")))
        adopted = await second.database.write(idempotency.begin(dead, b"body", second.scheduler.boot))
        assert isinstance(adopted, ClaimedRequest)
