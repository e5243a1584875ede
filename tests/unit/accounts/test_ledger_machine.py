"""Stateful tests of the ledger: no sequence of events creates, loses or double-spends money."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule

from sixfold import errors
from sixfold.core.accounts import accounts, ledger, ledger_batches, ledger_queries
from sixfold.core.accounts.accounts import Account
from sixfold.core.accounts.prices import PriceRow
from sixfold.core.catalog.engines import TaskRecord
from sixfold.core.database import Database, Transaction, TransactionConflict, many
from sixfold.core.media.media import record
from sixfold.core.media.outputs import Output
from sixfold.core.media.ports import OutputFile
from sixfold.core.predictions import claims, refunds
from sixfold.core.predictions import repository as predictions
from sixfold.core.predictions.repository import PredictionDraft, RunLease, SuccessRecord, Trace
from sixfold.core.predictions.states import PredictionState
from tests.harness import backends, databases, mutants
from tests.harness.cases import nightly_after
from tests.harness.mutants import Mutant, statement
from tests.unit.accounts.result_routes import PLACES, locations, publish

pytestmark = pytest.mark.slow

T = TypeVar("T")
AMOUNTS = st.sampled_from([1, 2, 7000]) | st.integers(1, 50_000)
# The number of examples that must find a mutant.
MANY = 300
# PostgreSQL takes three times as long for the same statements, so it gets fewer examples by day.
GROUNDS = [
    pytest.param("sqlite", 25),
    pytest.param("postgres", 8, marks=pytest.mark.postgres),
    pytest.param("postgres", 25, marks=[pytest.mark.postgres, pytest.mark.nightly]),
]
# Fractions of the maximum amount.
SHARES = st.sampled_from([0.3, 1.0, 1.1])
ENTRY = ledger.LedgerEntry("charge", "test")


class LedgerMachine(RuleBasedStateMachine):
    """Deposits, holds, captures and releases, compared with a model of the expected balances."""

    backend = "sqlite"
    mutant: Mutant | None = None
    # The time of the database, or None for the machine's.
    clock: Callable[[], int] | None = None
    holds = Bundle("holds")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.stack = AsyncExitStack()
        self.folder = tempfile.TemporaryDirectory()
        opener = databases.OPENERS[self.backend](Path(self.folder.name), self.clock)
        opening = self.stack.enter_async_context(opener)
        self.database: Database = self.loop.run_until_complete(opening)
        if self.mutant is not None:
            self.mutant(self.database)
        self.names = itertools.count()
        self.posted: dict[str, int] = {}
        self.pending: dict[str, tuple[str, int]] = {}
        self.ended: tuple[str, str, int] | None = None

    def write(self, transaction: Transaction[T]) -> T:
        return self.loop.run_until_complete(self.database.write(transaction))

    @initialize()
    def two_accounts(self) -> None:
        for name in ("rich", "poor"):
            account = self.write(
                accounts.create(f"{name}@example.com", credit=100_000 if name == "rich" else 2)
            )
            self.posted[account.id] = account.posted

    def available(self, account_id: str) -> int:
        hold_total = sum(amount for owner, amount in self.pending.values() if owner == account_id)
        return self.posted[account_id] - hold_total

    @rule(which=st.integers(0, 1), amount=AMOUNTS)
    def deposit(self, which: int, amount: int) -> None:
        account_id = list(self.posted)[which]
        self.write(ledger.deposit(account_id, amount, ENTRY))
        self.posted[account_id] += amount

    @rule(target=holds, which=st.integers(0, 1), amount=AMOUNTS)
    def hold(self, which: int, amount: int) -> str:
        account_id = list(self.posted)[which]
        name = f"hold{next(self.names)}"
        if amount > self.available(account_id):
            with pytest.raises(errors.InsufficientCredits):
                self.write(ledger.hold(account_id, name, amount))
        else:
            self.write(ledger.hold(account_id, name, amount))
            self.pending[name] = (account_id, amount)
        return name

    @rule(name=holds, share=st.sampled_from([0.0, 0.3, 1.0, 1.1]))
    def capture(self, name: str, share: float) -> None:
        owner, hold_amount = self.pending.get(name, ("", 0))
        amount = max(1, round(hold_amount * share)) if share else 0
        if not owner or amount > hold_amount:
            with pytest.raises(ledger.LedgerError):
                self.write(ledger.capture(name, amount, ENTRY))
            return
        self.write(ledger.capture(name, amount, ENTRY))
        self.posted[owner] -= amount
        del self.pending[name]
        self.ended = (name, owner, hold_amount)

    @rule(name=holds)
    def release(self, name: str) -> None:
        if name not in self.pending:
            with pytest.raises(ledger.LedgerError):
                self.write(ledger.release(name))
            return
        self.write(ledger.release(name))
        del self.pending[name]

    @invariant()
    def ledger_is_consistent(self) -> None:
        faults, standing = self.loop.run_until_complete(self.database.read(_standing(tuple(self.posted))))
        assert faults == ()
        for account in standing:
            account_id = account.id
            assert account.posted == self.posted[account_id]
            assert account.posted - account.held == self.available(account_id)

    def teardown(self) -> None:
        self.loop.run_until_complete(self.stack.aclose())
        backends.forget()
        self.loop.close()
        self.folder.cleanup()


class SeveralMachine(LedgerMachine):
    """The ledger machine with batches of holds, captures and charges."""

    @rule(whose=st.lists(st.tuples(st.integers(0, 1), AMOUNTS), min_size=1, max_size=4))
    def hold_several(self, whose: list[tuple[int, int]]) -> None:
        accounts = list(self.posted)
        expected = [
            ledger_batches.HoldRequest(accounts[which], f"hold{next(self.names)}", amount)
            for which, amount in whose
        ]
        due = {name: sum(each.amount for each in expected if each.account_id == name) for name in self.posted}
        if any(amount > self.available(name) for name, amount in due.items()):
            with pytest.raises(errors.InsufficientCredits):
                self.write(ledger_batches.book(holds=expected))
        else:
            self.write(ledger_batches.book(holds=expected))
            self.pending |= {each.hold_id: (each.account_id, each.amount) for each in expected}

    @rule(whose=st.lists(st.tuples(st.integers(0, 1), AMOUNTS), min_size=1, max_size=4), share=SHARES)
    def charge_several(self, whose: list[tuple[int, int]], share: float) -> None:
        accounts = list(self.posted)
        bought = [
            ledger_batches.DirectCharge(
                accounts[which], f"hold{next(self.names)}", most, max(1, round(most * share)), ENTRY
            )
            for which, most in whose
        ]
        due = {name: sum(each.amount for each in bought if each.account_id == name) for name in self.posted}
        if any(each.amount > each.max_amount for each in bought):
            with pytest.raises(ledger.LedgerError):
                self.write(ledger_batches.book(charges=bought))
        elif any(amount > self.available(name) for name, amount in due.items()):
            with pytest.raises(errors.InsufficientCredits):
                self.write(ledger_batches.book(charges=bought))
        else:
            self.write(ledger_batches.book(charges=bought))
            self.posted = {name: posted - due[name] for name, posted in self.posted.items()}

    @rule(shares=st.lists(st.sampled_from([0.0, 0.3, 1.0, 1.1]), min_size=1, max_size=4), again=st.booleans())
    def capture_several(self, shares: list[float], again: bool) -> None:
        holds = [(name, *self.pending[name]) for name in list(self.pending)[: len(shares)]]
        parts = [
            (name, owner, max(1, round(amount * share)) if share else 0, amount)
            for (name, owner, amount), share in zip(holds, shares, strict=False)
        ]
        charges = [
            ledger_batches.Capture(owner, name, amount, part, ENTRY) for name, owner, part, amount in parts
        ]
        twice = self.ended if again else None
        if twice is not None:
            name, owner, amount = twice
            charges.append(ledger_batches.Capture(owner, name, amount, 0, ENTRY))
        if any(part > amount for _, _, part, amount in parts):
            with pytest.raises((ledger.LedgerError, TransactionConflict)):
                self.write(ledger_batches.capture_all(charges))
            return
        if twice is not None:
            with pytest.raises(ledger.LedgerError):
                self.write(ledger_batches.capture_all(charges))
            return
        if charges:
            self.write(ledger_batches.capture_all(charges))
        for name, owner, part, amount in parts:
            self.posted[owner] -= part
            del self.pending[name]
            self.ended = (name, owner, amount)


class RefundMachine(LedgerMachine):
    """The ledger machine with predictions that succeed and are refunded; a refund withdraws the result.

    Each result is also published, shared, used as an avatar, and stored for an idempotency key.
    """

    results = Bundle("results")

    def __init__(self) -> None:
        super().__init__()
        self.paid: dict[str, tuple[str, int]] = {}

    @rule(target=results, which=st.integers(0, 1), amount=AMOUNTS)
    def succeed(self, which: int, amount: int) -> str:
        account_id, name = list(self.posted)[which], f"pred{next(self.names)}"
        if amount > self.available(account_id):
            return ""
        draft = PredictionDraft(
            name, account_id, None, name, name, "test", "dot", "dot", "full", "image", {},
            TaskRecord({}), name.encode(), PriceRow(amount, 1, "fixed"), 0,
        )  # fmt: skip
        self.write(predictions.accept(draft, 1000))
        lease = RunLease("boot", 60_000_000)
        (claimed,) = self.write(claims.claim("dot", lease, 1, warm=True))
        file = OutputFile(f"{name}.png", name, "image/png", 1)
        result = SuccessRecord(
            Output((file,)), "full", "1", Trace(), (record(file, account_id, "output", prediction_id=name),)
        )
        self.write(predictions.succeed(claimed.id, claimed.attempt, result))
        self.write(publish(account_id, file))
        self.posted[account_id] -= amount
        self.paid[name] = (account_id, amount)
        return name

    @rule(name=results)
    def refund(self, name: str) -> None:
        if not name:
            return
        prediction = self.write(refunds.refund(name, "test"))
        owner, amount = self.paid.pop(name, ("", 0))
        if owner:
            self.posted[owner] += amount
        assert (prediction.state, prediction.output, prediction.cost) == (PredictionState.FAILED, None, 0)
        assert self.loop.run_until_complete(self.database.read(locations(name))) == set()

    @invariant()
    def paid_results_are_readable(self) -> None:
        for name in self.paid:
            remaining = self.loop.run_until_complete(self.database.read(predictions.get_any(name)))
            assert remaining.state is PredictionState.SUCCEEDED
            assert remaining.output is not None
            assert self.loop.run_until_complete(self.database.read(locations(name))) == PLACES


class PartsMachine(LedgerMachine):
    """The ledger machine with predictions whose children's results are readable once the parent is paid."""

    wholes = Bundle("wholes")

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[str, tuple[str, int]] = {}
        self.parts: dict[str, list[str]] = {}
        self.paid: set[str] = set()

    def _accept(self, name: str, account_id: str, parent_id: str | None, amount: int) -> int:
        price = PriceRow(amount, 1, "children" if parent_id is None else "fixed")
        engine = "graph" if parent_id is None else "dot"
        draft = PredictionDraft(
            name, account_id, None, name, None, "test", engine, engine, "full", "image", {"prompt": "x"},
            TaskRecord({}), name.encode(), price, 0, parent_id,
        )  # fmt: skip
        self.write(predictions.accept(draft, 1000))
        (claimed,) = self.write(claims.claim(engine, RunLease("boot", 60_000_000), 1, warm=True))
        return claimed.attempt

    def _succeed(self, name: str, account_id: str, attempt: int) -> None:
        file = OutputFile(f"{name}.png", name, "image/png", 1)
        rows = (record(file, account_id, "output", prediction_id=name),)
        self.write(
            predictions.succeed(name, attempt, SuccessRecord(Output((file,)), "full", "1", Trace(), rows))
        )

    @rule(target=wholes, which=st.integers(0, 1), amount=AMOUNTS)
    def order(self, which: int, amount: int) -> str:
        account_id, name = list(self.posted)[which], f"pred{next(self.names)}"
        if amount > self.available(account_id):
            return ""
        self._accept(name, account_id, None, amount)
        self.pending[name] = self.open[name] = (account_id, amount)
        self.parts[name] = []
        return name

    @rule(parent=wholes)
    def order_part(self, parent: str) -> None:
        if parent in self.open:
            account_id, part = self.open[parent][0], f"part{next(self.names)}"
            self._succeed(part, account_id, self._accept(part, account_id, parent, 1))
            self.parts[parent].append(part)

    @rule(parent=wholes, paid=st.booleans())
    def end(self, parent: str, paid: bool) -> None:
        if parent not in self.open:
            return
        account_id, amount = self.open.pop(parent)
        if paid:
            self._succeed(parent, account_id, 1)
            self.posted[account_id] -= amount
            self.paid.add(parent)
        else:
            self.write(predictions.fail(parent, 1, predictions.FailureRecord("failed", "test")))
        del self.pending[parent]

    @invariant()
    def parts_are_readable_once_paid(self) -> None:
        for parent, parts in self.parts.items():
            for part in parts:
                remaining = self.loop.run_until_complete(self.database.read(predictions.get_any(part)))
                named = self.loop.run_until_complete(
                    self.database.read(many("media_by_name", name=f"{part}.png"))
                )
                assert (remaining.output is not None) == bool(named) == (parent in self.paid)


