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
    async with running_pipeline(tmp_path) as result:
        yield result


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
    submitted = await pipeline.service.submit(pipeline.request(extras={"n": 1}))
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
            pipeline.service.bus.publish(prediction.id, StateChanged(ended))

        monkeypatch.setattr(pipeline.service, "on_accepted", end_elsewhere)
        submitted = await pipeline.service.submit(pipeline.request())
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
            await poor.service.submit(poor.request())
        listed, _ = await poor.service.page(Tenant(poor.payer.id), PredictionFilter(), 10, None)
        assert listed == ()


async def test_balance_for_five_requests_accepts_exactly_five(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options(credit=PRICE * 5)) as pipeline:
        submissions = [pipeline.service.submit(pipeline.request(extras={"n": n})) for n in range(40)]
        results = await asyncio.gather(*submissions, return_exceptions=True)
        accepted = [result for result in results if isinstance(result, Prediction)]
        assert len(accepted) == 5
        assert all(
            isinstance(result, errors.InsufficientCredits) for result in results if result not in accepted
        )
        ended = [await pipeline.service.wait(prediction, 60) for prediction in accepted]
        assert {prediction.state for prediction in ended} == {PredictionState.SUCCEEDED}
        account = await pipeline.account()
        assert (account.posted, account.held) == (0, 0)


async def test_full_queue_is_refused_with_a_retry_time(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options(start=False, queue_limit=3)) as pipeline:
        for number in range(3):
            await pipeline.service.submit(pipeline.request(extras={"n": number}))
        with pytest.raises(errors.QueueFull) as excinfo:
            await pipeline.service.submit(pipeline.request())
        assert excinfo.value.retry_after >= 1
        assert (await pipeline.account()).held == 3 * PRICE


async def test_queue_share_of_an_account_limits_only_free_requests(tmp_path: Path) -> None:
    async with running_pipeline(
        tmp_path, Options(start=False, queue_limit=6, free_queue_limit=2)
    ) as pipeline:
        free = pipeline.request(hold=FREE)
        first, _ = [await pipeline.service.submit(free) for _ in range(2)]
        with pytest.raises(errors.QueueFull, match="at most 2 unfinished free requests"):
            await pipeline.service.submit(free)
        # A request with a price.
        await pipeline.service.submit(pipeline.request())
        other = await pipeline.database.write(accounts.create("other@example.com"))
        await pipeline.service.submit(replace(free, principal=other.owner))
        operator = replace(pipeline.payer.owner, kind="operator")
        await pipeline.service.submit(replace(free, principal=operator))
        await pipeline.service.cancel(first.id, Tenant(pipeline.payer.id))
        # The operator's request counts for its own account.
        with pytest.raises(errors.QueueFull):
            await pipeline.service.submit(free)


async def test_stored_bytes_of_free_runs_are_limited(either: Path) -> None:
    async with running_pipeline(either, Options(free_bytes=1)) as pipeline:
        free = pipeline.request(hold=FREE, extras={"bytes": [1000]})
        replayed = replace(free, idempotency_id="once")
        first = await pipeline.service.wait(await pipeline.service.submit(replayed), 60)
        assert first.state is PredictionState.SUCCEEDED
        with pytest.raises(errors.TooLarge, match="outputs of this account's free runs use"):
            await pipeline.service.submit(free)
        assert (await pipeline.service.submit(replayed)).id == first.id
        # A request with a price, one of another account, and one of the operator.
        await pipeline.service.submit(pipeline.request())
        other = await pipeline.database.write(accounts.create("other@example.com"))
        await pipeline.service.submit(replace(free, principal=other.owner))
        operator = replace(free, principal=replace(pipeline.payer.owner, kind="operator"))
        second = await pipeline.service.wait(await pipeline.service.submit(operator), 60)
        await pipeline.database.write(deletion.delete_all([first.id, second.id]))
        assert (await pipeline.service.submit(free)).id


async def test_large_inputs_of_unsuccessful_runs_are_limited(either: Path) -> None:
    async with running_pipeline(either, Options(free_bytes=250_000, start=False)) as pipeline:
        large = pipeline.request(extras={"text": "ö" * 50_000})
        repeated = replace(large, idempotency_id="once")
        accepted = await pipeline.service.submit(repeated)
        ids = [(await pipeline.service.submit(large)).id for _ in range(3)]
        for prediction_id in ids:
            await pipeline.service.cancel(prediction_id, Tenant(pipeline.payer.id))
        for hold in (None, FREE):
            with pytest.raises(errors.TooLarge, match="free and unsuccessful runs use"):
                await pipeline.service.submit(replace(large, hold=hold))
        # A repeated request, a small one, one of another account, and one of the operator.
        assert (await pipeline.service.submit(repeated)).id == accepted.id
        await pipeline.service.submit(pipeline.request())
        other = await pipeline.database.write(accounts.create("other@example.com", credit=1_000_000))
        await pipeline.service.submit(replace(large, principal=other.owner))
        await pipeline.service.submit(
            replace(large, principal=replace(pipeline.payer.owner, kind="operator"))
        )
        await pipeline.database.write(deletion.delete_all(ids[:1]))
        assert (await pipeline.service.submit(large)).id


