"""The state machine as data: a pair that the table lacks is refused and changes nothing."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Transaction
from sixfold.core.predictions import claims, refunds
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.models import Output, Prediction
from sixfold.core.predictions.repository import Failure, Lease, StaleAttempt, Success, Trace
from sixfold.core.predictions.states import (
    TERMINAL,
    TRANSITIONS,
    Event,
    IllegalTransition,
    State,
    follow,
)
from sixfold.store import sql
from tests.harness.pipeline import Options, Road, road

LEASE = Lease("boot_test", 30_000_000)
SUCCESS = Success(Output(), "full", "1", Trace())

STEPS: dict[Event, Callable[[Prediction], Transaction[object]]] = {
    Event.CLAIM: lambda p: claims.claim(p.engine, LEASE, 1, warm=False),
    Event.CLAIM_WARM: lambda p: claims.claim(p.engine, LEASE, 1, warm=True),
    Event.READY: lambda p: predictions.ready(p.id, p.attempt),
    Event.SUCCEED: lambda p: predictions.succeed(p.id, p.attempt, SUCCESS),
    Event.FAIL: lambda p: predictions.fail(p.id, p.attempt, Failure("no", "engine")),
    Event.LOSE: lambda p: predictions.lose(p.id, p.attempt, 3, "test"),
    Event.PUT_BACK: lambda p: predictions.put_back(p.id, p.attempt),
    Event.CANCEL: lambda p: predictions.cancel(p.id, Tenant.of(p)),
    Event.STOP: lambda p: predictions.stop(p.id, p.attempt, Trace()),
    Event.EXPIRE: lambda p: predictions.expire(2**62),
    Event.REFUND: lambda p: refunds.refund(p.id, "test"),
}
WAYS: dict[State, tuple[Event, ...]] = {
    State.QUEUED: (),
    State.STARTING: (Event.CLAIM,),
    State.RUNNING: (Event.CLAIM_WARM,),
    State.CANCELING: (Event.CLAIM_WARM, Event.CANCEL),
    State.SUCCEEDED: (Event.CLAIM_WARM, Event.SUCCEED),
    State.FAILED: (Event.CLAIM_WARM, Event.FAIL),
    State.CANCELED: (Event.CANCEL,),
    State.EXPIRED: (Event.EXPIRE,),
}


@pytest.fixture
async def still(tmp_path: Path) -> AsyncIterator[Road]:
    async with road(tmp_path, Options(start=False)) as built:
        yield built


async def _step(road_: Road, prediction: Prediction, event: Event) -> None:
    await road_.database.write(STEPS[event](prediction))


async def _now(road_: Road, prediction: Prediction) -> Prediction:
    return await road_.database.read(predictions.get(prediction.id, Tenant.of(prediction)))


async def _bring_to(road_: Road, state: State) -> Prediction:
    prediction = await road_.pipeline.submit(road_.order())
    for event in WAYS[state]:
        await _step(road_, prediction, event)
        prediction = await _now(road_, prediction)
    assert prediction.state is state
    return prediction


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
async def test_an_event_moves_a_prediction_as_the_table_says_or_not_at_all(
    still: Road, state: State, event: Event
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
    assert account.posted == 1_000_000 - (after.price if after.state is State.SUCCEEDED else 0)


def test_terminal_states_absorb_all_but_a_refund() -> None:
    assert follow(State.SUCCEEDED, Event.REFUND) is State.FAILED
    for state, event in set(itertools.product(TERMINAL, Event)) - {(State.SUCCEEDED, Event.REFUND)}:
        with pytest.raises(IllegalTransition):
            follow(state, event)


async def test_a_stale_attempt_writes_nothing(still: Road) -> None:
    first = await _bring_to(still, State.RUNNING)
    await _step(still, first, Event.LOSE)
    second = await _now(still, first)
    await _step(still, second, Event.CLAIM_WARM)
    second = await _now(still, first)
    assert second.attempt == first.attempt + 1
    for event in (Event.SUCCEED, Event.FAIL, Event.STOP, Event.LOSE, Event.READY):
        with pytest.raises(StaleAttempt):
            await _step(still, first, event)
    assert await _now(still, first) == second
    await _step(still, second, Event.SUCCEED)
    assert (await still.account()).posted == 1_000_000 - second.price


async def test_a_worker_that_gets_ready_for_a_canceled_run_is_told_so(still: Road) -> None:
    prediction = await _bring_to(still, State.CANCELING)
    told = await still.database.write(predictions.ready(prediction.id, prediction.attempt))
    assert told == prediction


async def test_a_prediction_that_is_lost_too_often_fails_and_is_free(still: Road) -> None:
    prediction = await still.pipeline.submit(still.order())
    for _ in range(3):
        await _step(still, prediction, Event.CLAIM)
        prediction = await _now(still, prediction)
        await _step(still, prediction, Event.LOSE)
        prediction = await _now(still, prediction)
    assert (prediction.state, prediction.error_kind) == (State.FAILED, predictions.LOST)
    account = await still.account()
    assert (account.posted, account.held) == (1_000_000, 0)


async def test_a_lease_that_ran_out_is_taken_back_and_a_living_one_is_not(tmp_path: Path) -> None:
    now = [1_000_000_000]
    async with road(tmp_path, Options(start=False, clock=lambda: now[0])) as still:
        prediction = await _bring_to(still, State.RUNNING)
        now[0] += LEASE.life_us - 1
        assert await still.database.write(predictions.lapse(3)) == ()
        assert await still.database.write(predictions.heartbeat(LEASE)) == 1
        now[0] += LEASE.life_us
        assert await still.database.write(predictions.lapse(3)) == (), "its last moment is its holder's"
        now[0] += 1
        (back,) = await still.database.write(predictions.lapse(3))
        assert (back.id, back.state) == (prediction.id, State.QUEUED)


async def test_claims_are_handed_out_oldest_first_and_once(still: Road) -> None:
    made = [await still.pipeline.submit(still.order(extras={"n": n})) for n in range(6)]
    first = await still.database.write(claims.claim("echo", LEASE, 4, warm=True))
    second = await still.database.write(claims.claim("echo", LEASE, 4, warm=True))
    assert [p.id for p in (*first, *second)] == [p.id for p in made]


def test_every_named_query_is_used() -> None:
    text = "".join(path.read_text() for path in Path("src/sixfold").rglob("*.py"))
    composed = [
        re.sub(r"\{[^}]*\}", r"\\w+", made)
        for made in re.findall(r'f"([a-z_{}]*_of_{[a-z]+}|{[a-z]+}_counted|edges_{[a-z]+})"', text)
    ]
    known = [name for name in sql.queries("sqlite") if f'"{name}"' not in text]
    unused = [name for name in known if not any(re.fullmatch(made, name) for made in composed)]
    assert unused == []