def _standing(account_ids: tuple[str, ...]) -> Transaction[tuple[tuple[str, ...], list[Account]]]:
    faults = yield from ledger_queries.verify()
    results: list[Account] = []
    for account_id in account_ids:
        results.append((yield from accounts.by_id(account_id)))
    return faults, results


def play(
    backend: str,
    mutant: Mutant | None = None,
    examples: int = 25,
    steps: int = 40,
    base: type[LedgerMachine] = LedgerMachine,
) -> bool:
    """Return whether the ledger passed; a mutant should not.

    Hypothesis derives examples from constants in imported modules, so mutants get many examples to be
    detected reliably.
    """
    machine = type(
        "Machine", (base,), {"backend": backend, "mutant": staticmethod(mutant) if mutant else None}
    )
    # Faults need only be detected, not shrunk.
    phases = [Phase.generate]
    rules = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        phases=phases,
        database=None,
        report_multiple_bugs=False,
        # On a busy machine, a slow example would count as a detected fault.
        suppress_health_check=[HealthCheck.too_slow],
    )
    case: Any = machine.TestCase()
    case.settings = rules
    return mutants.passes(case, mutant)


MUTANTS = {
    "no overdraft guard": statement("ledger_reserve", ">= :amount", "IS NOT NULL"),
    "guard by what is posted, not by what is available": statement("ledger_reserve", "- account.held", ""),
    "guard off by one": statement("ledger_reserve", ">= :amount", "> :amount"),
    "a hold ends twice": statement("hold_end", "state || '' = 'pending' AND ", ""),
    "a capture may exceed its hold": statement("hold_end", "AND amount >= :captured", ""),
    "a capture keeps the rest held": statement("ledger_settle", "held - :amount", "held - :captured"),
    "a capture takes the whole hold": statement("ledger_settle", "posted - :captured", "posted - :amount"),
    "one micro-dollar is let go": statement(
        "ledger_settle", "posted - :captured", "posted - (CASE WHEN :captured = 1 THEN 0 ELSE :captured END)"
    ),
    "revenue is not credited": statement("ledger_post", "posted + :amount", "posted + 0 * :amount"),
    "a release pays out": statement(
        "ledger_settle", "posted - :captured", "posted + (CASE WHEN :captured = 0 THEN 1 ELSE -:captured END)"
    ),
}


