"""Purchases of credit and plans through a payment processor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import accounts, audit_log, ledger, payment_records
from sixfold.core.accounts.payment_records import Disputed, Refunded, Subscription
from sixfold.core.database import Query, Transaction

Plan = Literal["monthly", "yearly"]
PLANS: dict[Plan, int] = {"monthly": 8 * money.MICROS_PER_USD, "yearly": 80 * money.MICROS_PER_USD}
LEAST, MOST = 1 * money.MICROS_PER_USD, 10_000 * money.MICROS_PER_USD
_CENT = money.MICROS_PER_USD // 100


class Checkout(Protocol):
    """A payment processor. Methods raise `NotConfigured` or `EngineFailed`."""

    async def top_up(self, account_id: str, email: str, micros: int) -> str:
        """Return the URL of a payment page for `micros` of credit, which must be whole cents."""
        ...

    async def subscribe(self, account_id: str, email: str, plan: Plan) -> str:
        """Return the URL of a payment page for a memory plan."""
        ...

    async def end(self, subscription: str, account_id: str) -> None:
        """Cancel a subscription; ignores one that has already ended."""
        ...

    def read(self, body: bytes, signature: str, now_seconds: float) -> Told | None:
        """Parse a signed webhook; None if it is irrelevant. Raises `BadRequest` for an invalid signature."""
        ...


@dataclass(frozen=True, slots=True)
class PaymentReceived:
    """A completed payment. `payment` identifies it across repeated events.

    `intent` is the identifier that refunds and disputes use for the same payment.
    """

    event: str
    payment: str
    account_id: str
    micros: int
    intent: str | None = None


Told = PaymentReceived | Refunded | Disputed | Subscription


def amount(value: object) -> int:
    """Parse a payment amount, a text or number in USD, to micro-dollars; raises `InvalidInput`."""
    try:
        text = str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
        micros = money.parse_usd(text)
    except ValueError:
        raise _refused('must be an amount in USD, such as 20 or "19.50"') from None
    if micros % _CENT or not LEAST <= micros <= MOST:
        least, most = money.format_usd(LEAST), money.format_usd(MOST)
        raise _refused(f"must be {least} to {most} USD in whole cents")
    return micros


def plan(value: object) -> Plan:
    """Validate the name of a plan; raises `InvalidInput`."""
    for known in PLANS:
        if value == known:
            return known
    problem = errors.Problem("plan", "plan must be one of monthly, yearly", "enum")
    raise errors.InvalidInput([problem])


def _refused(predicate: str) -> errors.InvalidInput:
    return errors.InvalidInput([errors.Problem("amount_usd", f"amount_usd {predicate}", "amount")])


def settle(told: Told) -> Transaction[bool]:
    """Apply an event; returns False if it was applied before or its account is unknown."""
    match told:
        case PaymentReceived():
            return (yield from _paid(told))
        case Refunded():
            yield from payment_records.refunded(told)
        case Disputed():
            yield from payment_records.disputed(told)
        case Subscription():
            if told.account_id is not None and not (yield from _known(told.account_id)):
                return False
            yield from payment_records.subscribed(told)
    return True


def end_plan(account_id: str) -> Transaction[None]:
    """End an account's subscriptions, which puts it on the free plan."""
    yield from payment_records.end_plan(account_id)


def _paid(told: PaymentReceived) -> Transaction[bool]:
    if not (yield from _known(told.account_id)):
        return False
    event = {"id": told.payment, "kind": "paid", "account_id": told.account_id}
    if not (yield Query("payment_event_insert", event)):
        return False
    entry = ledger.LedgerEntry("top_up", f"Card payment of {money.format_usd(told.micros)} USD")
    yield from ledger.deposit(told.account_id, told.micros, entry, f"payment:{told.payment}")
    if told.intent is not None:
        yield from payment_records.paid(told.intent, told.account_id, told.micros)
    yield from audit_log.note(told.account_id, "account.top_up", money.format_usd(told.micros))
    return True


def _known(account_id: str) -> Transaction[bool]:
    try:
        yield from accounts.by_id(account_id)
    except errors.NotFound:
        return False
    return True