async def test_concurrent_same_idempotency_id_is_one_prediction(pipeline: PipelineFixture) -> None:
    request = pipeline.request(idempotency_id="once")
    result = await asyncio.gather(*(pipeline.service.submit(request) for _ in range(25)))
    assert len({prediction.id for prediction in result}) == 1
    await pipeline.service.wait(result[0], 60)
    assert (await pipeline.account()).posted == 1_000_000 - PRICE


async def test_queued_prediction_is_canceled_immediately(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options(start=False)) as pipeline:
        prediction = await pipeline.service.submit(pipeline.request())
        canceled = await pipeline.service.cancel(prediction.id, Tenant(pipeline.payer.id))
        assert canceled.state is PredictionState.CANCELED
        assert (await pipeline.account()).held == 0


@pytest.mark.parametrize("stubborn", [False, True])
async def test_running_prediction_is_canceled_despite_its_engine(tmp_path: Path, stubborn: bool) -> None:
    async with running_pipeline(tmp_path, Options(driver=ProcessDriver())) as pipeline:
        prediction = await pipeline.service.submit(pipeline.request("slow", extras={"stubborn": stubborn}))
        await _until_progress(pipeline, prediction)
        await pipeline.service.cancel(prediction.id, Tenant(pipeline.payer.id))
        ended = await pipeline.service.wait(prediction, 60)
        assert ended.state is PredictionState.CANCELED
        account = await pipeline.account()
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
    slow = pipeline.request("slow", sources={"image": source}, extras={"seconds": 3600})
    prediction = await pipeline.service.submit(slow)
    await request.wait()
    await pipeline.service.cancel(prediction.id, Tenant(pipeline.payer.id))
    go.set()
    assert (await pipeline.service.wait(prediction, 60)).state is PredictionState.CANCELED


async def _until_progress(pipeline: PipelineFixture, prediction: Prediction) -> None:
    async for event in pipeline.service.events(prediction):
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
    async with running_pipeline(tmp_path, options) as pipeline:
        ended = await pipeline.run("slow")
        assert ended.state is PredictionState.FAILED
        assert ended.error == "The run took longer than 0.3 seconds"
        assert (await pipeline.run("echo")).state is PredictionState.SUCCEEDED
        assert (await pipeline.account()).posted == 1_000_000 - PRICE


async def test_engine_killing_its_worker_fails_free_after_3_tries(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options(driver=ProcessDriver())) as pipeline:
        ended = await pipeline.run("crash", extras={"signal": 9})
        assert (ended.state, ended.error_kind, ended.attempt) == (PredictionState.FAILED, predictions.LOST, 3)
        assert (await pipeline.account()).posted == 1_000_000
        assert (await pipeline.run("echo")).state is PredictionState.SUCCEEDED


async def test_idle_worker_stops_and_next_request_starts_another(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path, Options(driver=ProcessDriver(), idle_seconds=0)) as pipeline:
        assert (await pipeline.run()).durations.cold_start > 0
        await _until(lambda: pipeline.scheduler.snapshot()["echo"] == {"busy": 0, "idle": 0})
        assert (await pipeline.run(extras={"n": 2})).durations.cold_start > 0


async def _until(condition: object) -> None:
    assert callable(condition)
    await wait_until(condition)


async def test_events_are_sent_in_order(pipeline: PipelineFixture) -> None:
    prediction = await pipeline.service.submit(pipeline.request(extras={"steps": 3}))
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
    async with running_pipeline(tmp_path, Options(start=False)) as pipeline:
        prediction = await pipeline.service.submit(pipeline.request())
        waiting = asyncio.create_task(pipeline.service.wait(prediction, 60))
        await asyncio.sleep(0)
        pipeline.service.drain()
        assert (await waiting).state is PredictionState.QUEUED
        with pytest.raises(errors.ShuttingDown):
            await pipeline.service.submit(pipeline.request())
    async with running_pipeline(tmp_path) as again:
        assert (await again.service.wait(prediction, 60)).state is PredictionState.SUCCEEDED


async def test_prediction_expires_free_after_the_queue_limit(tmp_path: Path) -> None:
    now = [1_000_000_000]
    async with running_pipeline(tmp_path, Options(start=False, clock=lambda: now[0])) as pipeline:
        prediction = await pipeline.service.submit(pipeline.request())
        now[0] += 3600 * 1_000_000
        (ended,) = await pipeline.database.write(predictions.expire(now[0] - 1))
        assert (ended.id, ended.state) == (prediction.id, PredictionState.EXPIRED)
        assert (await pipeline.account()).held == 0


async def test_a_result_that_cannot_be_stored_fails_and_is_free(tmp_path: Path) -> None:
    async with running_pipeline(tmp_path) as pipeline:
        backends.break_blobs(tmp_path)
        ended = await pipeline.run(extras={"bytes": [10]})
        assert (ended.state, ended.error_kind) == (PredictionState.FAILED, "storage")
        assert (await pipeline.account()).posted == 1_000_000
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
    prediction = await pipeline.service.submit(replace(pipeline.request(), charged=False))
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
    async with running_pipeline(tmp_path, options) as pipeline:
        submissions = [pipeline.request("echo", extras={"n": number}) for number in range(5)]
        waiting = [await pipeline.service.submit(request) for request in submissions]
        for prediction in waiting:
            ended = await pipeline.service.wait(prediction, 60)
            assert (ended.state, ended.error_kind) == (PredictionState.FAILED, predictions.LOST)
        assert (await pipeline.account()).held == 0