@pytest.mark.parametrize(("backend", "examples"), GROUNDS)
def test_ledger_is_consistent_after_any_sequence_of_events(backend: str, examples: int) -> None:
    assert play(backend, examples=examples)


REFUND_MUTANTS = {
    "the state stays": statement("prediction_withdraw", "SET state = :to_state", "SET state = state"),
    "the output stays": statement("prediction_withdraw", "output = NULL, ", ""),
    "the cost stays": statement("prediction_withdraw", "cost = 0, ", ""),
    "the file stays": statement("media_withdraw", "SET expires_at = :now", "SET expires_at = expires_at"),
    "the copy stays": statement("media_withdraw_copies", "= :now", "= expires_at"),
    "the post stays": statement("gallery_withdraw_posts", "WHERE account_id", "WHERE 1 = 0 AND account_id"),
    "the avatar stays": statement("gallery_withdraw_avatars", "avatar = NULL", "avatar = avatar"),
    "the share stays": statement("shares_end_object", "WHERE account_id", "WHERE 1 = 0 AND account_id"),
    "the stored reply stays": statement("idempotency_withdraw", "WHERE id", "WHERE 1 = 0 AND id"),
    "the money stays": statement("ledger_post", "posted + :amount", "posted + MAX(:amount, 0)"),
}


