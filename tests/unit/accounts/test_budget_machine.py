"""Stateful tests of budgets: no sequence of holds, charges and refunds exceeds a budget or loses a part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from sixfold import errors
from sixfold.core.accounts import accounts, ledger, ledger_batches
from sixfold.core.accounts.keys import Budget
from sixfold.core.accounts.ledger_batches import Capture, DirectCharge, HoldRequest
from sixfold.core.accounts.limits import budgets
from sixfold.core.accounts.limits.budgets import Payer
from sixfold.core.clock import DAY_US, SECOND_US
from tests.harness.mutants import Mutant, statement
from tests.unit.accounts.test_ledger_machine import AMOUNTS, ENTRY, GROUNDS, MANY, LedgerMachine, play

pytestmark = pytest.mark.slow

# Two days before the end of a month.
START_US = int(datetime(2026, 11, 29, 20, tzinfo=UTC).timestamp()) * SECOND_US
MEMBER, ORGANIZATION = Budget("member_1", 60_000, None), Budget("acct_1", None, 150_000)
PAYERS = (
    None,
    Payer("key_1", 40_000, 100_000),
    Payer("key_2", None, None, (MEMBER, ORGANIZATION)),
    Payer("key_1", 40_000, 100_000, (ORGANIZATION,)),
    Payer("", None, None, (ORGANIZATION,)),
)
BUDGETS = ("key_1", "key_2", "member_1", "acct_1")
CHOICES = st.lists(st.tuples(st.sampled_from(PAYERS), AMOUNTS), min_size=1, max_size=3)
SHARES = st.sampled_from([0.0, 0.3, 1.0])


class _PaidHold(NamedTuple):
    """A hold with its amount, its payer and the time at which the budgets counted it."""

    amount: int
    payer: Payer | None
    held_at: int


def _periods(moment: int) -> tuple[str, str]:
    day = datetime.fromtimestamp(moment // DAY_US * 86_400, UTC).date().isoformat()
    return day, day[:7]


class BudgetMachine(LedgerMachine):
    """Holds of one account with budgets, over several days, compared with a model of the budgets."""

    def __init__(self) -> None:
        self.moment = START_US
        self.clock = lambda: self.moment
        super().__init__()
        self.account_id = ""
        self.spent = Counter[tuple[str, str]]()
        self.open: dict[str, _PaidHold] = {}
        self.charged: dict[str, _PaidHold] = {}

    @initialize()
    def one_account(self) -> None:
        self.account_id = self.write(accounts.create("payer@example.com", credit=600_000)).id
        self.posted[self.account_id] = 600_000

    def count(self, held: _PaidHold, amount: int) -> None:
        for budget in held.payer.budgets if held.payer is not None else ():
            for period in _periods(held.held_at):
                self.spent[budget.id, period] += amount

    def fits(self, holds: Iterable[_PaidHold]) -> bool:
        """Return whether all budgets cover the holds together."""
        needed, limits = Counter[tuple[str, str]](), dict[tuple[str, str], int | None]()
        for held in holds:
            for budget in held.payer.budgets if held.payer is not None else ():
                for period, limit in zip(_periods(held.held_at), (budget.day, budget.month), strict=True):
                    needed[budget.id, period] += held.amount
                    limits[budget.id, period] = limit
        return all(
            limit is None or self.spent[name] + needed[name] <= limit for name, limit in limits.items()
        )

    @property
    def free(self) -> int:
        return self.available(self.account_id)

    @rule(hours=st.sampled_from([1, 7, 30]))
    def wait(self, hours: int) -> None:
        self.moment += hours * 3600 * SECOND_US

    @rule(payer=st.sampled_from(PAYERS), amount=AMOUNTS)
    def hold_amount(self, payer: Payer | None, amount: int) -> None:
        self.hold_with(payer, amount)

    def hold_with(self, payer: Payer | None, amount: int) -> None:
        name, held = f"hold{next(self.names)}", _PaidHold(amount, payer, self.moment)
        holding = ledger.hold(self.account_id, name, amount, payer)
        if not self.fits([held]):
            with pytest.raises(errors.BudgetExceeded):
                self.write(holding)
        elif amount > self.free:
            with pytest.raises(errors.InsufficientCredits):
                self.write(holding)
        else:
            self.write(holding)
            self.open[name] = held
            self.count(held, amount)

    @rule(payer=st.sampled_from(PAYERS[1:]), more=st.integers(0, 1))
    def hold_rest(self, payer: Payer, more: int) -> None:
        """Hold what remains of a payer's budgets, or one micro-dollar more."""
        rests = [
            limit - self.spent[budget.id, period]
            for budget in payer.budgets
            for period, limit in zip(_periods(self.moment), (budget.day, budget.month), strict=True)
            if limit is not None
        ]
        if (rest := min(rests) + more) > 0:
            self.hold_with(payer, rest)

    @rule(place=st.integers(0, 20), share=SHARES)
    def end(self, place: int, share: float) -> None:
        if not self.open:
            return
        name = list(self.open)[place % len(self.open)]
        held = self.open.pop(name)
        amount = max(1, round(held.amount * share)) if share else 0
        self.write(ledger.capture(name, amount, ENTRY))
        self.finish(name, held, amount)

    def finish(self, name: str, held: _PaidHold, amount: int) -> None:
        self.posted[self.account_id] -= amount
        self.count(held, amount - held.amount)
        if amount:
            self.charged[name] = held._replace(amount=amount)

    @rule(place=st.integers(0, 20))
    def refund(self, place: int) -> None:
        if not self.charged:
            return
        name = list(self.charged)[place % len(self.charged)]
        held = self.charged.pop(name)
        for expected in (held.amount, 0):
            assert self.write(ledger.refund(name, ENTRY)) == expected
        self.posted[self.account_id] += held.amount
        self.count(held, -held.amount)

    @rule(holds=CHOICES | st.just([]), charges=CHOICES | st.just([]), ends=st.lists(SHARES, max_size=3))
    def book(
        self,
        holds: list[tuple[Payer | None, int]],
        charges: list[tuple[Payer | None, int]],
        ends: list[float],
    ) -> None:
        """Hold, charge and end holds in one transaction; ended holds return to the budgets first."""
        new = {f"hold{next(self.names)}": _PaidHold(amount, payer, self.moment) for payer, amount in holds}
        bought = {
            f"hold{next(self.names)}": _PaidHold(amount, payer, self.moment) for payer, amount in charges
        }
        ended = {
            name: (held, max(1, round(held.amount * share)) if share else 0)
            for (name, held), share in zip(self.open.items(), ends, strict=False)
        }
        account = self.account_id
        booking = ledger_batches.book(
            holds=[HoldRequest(account, name, held.amount, held.payer) for name, held in new.items()],
            captures=[
                Capture(
                    account,
                    name,
                    held.amount,
                    amount,
                    ENTRY,
                    held.payer.counted if held.payer is not None else "",
                    held.held_at,
                )
                for name, (held, amount) in ended.items()
            ],
            charges=[
                DirectCharge(account, name, held.amount, held.amount, ENTRY, held.payer)
                for name, held in bought.items()
            ],
        )
        before = self.spent.copy()
        for held, amount in ended.values():
            self.count(held, amount - held.amount)
        paid = [*new.values(), *bought.values()]
        if not self.fits(paid) or sum(held.amount for held in paid) > self.free:
            self.spent = before
            with pytest.raises((errors.BudgetExceeded, errors.InsufficientCredits)):
                self.write(booking)
            return
        self.spent = before
        self.write(booking)
        for name, (held, amount) in ended.items():
            del self.open[name]
            self.finish(name, held, amount)
        for held in paid:
            self.count(held, held.amount)
        self.open |= new
        self.charged |= bought
        self.posted[self.account_id] -= sum(held.amount for held in bought.values())

    def available(self, account_id: str) -> int:
        own = self.open.values() if account_id == self.account_id else ()
        return super().available(account_id) - sum(held.amount for held in own)

    @invariant()
    def budgets_are_consistent(self) -> None:
        spent = self.loop.run_until_complete(self.database.read(budgets.spent_now(BUDGETS)))
        day, month = _periods(self.moment)
        assert spent == {each: (self.spent[each, day], self.spent[each, month]) for each in BUDGETS}


@pytest.mark.parametrize(("backend", "examples"), GROUNDS)
def test_budgets_count_what_is_held_and_charged(backend: str, examples: int) -> None:
    assert play(backend, examples=examples, base=BudgetMachine)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(statement("key_spend_return", "amount - :amount", "amount"), id="nothing is returned"),
        pytest.param(statement("key_spend_add", "<= CASE", "<= 1 + CASE"), id="one more is spent"),
        pytest.param(statement("budgets_spend", "> c.most", "> c.most + 1"), id="one more is shared"),
    ],
)
def test_budget_that_is_counted_wrong_is_detected(fault: Mutant) -> None:
    assert not play("sqlite", fault, base=BudgetMachine, examples=MANY)
