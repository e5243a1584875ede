"""Credit and plans that are bought: what is asked of a payment processor, and what its word changes here."""

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
    """A payment processor, as far as buying goes. Raises `NotConfigured` or `EngineFailed`."""

    async def top_up(self, account_id: str, email: str, micros: int) -> str:
        """The address of a page on which so much credit is paid, whole cents."""
        ...

    async def subscribe(self, account_id: str, email: str, plan: Plan) -> str:
        """The address of a page on which a memory plan is paid from now on."""
        ...

    async def end(self, subscription: str, account_id: str) -> None:
        """Take no more money for a subscription; one that is over already is no fault."""
        ...

    def read(self, body: bytes, signature: str, now_seconds: float) -> Told | None:
        """What a signed message says, None where it is nothing to us; raises `BadRequest` if forged."""
        ...


@dataclass(frozen=True, slots=True)
class PaymentReceived:
    """Credit was paid. `payment` names it for good, however many events tell of it.

    `intent` is how refunds and disputes name the same payment.
    """

    event: str
    payment: str
    account_id: str
    micros: int
    intent: str | None = None


Told = PaymentReceived | Refunded | Disputed | Subscription


def amount(value: object) -> int:
    """Micro-dollars of an amount to be paid, a text or a number in USD; raises `InvalidInput`."""
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
    """A checked plan; raises `InvalidInput`."""
    for known in PLANS:
        if value == known:
            return known
    problem = errors.Problem("plan", "plan must be one of monthly, yearly", "enum")
    raise errors.InvalidInput([problem])


def _refused(predicate: str) -> errors.InvalidInput:
    return errors.InvalidInput([errors.Problem("amount_usd", f"amount_usd {predicate}", "amount")])


def settle(told: Told) -> Transaction[bool]:
    """Apply what a processor tells; False when it was applied before, or is about nobody here."""
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
    """Its plan is over: the account has the free one."""
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
