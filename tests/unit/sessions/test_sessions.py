"""Session records: only listed transitions occur, and billing slices always add up."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sixfold import errors
from sixfold.core.accounts import accounts, keys, ledger, ledger_queries
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.keys import KeyLimits
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.accounts.organizations import organizations
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.clock import DAY_US
from sixfold.core.database import Database, Transaction
from sixfold.core.sessions import handover
from sixfold.core.sessions import repository as sessions
from sixfold.core.sessions.connection import (
    MAX_QUEUED,
    TOO_SLOW,
    Connection,
    EndMessage,
    FrameMessage,
    PongMessage,
    PoseMessage,
    StateMessage,
)
from sixfold.core.sessions.engine import Controls, Frame
from sixfold.core.sessions.inputs import SessionInput, combine_inputs, merge_inputs
from sixfold.core.sessions.repository import SessionDraft, SessionLease, SessionRecord
from sixfold.core.sessions.states import TERMINAL, TRANSITIONS, SessionEvent, SessionState
from tests.harness import databases
from tests.harness.charge_recomputation import recomputed

SECOND, SLICE = 1_000_000, 9_000  # 0.54 USD per hour
LEASE = SessionLease("boot_test", 30 * SECOND)
EVENTS_TO: dict[SessionState, tuple[SessionEvent, ...]] = {
    SessionState.REQUESTED: (),
    SessionState.STARTING: (SessionEvent.START,),
    SessionState.READY: (SessionEvent.START, SessionEvent.READY),
    SessionState.ACTIVE: (SessionEvent.START, SessionEvent.READY, SessionEvent.INPUT),
    SessionState.IDLE: (SessionEvent.START, SessionEvent.READY, SessionEvent.REST),
    SessionState.CLOSING: (SessionEvent.START, SessionEvent.READY, SessionEvent.CLOSE),
    SessionState.CLOSED: (SessionEvent.CLOSE, SessionEvent.END),
    SessionState.FAILED: (SessionEvent.START, SessionEvent.FAIL),
}


@dataclass
class SessionFixture:
    """A database with one account and a clock that the test sets."""

    database: Database
    account: Account
    clock: dict[str, int]

    async def write(self, transaction: Transaction[Any]) -> Any:
        return await self.database.write(transaction)

    async def ask(self, **changes: Any) -> SessionRecord:
        known: dict[str, Any] = {
            "account_id": self.account.id, "request_id": "req_x", "model": "motion-model", "engine": "e",
            "quality": "preview", "hardware": "gpu-24gb-b", "inputs": {"prompt": "walk"}, "fps": 20,
            "rate": 540_000, "idle_us": 120 * SECOND, "limit": 20,
        }  # fmt: skip
        return (await self.write(sessions.create(SessionDraft(**known | changes), LEASE))).session

    async def bring(self, state: SessionState) -> SessionRecord:
        session = await self.ask()
        for event in EVENTS_TO[state]:
            session = await self.write(sessions.transition(session.id, event, LEASE))
        assert session.state is state
        return session

    async def money(self) -> tuple[int, int]:
        assert await self.database.read(ledger_queries.verify()) == ()
        account = await self.database.read(accounts.by_id(self.account.id))
        return account.posted, account.held


@pytest.fixture(params=databases.BACKENDS)
async def fixture(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[SessionFixture]:
    clock = {"now": 1_700_000_000 * SECOND}
    async with databases.OPENERS[request.param](tmp_path, lambda: clock["now"]) as database:
        account = await database.write(accounts.create("ada@example.com", credit=30_000))
        yield SessionFixture(database, account, clock)


@pytest.fixture
async def small(tmp_path: Path) -> AsyncIterator[SessionFixture]:
    async with databases.OPENERS["sqlite"](tmp_path, lambda: 1_700_000_000 * SECOND) as database:
        account = await database.write(accounts.create("ada@example.com", credit=30_000))
        yield SessionFixture(database, account, {})


@pytest.mark.parametrize(("state", "event"), list(itertools.product(SessionState, SessionEvent)))
async def test_session_event_follows_the_state_table(
    small: SessionFixture, state: SessionState, event: SessionEvent
) -> None:
    session = await small.bring(state)
    after = await small.write(sessions.transition(session.id, event, LEASE))
    assert after.state is TRANSITIONS.get((state, event), state)
    assert (await small.money())[1] == (0 if after.is_terminal else SLICE)
    assert (after.closed_at is not None) == after.is_terminal
    assert not any(state in TERMINAL for state, _ in TRANSITIONS)


async def test_intervals_are_captured_singly_and_the_last_by_use(fixture: SessionFixture) -> None:
    session = await fixture.bring(SessionState.READY)
    assert await fixture.money() == (30_000, SLICE)
    fixture.clock["now"] += 59 * SECOND
    assert (await fixture.write(sessions.renew_slice(session.id, None))).slice == 0
    fixture.clock["now"] += 1 * SECOND
    assert (await fixture.write(sessions.renew_slice(session.id, None))).slice == 1
    assert await fixture.money() == (21_000, SLICE)
    fixture.clock["now"] += 20 * SECOND
    await fixture.write(sessions.transition(session.id, SessionEvent.CLOSE, LEASE, "closed"))
    final_session = await fixture.write(sessions.transition(session.id, SessionEvent.END, LEASE))
    assert (final_session.cost, final_session.slice_amount, final_session.reason) == (12_000, 0, "closed")
    assert await fixture.money() == (18_000, 0)
    page = await fixture.database.read(ledger_queries.page(fixture.account.id, 2, None))
    rows = [(row["amount"], ledger_queries.to_json(row)["charge"] or {}) for row in page.entries]
    assert [(amount, recomputed(charge)) for amount, charge in rows] == [(-3_000, 3_000), (-9_000, 9_000)]
    assert [charge["sum"] for _, charge in rows] == [
        "20,000 ms × 0.54/h = 0.003 USD",
        "60,000 ms × 0.54/h = 0.009 USD",
    ]


async def test_each_interval_counts_against_the_budget_of_its_key(fixture: SessionFixture) -> None:
    payer = Payer("key_1", budget_day=2 * SLICE)
    session = await fixture.ask(payer=payer)
    for event in (SessionEvent.START, SessionEvent.READY):
        await fixture.write(sessions.transition(session.id, event, LEASE))
    fixture.clock["now"] += 60 * SECOND
    await fixture.write(sessions.renew_slice(session.id, payer))
    with pytest.raises(errors.BudgetExceeded):
        await fixture.write(ledger.hold(fixture.account.id, "more", 1, payer))
    fixture.clock["now"] += 20 * SECOND
    await fixture.write(sessions.transition(session.id, SessionEvent.CLOSE, LEASE, "closed"))
    final_session = await fixture.write(sessions.transition(session.id, SessionEvent.END, LEASE))
    await fixture.write(ledger.hold(fixture.account.id, "more", 2 * SLICE - final_session.cost, payer))
    with pytest.raises(errors.BudgetExceeded):
        await fixture.write(ledger.hold(fixture.account.id, "yet more", 1, payer))


@pytest.mark.parametrize("by_key", [False, True])
async def test_an_interval_counts_against_budgets_of_its_time(fixture: SessionFixture, by_key: bool) -> None:
    key = await fixture.write(keys.create(fixture.account.id, KeyLimits(budget_day=3 * SLICE)))
    payer = Payer(key.id, budget_day=3 * SLICE) if by_key else None
    session = await fixture.ask(payer=payer)
    for event in (SessionEvent.START, SessionEvent.READY):
        await fixture.write(sessions.transition(session.id, event, LEASE))
    fixture.clock["now"] += 60 * SECOND
    assert (await fixture.write(handover.renew_slice(session.id))).slice == 1
    await fixture.write(organizations.set_budgets(fixture.account.id, SLICE, None))
    fixture.clock["now"] += 60 * SECOND
    with pytest.raises(errors.BudgetExceeded, match=r"budget of 0\.009 USD per day"):
        await fixture.write(handover.renew_slice(session.id))
    final_session = await fixture.write(sessions.end_last_slice(session.id, LEASE))
    assert (final_session.reason, final_session.cost) == ("no credit", 2 * SLICE)
    assert await fixture.money() == (30_000 - 2 * SLICE, 0)


async def test_delayed_server_captures_every_elapsed_interval(fixture: SessionFixture) -> None:
    session = await fixture.bring(SessionState.ACTIVE)
    fixture.clock["now"] += 125 * SECOND
    turned, moment = await handover.renew_slices(fixture.database, session.id, LEASE, 125 * SECOND)
    assert (turned.slice, turned.cost, turned.slice_left_us(moment)) == (2, 2 * SLICE, 55 * SECOND)


@pytest.mark.parametrize(("credit", "slices"), [(200_000, 20), (0, 3)])
async def test_minutes_without_a_database_are_charged(
    fixture: SessionFixture, credit: int, slices: int
) -> None:
    """As far as the credit and the budgets allow; the clock of the server shows that the time has passed."""
    session = await fixture.bring(SessionState.ACTIVE)
    if credit:
        await fixture.write(accounts.credit("ada@example.com", credit))
    fixture.clock["now"] += 20 * 60 * SECOND
    session, _ = await handover.renew_slices(fixture.database, session.id, LEASE, 20 * 60 * SECOND)
    assert session.cost == slices * SLICE
    assert session.state is (SessionState.ACTIVE if credit else SessionState.CLOSING)
    assert await fixture.money() == (30_000 + credit - slices * SLICE, SLICE if credit else 0)


@pytest.mark.parametrize("days", [2, -2])
async def test_clock_change_charges_no_time(fixture: SessionFixture, days: int) -> None:
    session = await fixture.bring(SessionState.ACTIVE)
    fixture.clock["now"] += 60 * SECOND
    await fixture.write(sessions.renew_slice(session.id, None))
    fixture.clock["now"] += days * DAY_US + 60 * SECOND
    await fixture.write(sessions.renew_slice(session.id, None))
    assert await fixture.money() == (30_000 - SLICE, SLICE)
    fixture.clock["now"] += 60 * SECOND
    session = await fixture.write(sessions.renew_slice(session.id, None))
    assert (session.slice, session.cost) == (2, 2 * SLICE)
    assert await fixture.money() == (30_000 - 2 * SLICE, SLICE)


async def test_time_of_a_free_session_does_not_begin_again(fixture: SessionFixture) -> None:
    session = await fixture.ask(rate=0)
    for event in EVENTS_TO[SessionState.ACTIVE]:
        await fixture.write(sessions.transition(session.id, event, LEASE))
    for _ in range(7):
        fixture.clock["now"] += 60 * SECOND
        session = await fixture.write(sessions.renew_slice(session.id, None))
    assert session.running_us(fixture.clock["now"]) == 7 * 60 * SECOND
    assert await fixture.money() == (30_000, 0)


async def test_another_server_continues_the_current_interval(fixture: SessionFixture) -> None:
    session = await fixture.bring(SessionState.ACTIVE)
    other = SessionLease("boot_other", 30 * SECOND)
    for seconds, slice_then, left in ((0, 0, 60), (50, 0, 10), (12, 1, 58), (58, 2, 60)):
        fixture.clock["now"] += seconds * SECOND
        if seconds == 50:
            await fixture.write(handover.take_over(session.id, other))
        session = await fixture.write(sessions.renew_slice(session.id, None))
        assert session.slice == slice_then
        assert session.slice_left_us(fixture.clock["now"]) == left * SECOND
    assert (session.holder, session.cost) == ("boot_other", 2 * SLICE)
    fixture.clock["now"] += 20 * SECOND
    final_session = await fixture.write(handover.close(session.id, other))
    assert final_session.cost == 2 * SLICE + SLICE // 3, "140 seconds on both servers"
    assert await fixture.money() == (30_000 - final_session.cost, 0)


async def test_free_session_remains_in_its_first_interval(fixture: SessionFixture) -> None:
    session = await fixture.ask(rate=0)
    for event in EVENTS_TO[SessionState.READY]:
        session = await fixture.write(sessions.transition(session.id, event, LEASE))
    fixture.clock["now"] += 90 * SECOND
    session = await fixture.write(sessions.renew_slice(session.id, None))
    assert (session.slice, session.slice_left_us(fixture.clock["now"])) == (0, 60 * SECOND)


async def test_free_session_closes_once_its_account_is_below_zero(fixture: SessionFixture) -> None:
    session = await fixture.ask(rate=0)
    for event in EVENTS_TO[SessionState.READY]:
        await fixture.write(sessions.transition(session.id, event, LEASE))
    reversal = ledger.LedgerEntry("reversal", "dispute")
    await fixture.write(ledger.deposit(fixture.account.id, -30_001, reversal, below_zero=True))
    fixture.clock["now"] += 60 * SECOND
    with pytest.raises(errors.InsufficientCredits):
        await fixture.write(handover.renew_slice(session.id))
    final_session = await fixture.write(sessions.end_last_slice(session.id, LEASE))
    assert (final_session.state, final_session.reason) == (SessionState.CLOSING, "no credit")


async def test_time_without_steps_is_not_charged(fixture: SessionFixture) -> None:
    session = await fixture.bring(SessionState.ACTIVE)
    fixture.clock["now"] += 140 * SECOND
    await fixture.write(sessions.skip_time(session.id, 130 * SECOND, SessionLease("boot_other", 1)))
    await fixture.write(sessions.skip_time(session.id, 130 * SECOND, LEASE))
    session = await fixture.write(sessions.renew_slice(session.id, None))
    assert (session.slice, session.slice_used_us(fixture.clock["now"])) == (0, 10 * SECOND)
    await fixture.write(sessions.skip_time(session.id, 10**15, LEASE))
    assert (await fixture.write(sessions.get(session.id))).slice_at == fixture.clock["now"]
    fixture.clock["now"] += 20 * SECOND
    for event in (SessionEvent.REST, SessionEvent.PAUSE):
        await fixture.write(sessions.transition(session.id, event, LEASE))
    fixture.clock["now"] += 500 * SECOND
    await fixture.write(sessions.skip_time(session.id, 5 * SECOND, LEASE))
    for event in (SessionEvent.CLOSE, SessionEvent.END):
        final_session = await fixture.write(sessions.transition(session.id, event, LEASE))
    assert final_session.cost == SLICE // 4
    assert await fixture.money() == (30_000 - SLICE // 4, 0)


async def test_session_closes_without_credit_for_another_interval(fixture: SessionFixture) -> None:
    session = await fixture.bring(SessionState.READY)
    for _ in range(2):
        fixture.clock["now"] += 60 * SECOND
        await fixture.write(sessions.renew_slice(session.id, None))
    fixture.clock["now"] += 60 * SECOND
    with pytest.raises(errors.InsufficientCredits):
        await fixture.write(sessions.renew_slice(session.id, None))
    closing = await fixture.write(sessions.end_last_slice(session.id, LEASE))
    assert (closing.state, closing.reason, closing.cost) == (SessionState.CLOSING, "no credit", 3 * SLICE)
    fixture.clock["now"] += 5 * SECOND
    await fixture.write(sessions.transition(session.id, SessionEvent.END, LEASE))
    assert await fixture.money() == (3_000, 0)


PAUSED = (*EVENTS_TO[SessionState.IDLE], SessionEvent.PAUSE)


async def paused_after(fixture: SessionFixture, seconds: int) -> SessionRecord:
    """Return a session that pauses `seconds` after it became ready."""
    session = await fixture.ask()
    for event in PAUSED:
        fixture.clock["now"] += seconds * SECOND if event is SessionEvent.PAUSE else 0
        session = await fixture.write(sessions.transition(session.id, event, LEASE))
    assert (session.state, session.is_paused) == (SessionState.IDLE, True)
    return session


async def test_a_paused_minute_is_not_charged(fixture: SessionFixture) -> None:
    session = await paused_after(fixture, 40)
    for _ in range(3):
        fixture.clock["now"] += 60 * SECOND
        session = await fixture.write(sessions.renew_slice(session.id, None))
    now = fixture.clock["now"]
    assert (session.slice, session.running_us(now), session.cost_at(now)) == (0, 40 * SECOND, 6_000)
    assert await fixture.money() == (30_000, SLICE)
    session = await fixture.write(sessions.transition(session.id, SessionEvent.INPUT, LEASE))
    assert (session.state, session.is_paused) == (SessionState.ACTIVE, False)
    assert session.slice_left_us(fixture.clock["now"]) == 20 * SECOND
    fixture.clock["now"] += 30 * SECOND
    session = await fixture.write(sessions.renew_slice(session.id, None))
    now = fixture.clock["now"]
    assert (session.slice, session.running_us(now), session.cost_at(now)) == (1, 70 * SECOND, 10_500)
    await fixture.write(sessions.transition(session.id, SessionEvent.CLOSE, LEASE, "closed"))
    final_session = await fixture.write(sessions.transition(session.id, SessionEvent.END, LEASE))
    assert (final_session.cost, final_session.cost_at(2**60)) == (10_500, 10_500)
    assert await fixture.money() == (30_000 - 10_500, 0)


async def test_end_of_a_paused_session_does_not_charge_the_pause(fixture: SessionFixture) -> None:
    session = await paused_after(fixture, 20)
    second_session = await fixture.write(sessions.transition(session.id, SessionEvent.PAUSE, LEASE))
    assert second_session.paused_at == session.paused_at
    fixture.clock["now"] += 600 * SECOND
    await fixture.write(sessions.transition(session.id, SessionEvent.CLOSE, LEASE, "idle"))
    final_session = await fixture.write(sessions.transition(session.id, SessionEvent.END, LEASE))
    assert (final_session.cost, final_session.running_us(2**60)) == (3_000, 20 * SECOND)
    assert await fixture.money() == (27_000, 0)


async def test_a_paused_session_moves_to_another_server(fixture: SessionFixture) -> None:
    session = await paused_after(fixture, 30)
    fixture.clock["now"] += 300 * SECOND
    other = SessionLease("boot_other", 30 * SECOND)
    moved = (await fixture.write(handover.take_over(session.id, other))).session
    assert (moved.is_paused, moved.holder) == (True, "boot_other")
    assert (await fixture.write(sessions.renew_slice(session.id, None))).cost == 0
    await fixture.write(sessions.transition(session.id, SessionEvent.INPUT, other))
    fixture.clock["now"] += 10 * SECOND
    assert (await fixture.write(handover.close(session.id, other))).cost == 6_000


async def test_restart_releases_the_interval_of_a_paused_session(fixture: SessionFixture) -> None:
    await paused_after(fixture, 61)
    fixture.clock["now"] += 900 * SECOND
    (session,) = await fixture.write(sessions.end_lost("boot_next", lapsed_only=False))
    assert (session.state, session.cost) == (SessionState.FAILED, 0)
    assert await fixture.money() == (30_000, 0)


async def test_restart_ends_open_sessions_and_releases_their_interval(fixture: SessionFixture) -> None:
    session = await fixture.bring(SessionState.ACTIVE)
    fixture.clock["now"] += 61 * SECOND
    await fixture.write(sessions.renew_slice(session.id, None))
    running = (session.id,)
    assert await fixture.write(sessions.end_lost(LEASE.holder, running, lapsed_only=False)) == ()
    assert await fixture.write(sessions.heartbeat(LEASE, running)) == 1
    assert await fixture.write(sessions.end_lost("boot_next", lapsed_only=True)) == ()
    (final_session,) = await fixture.write(sessions.end_lost("boot_next", lapsed_only=False))
    assert (final_session.state, final_session.reason, final_session.cost) == (
        SessionState.FAILED,
        "lost",
        SLICE,
    )
    assert await fixture.money() == (30_000 - SLICE, 0)


async def test_session_with_an_unknown_creation_ends_with_its_lease(fixture: SessionFixture) -> None:
    """Its server does not run it, because the result of its creation was lost."""
    session = await fixture.bring(SessionState.REQUESTED)
    fixture.clock["now"] += LEASE.life_us + 1
    assert await fixture.write(sessions.heartbeat(LEASE, ())) == 0
    (final_session,) = await fixture.write(sessions.end_lost(LEASE.holder, lapsed_only=True))
    assert (final_session.id, final_session.state) == (session.id, SessionState.FAILED)
    assert await fixture.money() == (30_000, 0)


async def test_session_belongs_to_its_server_until_the_lease_expires(fixture: SessionFixture) -> None:
    session = await fixture.bring(SessionState.ACTIVE)
    fixture.clock["now"] += LEASE.life_us
    assert await fixture.write(sessions.end_lost("boot_next", lapsed_only=True)) == ()
    fixture.clock["now"] += 1
    (final_session,) = await fixture.write(sessions.end_lost("boot_next", lapsed_only=True))
    assert (final_session.id, final_session.state) == (session.id, SessionState.FAILED)


@pytest.mark.parametrize(
    ("rate", "us", "micros"),
    [(540_000, 60 * SECOND, SLICE), (540_001, 60 * SECOND, SLICE + 1), (1, 1, 1), (540_000, 0, 0)],
)
def test_usage_is_rounded_up_to_the_micro_dollar(rate: int, us: int, micros: int) -> None:
    assert sessions.usage_micros(rate, us) == micros


async def test_open_sessions_of_an_account_are_limited(fixture: SessionFixture) -> None:
    await fixture.ask(limit=1)
    with pytest.raises(errors.TooManyRequests):
        await fixture.ask(limit=1)
    assert await fixture.money() == (30_000, SLICE)
    with pytest.raises(errors.InsufficientCredits):
        await fixture.ask(rate=540_000_000)
    assert await fixture.money() == (30_000, SLICE)


async def test_only_its_own_tokens_open_a_session(fixture: SessionFixture) -> None:
    draft = SessionDraft(fixture.account.id, "r", "m", "e", "full", "h", {}, 20, 0, SECOND, 3)
    session = await fixture.write(sessions.create(draft, LEASE))
    assert session.session.opens_to(session.token)
    assert session.session.opens_to(session.resume_token)
    assert not session.session.is_resumed_by(session.token)
    assert not session.session.opens_to(session.session.id)
    with pytest.raises(errors.NotFound):
        await fixture.write(sessions.find(session.session.id, Tenant("acct_other")))
    await fixture.write(sessions.transition(session.session.id, SessionEvent.CLOSE, LEASE))
    assert (await fixture.write(sessions.transition(session.session.id, SessionEvent.END, LEASE))).cost == 0


def test_short_key_press_is_part_of_one_step() -> None:
    inputs = [
        SessionInput(1, keys=("w",), prompt="snow"),
        SessionInput(2, keys=()),
        SessionInput(3, prompt="rain"),
    ]
    assert combine_inputs((), inputs) == Controls(keys=("w",), prompt="rain")
    assert combine_inputs(("a",), inputs[:1]).keys == ("a", "w")
    assert combine_inputs(("a",), []) == Controls(keys=("a",))


def test_merged_inputs_keep_prompt_waypoints_and_every_key() -> None:
    first = SessionInput(1, keys=("w",), prompt="rain", waypoints=((1.0, 2.0),))
    merged = merge_inputs(first, SessionInput(2, keys=("a",)))
    assert merged == SessionInput(2, keys=("w", "a"), prompt="rain", waypoints=((1.0, 2.0),))
    assert merge_inputs(first, SessionInput(3, prompt="snow")) == SessionInput(
        3, ("w",), "snow", ((1.0, 2.0),)
    )


async def test_viewer_gets_messages_in_order_and_then_the_end() -> None:
    viewer = Connection()
    words = [
        StateMessage(SessionState.READY, None),
        PoseMessage(4, 200, b"{}"),
        FrameMessage(5, None, 250, Frame(b"x", "jpeg", 1, 1)),
    ]
    for word in words:
        viewer.put(word)
    viewer.end(4001, "replaced")
    viewer.end(1000, "later reasons count for nothing")
    viewer.put(PongMessage(1))
    assert [await viewer.next_message() for _ in range(4)] == [*words, EndMessage(4001, "replaced")]
    assert viewer.last_seq == 4


async def test_viewer_with_a_full_queue_is_disconnected() -> None:
    viewer = Connection()
    for number in range(MAX_QUEUED + 1):
        viewer.put(PoseMessage(number, 0, b"{}"))
    assert await viewer.next_message() == EndMessage(TOO_SLOW, "too slow")
