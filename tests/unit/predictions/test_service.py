"""Predictions from request to end, with real collaborators."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from sixfold import errors
from sixfold.core.accounts import accounts
from sixfold.core.accounts.prices import FREE
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.events import ProgressEvent, StateChanged
from sixfold.core.predictions.history import deletion
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.queries import PredictionFilter
from sixfold.core.predictions.states import PredictionState
from sixfold.core.provenance import embed
from sixfold.drivers.process import ProcessDriver
from sixfold.web.predictions import refunded_on_failure
from tests.harness import backends
from tests.harness.pipeline import PRICE, Options, PipelineFixture, running_pipeline
from tests.harness.waiting import wait_until


@pytest.fixture
async def pipeline(tmp_path: Path) -> AsyncIterator[PipelineFixture]:
    async with running_pipeline(tmp_path) as built:
        yield built


async def test_prediction_is_held_run_stored_and_captured_once(pipeline: PipelineFixture) -> None:
    prediction = await pipeline.run(extras={"bytes": [1000, 20]})
    assert prediction.state is PredictionState.SUCCEEDED
    assert prediction.cost == PRICE
    assert prediction.output is not None
    assert [file.size for file in prediction.output.files] == [1000, 20]
    blob = await pipeline.blobs.get(prediction.output.files[0].blob)
    assert blob == b"\0" * 1000
    account = await pipeline.account()
    assert (account.posted, account.held) == (1_000_000 - PRICE, 0)
    assert await pipeline.faults() == ()


async def test_wait_right_after_submit_does_not_read(
    pipeline: PipelineFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    read = pipeline.service.get_any

    async def count(prediction_id: str) -> Prediction:
        reads.append(prediction_id)
        return await read(prediction_id)

    monkeypatch.setattr(pipeline.service, "get_any", count)
    ended = await pipeline.run()
    assert (ended.state, reads) == (PredictionState.SUCCEEDED, [])
    submitted = await pipeline.service.submit(pipeline.order(extras={"n": 1}))
    await asyncio.sleep(0)
    # An event may have passed since the submission, so the state is read.
    assert (await pipeline.service.wait(submitted, 60)).is_terminal
    assert reads == [submitted.id]


async def test_wait_sees_an_end_between_the_acceptance_and_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_pipeline(tmp_path, Options(start=False)) as pipeline:

        def end_elsewhere(prediction: Prediction) -> None:
            ended = replace(prediction, state=PredictionState.SUCCEEDED)
            pipeline.service._bus.publish(prediction.id, StateChanged(ended))

        monkeypatch.setattr(pipeline.service, "on_accepted", end_elsewhere)
        submitted = await pipeline.service.submit(pipeline.order())
        assert not submitted.is_terminal
        assert (await pipeline.service.wait(submitted, 5)).is_terminal


async def test_failed_engine_is_free_with_only_the_public_message(pipeline: PipelineFixture) -> None:
    response = await pipeline.run(extras={"raise": "public"})
    remaining = await pipeline.run(extras={"raise": "private"})
    assert (response.state, response.error) == (PredictionState.FAILED, "No face was found in the image.")
    assert remaining.state is PredictionState.FAILED
    assert "secret" not in str(remaining)
    account = await pipeline.account()
    assert (account.posted, account.held) == (1_000_000, 0)


async def test_request_beyond_the_balance_is_refused_unchanged(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options(credit=PRICE - 1)) as poor:
        with pytest.raises(errors.InsufficientCredits):
            await poor.service.submit(poor.order())
        listed, _ = await poor.service.page(Tenant(poor.payer.id), PredictionFilter(), 10, None)
        assert listed == ()


async def test_balance_for_five_requests_accepts_exactly_five(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options(credit=PRICE * 5)) as built:
        orders = [built.service.submit(built.order(extras={"n": n})) for n in range(40)]
        results = await asyncio.gather(*orders, return_exceptions=True)
        accepted = [result for result in results if isinstance(result, Prediction)]
        assert len(accepted) == 5
        assert all(
            isinstance(result, errors.InsufficientCredits) for result in results if result not in accepted
        )
        ended = [await built.service.wait(prediction, 60) for prediction in accepted]
        assert {prediction.state for prediction in ended} == {PredictionState.SUCCEEDED}
        account = await built.account()
        assert (account.posted, account.held) == (0, 0)


async def test_full_queue_is_refused_with_a_retry_time(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options(start=False, queue_limit=3)) as built:
        for number in range(3):
            await built.service.submit(built.order(extras={"n": number}))
        with pytest.raises(errors.QueueFull) as excinfo:
            await built.service.submit(built.order())
        assert excinfo.value.retry_after >= 1
        assert (await built.account()).held == 3 * PRICE


async def test_queue_share_of_an_account_limits_only_free_requests(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options(start=False, queue_limit=6, free_queue_limit=2)) as built:
        free = built.order(hold=FREE)
        first, _ = [await built.service.submit(free) for _ in range(2)]
        with pytest.raises(errors.QueueFull, match="at most 2 unfinished free requests"):
            await built.service.submit(free)
        # A request with a price.
        await built.service.submit(built.order())
        other = await built.database.write(accounts.create("other@example.com"))
        await built.service.submit(replace(free, principal=other.owner))
        operator = replace(built.payer.owner, kind="operator")
        await built.service.submit(replace(free, principal=operator))
        await built.service.cancel(first.id, Tenant(built.payer.id))
        # The operator's request counts for its own account.
        with pytest.raises(errors.QueueFull):
            await built.service.submit(free)


async def test_stored_bytes_of_free_runs_are_limited(either: Path) -> None:
    async with running_pipeline(either, Options(free_bytes=1)) as built:
        free = built.order(hold=FREE, extras={"bytes": [1000]})
        replayed = replace(free, idempotency_id="once")
        first = await built.service.wait(await built.service.submit(replayed), 60)
        assert first.state is PredictionState.SUCCEEDED
        with pytest.raises(errors.TooLarge, match="outputs of this account's free runs use"):
            await built.service.submit(free)
        assert (await built.service.submit(replayed)).id == first.id
        # A request with a price, one of another account, and one of the operator.
        await built.service.submit(built.order())
        other = await built.database.write(accounts.create("other@example.com"))
        await built.service.submit(replace(free, principal=other.owner))
        operator = replace(free, principal=replace(built.payer.owner, kind="operator"))
        second = await built.service.wait(await built.service.submit(operator), 60)
        await built.database.write(deletion.delete_all([first.id, second.id]))
        assert (await built.service.submit(free)).id


async def test_concurrent_same_idempotency_id_is_one_prediction(pipeline: PipelineFixture) -> None:
    order = pipeline.order(idempotency_id="once")
    result = await asyncio.gather(*(pipeline.service.submit(order) for _ in range(25)))
    assert len({prediction.id for prediction in result}) == 1
    await pipeline.service.wait(result[0], 60)
    assert (await pipeline.account()).posted == 1_000_000 - PRICE


async def test_queued_prediction_is_canceled_immediately(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options(start=False)) as built:
        prediction = await built.service.submit(built.order())
        canceled = await built.service.cancel(prediction.id, Tenant(built.payer.id))
        assert canceled.state is PredictionState.CANCELED
        assert (await built.account()).held == 0


@pytest.mark.parametrize("stubborn", [False, True])
async def test_running_prediction_is_canceled_despite_its_engine(tmp_path: Path, stubborn: bool) -> None:
    async with running_pipeline(tmp_path, Options(driver=ProcessDriver())) as built:
        prediction = await built.service.submit(built.order("slow", extras={"stubborn": stubborn}))
        await _until_progress(built, prediction)
        await built.service.cancel(prediction.id, Tenant(built.payer.id))
        ended = await built.service.wait(prediction, 60)
        assert ended.state is PredictionState.CANCELED
        account = await built.account()
        assert (account.posted, account.held) == (1_000_000, 0)


async def test_cancellation_applies_while_inputs_are_fetched(pipeline: PipelineFixture) -> None:
    request, go = asyncio.Event(), asyncio.Event()
    fetch = pipeline.blobs.local_path

    async def late(key: str) -> Path:
        request.set()
        await go.wait()
        return await fetch(key)

    pipeline.blobs.local_path = late
    source = await pipeline.media.store_unnamed(b"bytes", "image/png")
    order = pipeline.order("slow", sources={"image": source}, extras={"seconds": 3600})
    prediction = await pipeline.service.submit(order)
    await request.wait()
    await pipeline.service.cancel(prediction.id, Tenant(pipeline.payer.id))
    go.set()
    assert (await pipeline.service.wait(prediction, 60)).state is PredictionState.CANCELED


async def _until_progress(built: PipelineFixture, prediction: Prediction) -> None:
    async for event in built.service.events(prediction):
        if isinstance(event, ProgressEvent):
            return


async def test_another_accounts_prediction_cannot_be_seen_or_canceled(pipeline: PipelineFixture) -> None:
    prediction = await pipeline.run()
    with pytest.raises(errors.NotFound):
        await pipeline.service.get(prediction.id, Tenant("acct_other"))
    with pytest.raises(errors.NotFound):
        await pipeline.service.cancel(prediction.id, Tenant("acct_other"))


async def test_run_above_its_time_limit_fails_and_is_free(tmp_path: Path) -> None:
    options = Options(driver=ProcessDriver(), run_limit_seconds=0.3)
    async with running_pipeline(tmp_path, options) as built:
        ended = await built.run("slow")
        assert ended.state is PredictionState.FAILED
        assert ended.error == "The run took longer than 0.3 seconds"
        assert (await built.run("echo")).state is PredictionState.SUCCEEDED
        assert (await built.account()).posted == 1_000_000 - PRICE


async def test_engine_killing_its_worker_fails_free_after_3_tries(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options(driver=ProcessDriver())) as built:
        ended = await built.run("crash", extras={"signal": 9})
        assert (ended.state, ended.error_kind, ended.attempt) == (PredictionState.FAILED, predictions.LOST, 3)
        assert (await built.account()).posted == 1_000_000
        assert (await built.run("echo")).state is PredictionState.SUCCEEDED


async def test_idle_worker_stops_and_next_request_starts_another(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options(driver=ProcessDriver(), idle_seconds=0)) as built:
        assert (await built.run()).durations.cold_start > 0
        await _until(lambda: built.scheduler.snapshot()["echo"] == {"busy": 0, "idle": 0})
        assert (await built.run(extras={"n": 2})).durations.cold_start > 0


async def _until(condition: object) -> None:
    assert callable(condition)
    await wait_until(condition)


async def test_events_are_sent_in_order(pipeline: PipelineFixture) -> None:
    prediction = await pipeline.service.submit(pipeline.order(extras={"steps": 3}))
    states = [
        event.prediction.state
        async for event in pipeline.service.events(prediction)
        if isinstance(event, StateChanged)
    ]
    assert states[-1] is PredictionState.SUCCEEDED
    assert states == sorted(states, key=[*PredictionState].index)


async def test_equal_requests_of_an_account_have_the_same_origin(pipeline: PipelineFixture) -> None:
    first, second = await pipeline.run(), await pipeline.run()
    other = await pipeline.run(inputs={"prompt": "x", "seed": 2})
    assert second.id != first.id
    assert second.origin_id == first.origin_id == first.id
    assert other.origin_id == other.id


async def test_drain_ends_waiting_and_keeps_work_queued(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options(start=False)) as built:
        prediction = await built.service.submit(built.order())
        waiting = asyncio.create_task(built.service.wait(prediction, 60))
        await asyncio.sleep(0)
        built.service.drain()
        assert (await waiting).state is PredictionState.QUEUED
        with pytest.raises(errors.ShuttingDown):
            await built.service.submit(built.order())
    async with running_pipeline(tmp_path) as again:
        assert (await again.service.wait(prediction, 60)).state is PredictionState.SUCCEEDED


async def test_prediction_expires_free_after_the_queue_limit(tmp_path: Path) -> None:
    now = [1_000_000_000]
    async with running_pipeline(tmp_path, Options(start=False, clock=lambda: now[0])) as built:
        prediction = await built.service.submit(built.order())
        now[0] += 3600 * 1_000_000
        (ended,) = await built.database.write(predictions.expire(now[0] - 1))
        assert (ended.id, ended.state) == (prediction.id, PredictionState.EXPIRED)
        assert (await built.account()).held == 0


async def test_a_result_that_cannot_be_stored_fails_and_is_free(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path) as built:
        backends.break_blobs(tmp_path)
        ended = await built.run(extras={"bytes": [10]})
        assert (ended.state, ended.error_kind) == (PredictionState.FAILED, "storage")
        assert (await built.account()).posted == 1_000_000
        assert list((tmp_path / "scratch").rglob("*.*")) == []


@pytest.mark.parametrize(
    ("raised", "kind", "reason"),
    [
        (KeyError("blob"), errors.StoreFailed, "unread"),
        (OSError("no disk"), errors.StoreFailed, "unread"),
        (errors.Conflict("taken"), errors.Conflict, "path taken"),
        (RuntimeError("bug"), RuntimeError, "unread"),
    ],
)
async def test_failed_delivery_refunds_and_withdraws_the_result(
    pipeline: PipelineFixture, raised: Exception, kind: type[Exception], reason: str
) -> None:
    prediction = await pipeline.run()
    with pytest.raises(kind):
        async with refunded_on_failure(pipeline.service, prediction, "unread", conflict="path taken"):
            raise raised
    refunded = await pipeline.service.get_any(prediction.id)
    assert (refunded.state, refunded.output) == (PredictionState.FAILED, None)
    assert refunded.error == f"The result was withdrawn and its price refunded: {reason}"
    account = await pipeline.account()
    assert (account.posted, account.held) == (1_000_000, 0)


async def test_delivered_result_remains_charged(pipeline: PipelineFixture) -> None:
    prediction = await pipeline.run()
    async with refunded_on_failure(pipeline.service, prediction, "unread"):
        pass
    assert (await pipeline.account()).posted == 1_000_000 - PRICE


async def test_uncharged_request_has_no_ledger_entries(pipeline: PipelineFixture) -> None:
    prediction = await pipeline.service.submit(replace(pipeline.order(), charged=False))
    ended = await pipeline.service.wait(prediction, 60)
    assert (ended.state, ended.cost) == (PredictionState.SUCCEEDED, 0)
    assert (await pipeline.account()).posted == 1_000_000
    assert await pipeline.faults() == ()


def test_unknown_bytes_have_no_manifest() -> None:
    assert embed.extract(b"\0" * 1000) is None


async def test_unusable_input_is_a_client_error_and_free(pipeline: PipelineFixture) -> None:
    ended = await pipeline.run(extras={"raise": "unusable"})
    assert (ended.state, ended.error_kind) == (PredictionState.FAILED, predictions.UNUSABLE)
    assert ended.error == "The image is truncated."
    assert (await pipeline.account()).posted == 1_000_000


async def test_crashing_model_does_not_block_other_models(tmp_path: Path) -> None:
    options = Options(driver=ProcessDriver(failpoints={"echo": "crash"}), slots=2)
    async with running_pipeline(tmp_path, options) as built:
        orders = [built.order("echo", extras={"n": number}) for number in range(5)]
        waiting = [await built.service.submit(order) for order in orders]
        for prediction in waiting:
            ended = await built.service.wait(prediction, 60)
            assert (ended.state, ended.error_kind) == (PredictionState.FAILED, predictions.LOST)
        assert (await built.account()).held == 0