@pytest.mark.parametrize(("backend", "examples"), GROUNDS)
def test_refund_makes_the_result_unavailable(backend: str, examples: int) -> None:
    assert play(backend, examples=examples, base=RefundMachine)


@pytest.mark.parametrize("name", nightly_after(2, REFUND_MUTANTS))
def test_refund_that_keeps_the_result_is_detected(name: str) -> None:
    assert not play("sqlite", REFUND_MUTANTS[name], base=RefundMachine, examples=MANY)


PARTS_MUTANTS = {
    "parts are not withheld": statement("prediction_insert", "THEN 1 ELSE 0", "THEN 0 ELSE 0"),
    "their files are not": statement("media_withhold", "AND withheld = 1", "AND withheld = 2"),
    "parts are never released": statement("predictions_release", "SET withheld = 0", "SET withheld = 1"),
    "their files are never": statement("media_release", "WHERE expires_at < 0", "WHERE expires_at = 0"),
}


@pytest.mark.parametrize(("backend", "examples"), GROUNDS)
def test_parts_of_an_unpaid_result_are_never_readable(backend: str, examples: int) -> None:
    assert play(backend, examples=examples, base=PartsMachine)


@pytest.mark.nightly
@pytest.mark.parametrize("name", PARTS_MUTANTS)
def test_part_that_is_readable_before_payment_is_detected(name: str) -> None:
    assert not play("sqlite", PARTS_MUTANTS[name], base=PartsMachine, examples=MANY)


