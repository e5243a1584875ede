"""Predictions from request to end, with real collaborators."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sixfold import errors
from sixfold.core.accounts import accounts
from sixfold.core.accounts.prices import FREE
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.events import ProgressEvent, StateChanged
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.queries import PredictionFilter
from sixfold.core.predictions.states import PredictionState
from sixfold.core.provenance import embed
from sixfold.drivers.process import ProcessDriver
from tests.harness import backends
from tests.harness.pipeline import PRICE, Options, Road, road


@pytest.fixture
async def open_road(tmp_path: Path) -> AsyncIterator[Road]:
    async with road(tmp_path) as built:
        yield built


async def test_a_run_is_priced_held_run_stored_and_captured_once(open_road: Road) -> None:
    prediction = await open_road.run(extras={"bytes": [1000, 20]})
    assert prediction.state is PredictionState.SUCCEEDED
    assert prediction.cost == PRICE
    assert prediction.output is not None
    assert [file.size for file in prediction.output.files] == [1000, 20]
    blob = await open_road.blobs.get(prediction.output.files[0].blob)
    assert blob == b"\0" * 1000
    account = await open_road.account()
    assert (account.posted, account.held) == (1_000_000 - PRICE, 0)
    assert await open_road.faults() == ()


async def test_a_failing_engine_is_free_and_says_only_what_is_meant_for_users(open_road: Road) -> None:
    told = await open_road.run(extras={"raise": "public"})
    kept = await open_road.run(extras={"raise": "private"})
    assert (told.state, told.error) == (PredictionState.FAILED, "No face was found in the image.")
    assert kept.state is PredictionState.FAILED
    assert "secret" not in str(kept)
    account = await open_road.account()
    assert (account.posted, account.held) == (1_000_000, 0)


async def test_an_order_beyond_the_balance_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async with road(tmp_path, Options(credit=PRICE - 1)) as poor:
        with pytest.raises(errors.InsufficientCredits):
            await poor.pipeline.submit(poor.order())
        listed, _ = await poor.pipeline.page(Tenant(poor.payer.id), PredictionFilter(), 10, None)
        assert listed == ()


async def test_money_for_m_orders_runs_exactly_m_of_many(tmp_path: Path) -> None:
    async with road(tmp_path, Options(credit=PRICE * 5)) as built:
        orders = [built.pipeline.submit(built.order(extras={"n": n})) for n in range(40)]
        results = await asyncio.gather(*orders, return_exceptions=True)
        accepted = [result for result in results if isinstance(result, Prediction)]
        assert len(accepted) == 5
        assert all(
            isinstance(result, errors.InsufficientCredits) for result in results if result not in accepted
        )
        ended = [await built.pipeline.wait(prediction, 60) for prediction in accepted]
        assert {prediction.state for prediction in ended} == {PredictionState.SUCCEEDED}
        account = await built.account()
        assert (account.posted, account.held) == (0, 0)


async def test_a_full_queue_refuses_with_a_time_to_come_back(tmp_path: Path) -> None:
    async with road(tmp_path, Options(start=False, queue_limit=3)) as built:
        for number in range(3):
            await built.pipeline.submit(built.order(extras={"n": number}))
        with pytest.raises(errors.QueueFull) as refusal:
            await built.pipeline.submit(built.order())
        assert refusal.value.retry_after >= 1
        assert (await built.account()).held == 3 * PRICE


async def test_an_account_fills_its_share_of_the_queue_with_free_requests_only(tmp_path: Path) -> None:
    async with road(tmp_path, Options(start=False, queue_limit=6, free_queue_limit=2)) as built:
        free = built.order(hold=FREE)
        first, _ = [await built.pipeline.submit(free) for _ in range(2)]
        with pytest.raises(errors.QueueFull, match="at most 2 unfinished free requests"):
            await built.pipeline.submit(free)
        # A request with a price.
        await built.pipeline.submit(built.order())
        other = await built.database.write(accounts.create("other@example.com"))
        await built.pipeline.submit(replace(free, principal=other.owner))
        operator = replace(built.payer.owner, kind="operator")
        await built.pipeline.submit(replace(free, principal=operator))
        await built.pipeline.cancel(first.id, Tenant(built.payer.id))
        # The operator's request counts for its own account.
        with pytest.raises(errors.QueueFull):
            await built.pipeline.submit(free)


async def test_the_same_idempotency_id_is_one_prediction_however_often_it_is_raced(open_road: Road) -> None:
    order = open_road.order(idempotency_id="once")
    made = await asyncio.gather(*(open_road.pipeline.submit(order) for _ in range(25)))
    assert len({prediction.id for prediction in made}) == 1
    await open_road.pipeline.wait(made[0], 60)
    assert (await open_road.account()).posted == 1_000_000 - PRICE


async def test_a_waiting_prediction_is_canceled_at_once(tmp_path: Path) -> None:
    async with road(tmp_path, Options(start=False)) as built:
        prediction = await built.pipeline.submit(built.order())
        canceled = await built.pipeline.cancel(prediction.id, Tenant(built.payer.id))
        assert canceled.state is PredictionState.CANCELED
        assert (await built.account()).held == 0


@pytest.mark.parametrize("stubborn", [False, True])
async def test_a_running_prediction_is_canceled_even_when_its_engine_does_not_listen(
    tmp_path: Path, stubborn: bool
) -> None:
    async with road(tmp_path, Options(driver=ProcessDriver())) as built:
        prediction = await built.pipeline.submit(built.order("slow", extras={"stubborn": stubborn}))
        await _until_progress(built, prediction)
        await built.pipeline.cancel(prediction.id, Tenant(built.payer.id))
        ended = await built.pipeline.wait(prediction, 60)
        assert ended.state is PredictionState.CANCELED
        account = await built.account()
        assert (account.posted, account.held) == (1_000_000, 0)


async def test_a_cancelation_is_heard_while_the_inputs_are_fetched(open_road: Road) -> None:
    asked, go = asyncio.Event(), asyncio.Event()
    fetch = open_road.blobs.local_path

    async def late(key: str) -> Path:
        asked.set()
        await go.wait()
        return await fetch(key)

    open_road.blobs.local_path = late
    source = await open_road.media.store_unnamed(b"bytes", "image/png")
    order = open_road.order("slow", sources={"image": source}, extras={"seconds": 3600})
    prediction = await open_road.pipeline.submit(order)
    await asked.wait()
    await open_road.pipeline.cancel(prediction.id, Tenant(open_road.payer.id))
    go.set()
    assert (await open_road.pipeline.wait(prediction, 60)).state is PredictionState.CANCELED


async def _until_progress(built: Road, prediction: Prediction) -> None:
    async for event in built.pipeline.events(prediction):
        if isinstance(event, ProgressEvent):
            return


async def test_another_accounts_prediction_cannot_be_seen_or_canceled(open_road: Road) -> None:
    prediction = await open_road.run()
    with pytest.raises(errors.NotFound):
        await open_road.pipeline.get(prediction.id, Tenant("acct_other"))
    with pytest.raises(errors.NotFound):
        await open_road.pipeline.cancel(prediction.id, Tenant("acct_other"))


async def test_a_run_beyond_its_time_limit_fails_and_is_free(tmp_path: Path) -> None:
    options = Options(driver=ProcessDriver(), run_limit_seconds=0.3)
    async with road(tmp_path, options) as built:
        ended = await built.run("slow")
        assert ended.state is PredictionState.FAILED
        assert ended.error == "The run took longer than 0.3 seconds"
        assert (await built.run("echo")).state is PredictionState.SUCCEEDED
        assert (await built.account()).posted == 1_000_000 - PRICE


async def test_an_engine_that_kills_its_worker_is_tried_three_times_then_failed_and_free(
    tmp_path: Path,
) -> None:
    async with road(tmp_path, Options(driver=ProcessDriver())) as built:
        ended = await built.run("crash", extras={"signal": 9})
        assert (ended.state, ended.error_kind, ended.attempt) == (PredictionState.FAILED, predictions.LOST, 3)
        assert (await built.account()).posted == 1_000_000
        assert (await built.run("echo")).state is PredictionState.SUCCEEDED


async def test_an_idle_worker_is_let_go_and_the_next_order_starts_another(tmp_path: Path) -> None:
    async with road(tmp_path, Options(driver=ProcessDriver(), idle_seconds=0)) as built:
        assert (await built.run()).stations.cold_start > 0
        await _until(lambda: built.supervisor.snapshot()["echo"] == {"busy": 0, "idle": 0})
        assert (await built.run(extras={"n": 2})).stations.cold_start > 0


async def _until(condition: object) -> None:
    assert callable(condition)
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the supervisor's sweep has no event to wait for
            await asyncio.sleep(0.02)


async def test_events_tell_the_story_in_order(open_road: Road) -> None:
    prediction = await open_road.pipeline.submit(open_road.order(extras={"steps": 3}))
    states = [
        event.prediction.state
        async for event in open_road.pipeline.events(prediction)
        if isinstance(event, StateChanged)
    ]
    assert states[-1] is PredictionState.SUCCEEDED
    assert states == sorted(states, key=[*PredictionState].index)


async def test_equal_orders_of_an_account_name_the_same_origin(open_road: Road) -> None:
    first, second = await open_road.run(), await open_road.run()
    other = await open_road.run(inputs={"prompt": "x", "seed": 2})
    assert second.id != first.id
    assert second.origin_id == first.origin_id == first.id
    assert other.origin_id == other.id


async def test_waiting_ends_when_the_server_drains_and_the_work_stays_queued(tmp_path: Path) -> None:
    async with road(tmp_path, Options(start=False)) as built:
        prediction = await built.pipeline.submit(built.order())
        waiting = asyncio.create_task(built.pipeline.wait(prediction, 60))
        await asyncio.sleep(0)
        built.pipeline.drain()
        assert (await waiting).state is PredictionState.QUEUED
        with pytest.raises(errors.ShuttingDown):
            await built.pipeline.submit(built.order())
    async with road(tmp_path) as again:
        assert (await again.pipeline.wait(prediction, 60)).state is PredictionState.SUCCEEDED


async def test_what_waits_too_long_expires_and_is_free(tmp_path: Path) -> None:
    now = [1_000_000_000]
    async with road(tmp_path, Options(start=False, clock=lambda: now[0])) as built:
        prediction = await built.pipeline.submit(built.order())
        now[0] += 3600 * 1_000_000
        (ended,) = await built.database.write(predictions.expire(now[0] - 1))
        assert (ended.id, ended.state) == (prediction.id, PredictionState.EXPIRED)
        assert (await built.account()).held == 0


async def test_a_result_that_cannot_be_stored_fails_and_is_free(tmp_path: Path) -> None:
    async with road(tmp_path) as built:
        backends.break_blobs(tmp_path)
        ended = await built.run(extras={"bytes": [10]})
        assert (ended.state, ended.error_kind) == (PredictionState.FAILED, "storage")
        assert (await built.account()).posted == 1_000_000
        assert list((tmp_path / "scratch").rglob("*.*")) == []


async def test_an_uncharged_order_moves_no_money(open_road: Road) -> None:
    prediction = await open_road.pipeline.submit(replace(open_road.order(), charged=False))
    ended = await open_road.pipeline.wait(prediction, 60)
    assert (ended.state, ended.cost) == (PredictionState.SUCCEEDED, 0)
    assert (await open_road.account()).posted == 1_000_000
    assert await open_road.faults() == ()


def test_bytes_of_an_unknown_kind_carry_no_manifest() -> None:
    assert embed.extract(b"\0" * 1000) is None


async def test_an_input_that_turns_out_to_be_useless_fails_as_the_callers_fault_and_is_free(
    open_road: Road,
) -> None:
    ended = await open_road.run(extras={"raise": "unusable"})
    assert (ended.state, ended.error_kind) == (PredictionState.FAILED, predictions.UNUSABLE)
    assert ended.error == "The image is truncated."
    assert (await open_road.account()).posted == 1_000_000


async def test_a_model_that_crashes_its_worker_does_not_hold_up_its_neighbours(tmp_path: Path) -> None:
    options = Options(driver=ProcessDriver(failpoints={"echo": "crash"}), slots=2)
    async with road(tmp_path, options) as built:
        orders = [built.order("echo", extras={"n": number}) for number in range(5)]
        waiting = [await built.pipeline.submit(order) for order in orders]
        for one in waiting:
            ended = await built.pipeline.wait(one, 60)
            assert (ended.state, ended.error_kind) == (PredictionState.FAILED, predictions.LOST)
        assert (await built.account()).held == 0
