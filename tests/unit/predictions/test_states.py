"""The state machine: a transition that the table lacks is rejected and changes nothing."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Transaction
from sixfold.core.media.outputs import Output
from sixfold.core.predictions import claims, models, refunds
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.models import Prediction
from sixfold.core.predictions.repository import FailureRecord, RunLease, StaleAttempt, SuccessRecord, Trace
from sixfold.core.predictions.states import (
    TERMINAL,
    TRANSITIONS,
    IllegalTransition,
    PredictionEvent,
    PredictionState,
    follow,
)
from sixfold.store import sql
from tests.harness.pipeline import Options, PipelineFixture, running_pipeline

LEASE = RunLease("boot_test", 30_000_000)
SUCCESS = SuccessRecord(Output(), "full", "1", Trace())

STEPS: dict[PredictionEvent, Callable[[Prediction], Transaction[object]]] = {
    PredictionEvent.CLAIM: lambda p: claims.claim(p.engine, LEASE, 1, warm=False),
    PredictionEvent.CLAIM_WARM: lambda p: claims.claim(p.engine, LEASE, 1, warm=True),
    PredictionEvent.READY: lambda p: predictions.ready(p.id, p.attempt),
    PredictionEvent.SUCCEED: lambda p: predictions.succeed(p.id, p.attempt, SUCCESS),
    PredictionEvent.FAIL: lambda p: predictions.fail(p.id, p.attempt, FailureRecord("no", "engine")),
    PredictionEvent.LOSE: lambda p: predictions.lose(p.id, p.attempt, 3, "test"),
    PredictionEvent.PUT_BACK: lambda p: predictions.put_back(p.id, p.attempt, LEASE.holder),
    PredictionEvent.CANCEL: lambda p: predictions.cancel(p.id, Tenant.of(p)),
    PredictionEvent.STOP: lambda p: predictions.stop(p.id, p.attempt, Trace()),
    PredictionEvent.EXPIRE: lambda p: predictions.expire(2**62),
    PredictionEvent.REFUND: lambda p: refunds.refund(p.id, "test"),
}
EVENTS_TO: dict[PredictionState, tuple[PredictionEvent, ...]] = {
    PredictionState.QUEUED: (),
    PredictionState.STARTING: (PredictionEvent.CLAIM,),
    PredictionState.RUNNING: (PredictionEvent.CLAIM_WARM,),
    PredictionState.CANCELING: (PredictionEvent.CLAIM_WARM, PredictionEvent.CANCEL),
    PredictionState.SUCCEEDED: (PredictionEvent.CLAIM_WARM, PredictionEvent.SUCCEED),
    PredictionState.FAILED: (PredictionEvent.CLAIM_WARM, PredictionEvent.FAIL),
    PredictionState.CANCELED: (PredictionEvent.CANCEL,),
    PredictionState.EXPIRED: (PredictionEvent.EXPIRE,),
}


@pytest.fixture
async def still(tmp_path: Path) -> AsyncIterator[PipelineFixture]:
    async with running_pipeline(tmp_path, Options(start=False)) as pipeline:
        yield pipeline


async def _step(pipeline: PipelineFixture, prediction: Prediction, event: PredictionEvent) -> None:
    await pipeline.database.write(STEPS[event](prediction))


async def _now(pipeline: PipelineFixture, prediction: Prediction) -> Prediction:
    return await pipeline.database.read(predictions.get(prediction.id, Tenant.of(prediction)))


async def _bring_to(pipeline: PipelineFixture, state: PredictionState) -> Prediction:
    prediction = await pipeline.service.submit(pipeline.request())
    for event in EVENTS_TO[state]:
        await _step(pipeline, prediction, event)
        prediction = await _now(pipeline, prediction)
    assert prediction.state is state
    return prediction


@pytest.mark.parametrize(("state", "event"), list(itertools.product(PredictionState, PredictionEvent)))
async def test_prediction_event_follows_the_state_table(
    still: PipelineFixture, state: PredictionState, event: PredictionEvent
) -> None:
    prediction = await _bring_to(still, state)
    try:
        await _step(still, prediction, event)
    except (StaleAttempt, IllegalTransition):
        assert (state, event) not in TRANSITIONS
    after = await _now(still, prediction)
    assert after.state is TRANSITIONS.get((state, event), state)
    assert await still.faults() == ()
    account = await still.account()
    assert account.held == (0 if after.is_terminal else after.price)
    assert account.posted == 1_000_000 - (after.price if after.state is PredictionState.SUCCEEDED else 0)


async def test_a_transaction_does_not_encode_a_large_output(
    still: PipelineFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    prediction = await _bring_to(still, PredictionState.RUNNING)
    output = Output(data={"vectors": [[0.5] * 300] * 100})
    success = msgspec.structs.replace(SUCCESS, output=output, document=output.encode())
    calls: list[str] = []
    monkeypatch.setattr(Output, "encode", lambda _output: calls.append("encoded"))
    decode = models.decode_output
    monkeypatch.setattr(models, "decode_output", calls.append)
    ended = await still.database.write(predictions.succeed(prediction.id, prediction.attempt, success))
    monkeypatch.setattr(models, "decode_output", decode)
    assert (ended.output is output, calls) == (True, [])
    assert (await _now(still, prediction)).output == output


def test_data_is_large_by_its_values_and_texts() -> None:
    large = [[0.5] * 20_000, [[0.5] * 300] * 100, "x" * 300_000, {"a": {"b": ["x" * 1_000] * 300}}]
    small = [[0.5] * 5_000, "x" * 100_000, {"a": 1}, None, 1.5, []]
    assert [Output(data={"a": value}).is_large for value in large] == [True] * 4
    assert [Output(others={"a": value}).is_large for value in small] == [False] * 6


def test_terminal_states_accept_only_a_refund() -> None:
    assert follow(PredictionState.SUCCEEDED, PredictionEvent.REFUND) is PredictionState.FAILED
    for state, event in set(itertools.product(TERMINAL, PredictionEvent)) - {
        (PredictionState.SUCCEEDED, PredictionEvent.REFUND)
    }:
        with pytest.raises(IllegalTransition):
            follow(state, event)


async def test_a_stale_attempt_writes_nothing(still: PipelineFixture) -> None:
    first = await _bring_to(still, PredictionState.RUNNING)
    await _step(still, first, PredictionEvent.LOSE)
    second = await _now(still, first)
    await _step(still, second, PredictionEvent.CLAIM_WARM)
    second = await _now(still, first)
    assert second.attempt == first.attempt + 1
    for event in (
        PredictionEvent.SUCCEED,
        PredictionEvent.FAIL,
        PredictionEvent.STOP,
        PredictionEvent.LOSE,
        PredictionEvent.READY,
    ):
        with pytest.raises(StaleAttempt):
            await _step(still, first, event)
    assert await _now(still, first) == second
    await _step(still, second, PredictionEvent.SUCCEED)
    assert (await still.account()).posted == 1_000_000 - second.price


async def test_ready_worker_learns_of_a_canceled_run(still: PipelineFixture) -> None:
    prediction = await _bring_to(still, PredictionState.CANCELING)
    row = await still.database.write(predictions.ready(prediction.id, prediction.attempt))
    assert row == prediction


async def test_prediction_lost_three_times_fails_and_is_free(still: PipelineFixture) -> None:
    prediction = await still.service.submit(still.request())
    for _ in range(3):
        await _step(still, prediction, PredictionEvent.CLAIM)
        prediction = await _now(still, prediction)
        await _step(still, prediction, PredictionEvent.LOSE)
        prediction = await _now(still, prediction)
    assert (prediction.state, prediction.error_kind) == (PredictionState.FAILED, predictions.LOST)
    account = await still.account()
    assert (account.posted, account.held) == (1_000_000, 0)


async def test_expired_lease_is_reclaimed_and_active_one_is_not(tmp_path: Path) -> None:
    now = [1_000_000_000]
    async with running_pipeline(tmp_path, Options(start=False, clock=lambda: now[0])) as still:
        prediction = await _bring_to(still, PredictionState.RUNNING)
        now[0] += LEASE.life_us - 1
        assert await still.database.write(predictions.lapse(3)) == ()
        assert await still.database.write(predictions.heartbeat(LEASE, [prediction.id])) == 1
        now[0] += LEASE.life_us
        assert await still.database.write(predictions.lapse(3)) == (), "its last moment is its holder's"
        now[0] += 1
        (backend,) = await still.database.write(predictions.lapse(3))
        assert (backend.id, backend.state) == (prediction.id, PredictionState.QUEUED)


async def test_claim_with_an_unknown_result_lapses(tmp_path: Path) -> None:
    """The server does not run the prediction, because the result of its claim was lost."""
    now = [1_000_000_000]
    async with running_pipeline(tmp_path, Options(start=False, clock=lambda: now[0])) as still:
        prediction, unknown = [await still.service.submit(still.request(extras={"n": n})) for n in range(2)]
        await still.database.write(claims.claim("echo", LEASE, 2, warm=True))
        now[0] += LEASE.life_us
        assert await still.database.write(predictions.heartbeat(LEASE, [prediction.id])) == 1
        now[0] += 1
        (lapsed,) = await still.database.write(predictions.lapse(3))
        assert (lapsed.id, lapsed.state) == (unknown.id, PredictionState.QUEUED)


async def test_repeated_return_of_a_claim_keeps_the_next_claim(still: PipelineFixture) -> None:
    """A commit whose result is unknown is repeated, while another server may have claimed the prediction."""
    prediction = await _bring_to(still, PredictionState.RUNNING)
    await still.database.write(predictions.put_back(prediction.id, prediction.attempt, LEASE.holder))
    (claimed,) = await still.database.write(claims.claim("echo", RunLease("boot_2", 1), 1, warm=True))
    assert claimed.attempt == prediction.attempt
    with pytest.raises(StaleAttempt):
        await still.database.write(predictions.put_back(prediction.id, prediction.attempt, LEASE.holder))


async def test_claims_are_handed_out_oldest_first_and_once(still: PipelineFixture) -> None:
    results = [await still.service.submit(still.request(extras={"n": n})) for n in range(6)]
    first = await still.database.write(claims.claim("echo", LEASE, 4, warm=True))
    second = await still.database.write(claims.claim("echo", LEASE, 4, warm=True))
    assert [p.id for p in (*first, *second)] == [p.id for p in results]


def test_every_named_query_is_used() -> None:
    text = "".join(path.read_text() for path in Path("src/sixfold").rglob("*.py"))
    composed = [
        re.sub(r"\{[^}]*\}", r"\\w+", result)
        for result in re.findall(r'f"([a-z_{}]*_of_{[a-z]+}|{[a-z]+}_counted|edges_{[a-z]+})"', text)
    ]
    known = [name for name in sql.queries("sqlite") if f'"{name}"' not in text]
    unused = [name for name in known if not any(re.fullmatch(result, name) for result in composed)]
    assert unused == []


async def test_shown_partial_images_are_paid_after_a_lost_worker(still: PipelineFixture) -> None:
    request = msgspec.structs.replace(still.request(), extras={"partial_images": 1})
    first = await still.service.submit(request)
    await _step(still, first, PredictionEvent.CLAIM_WARM)
    await _step(still, await _now(still, first), PredictionEvent.LOSE)
    await _step(still, first, PredictionEvent.CANCEL)
    assert (await _now(still, first)).state is PredictionState.QUEUED
    await _step(still, first, PredictionEvent.CLAIM)
    await _step(still, first, PredictionEvent.CANCEL)
    assert (await _now(still, first)).state is PredictionState.STARTING
    # One that no worker has run has shown nothing.
    second = await still.service.submit(request)
    await _step(still, second, PredictionEvent.CANCEL)
    assert (await _now(still, second)).state is PredictionState.CANCELED