@pytest.mark.parametrize(("backend", "examples"), GROUNDS)
def test_ledger_is_consistent_after_batched_operations(backend: str, examples: int) -> None:
    assert play(backend, examples=examples, base=SeveralMachine)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(statement("hold_end_each", "state || '' = 'pending' AND ", ""), id="they end twice"),
        pytest.param(statement("ledger_change", ">= :needed", "IS NOT NULL"), id="all is spent"),
        pytest.param(statement("ledger_change", "- account.held", ""), id="the held is spent"),
        pytest.param(statement("ledger_change", "posted + :posted", "posted"), id="nothing is spent"),
        pytest.param(statement("ledger_change", "held + :held", "held"), id="nothing is held"),
        pytest.param(statement("hold_insert_captured", ":captured, 'c", ":amount, 'c"), id="all is taken"),
    ],
)
@pytest.mark.nightly
def test_known_fault_of_batched_operations_is_detected(fault: Mutant) -> None:
    assert not play("sqlite", fault, base=SeveralMachine, examples=MANY)


@pytest.mark.nightly
# The test commits ten thousand transactions, possibly on a slow disk.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("backend", databases.BACKENDS)
def test_ledger_is_consistent_after_ten_thousand_steps(backend: str) -> None:
    assert play(backend, examples=100, steps=100)


# Both databases use the same statements, but PostgreSQL runs batches of one statement differently.
# `make nightly` finds the faults that take long to find.
NIGHTLY = pytest.mark.nightly
QUICK_FAULTS = ("no overdraft guard", "a hold ends twice", "one micro-dollar is let go")
SLOW_FAULTS = sorted(MUTANTS.keys() - set(QUICK_FAULTS))
KNOWN_FAULTS = [
    *((name, "sqlite") for name in QUICK_FAULTS),
    *(pytest.param(name, "postgres", marks=(pytest.mark.postgres, NIGHTLY)) for name in QUICK_FAULTS),
    *(pytest.param(name, "sqlite", marks=NIGHTLY) for name in SLOW_FAULTS),
]


@pytest.mark.parametrize(("name", "backend"), KNOWN_FAULTS)
def test_known_fault_of_the_ledger_is_detected(name: str, backend: str) -> None:
    assert not play(backend, MUTANTS[name], examples=MANY)
