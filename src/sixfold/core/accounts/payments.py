"""Purchases of credit and plans through a payment processor."""

from __future__ import annotations

import logging
from typing import Literal, Protocol

import msgspec

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import accounts, audit_log, ledger, payment_records
from sixfold.core.accounts.payment_records import (
    DisputeEvent,
    InvoicePaid,
    RefundEvent,
    RefundFailed,
    Subscription,
)
from sixfold.core.database import Database, Query, Transaction

_LOG = logging.getLogger("sixfold.payments")
Plan = Literal["monthly", "yearly"]
PLANS: dict[Plan, int] = {"monthly": 8 * money.MICROS_PER_USD, "yearly": 80 * money.MICROS_PER_USD}
MIN_AMOUNT, MAX_AMOUNT = 1 * money.MICROS_PER_USD, 10_000 * money.MICROS_PER_USD
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
        """Cancel a subscription; a subscription that has already ended is ignored."""
        ...

    def read(self, body: bytes, signature: str, now_seconds: float) -> PaymentEvent | None:
        """Parse a signed webhook; return None if it is irrelevant.

        Raises `BadRequest` for an invalid signature.
        """
        ...

    async def origin(self, payment: str) -> tuple[PaymentEvent, ...]:
        """Return the events that prove that a payment was made to this server; raises `EngineFailed`."""
        ...


class PaymentReceived(msgspec.Struct, frozen=True):
    """A completed payment. `payment` identifies it across repeated events.

    `intent` is the identifier that refunds and disputes use for the same payment.
    """

    event: str
    payment: str
    account_id: str
    micros: int
    intent: str | None = None


PaymentEvent = PaymentReceived | InvoicePaid | RefundEvent | RefundFailed | DisputeEvent | Subscription


def parse_amount(value: object) -> int:
    """Parse a payment amount in USD, a string or number, to micro-dollars; raises `InvalidInput`."""
    try:
        text = str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
        micros = money.parse_usd(text)
    except ValueError:
        raise _invalid_amount('must be an amount in USD, such as 20 or "19.50"') from None
    if micros % _CENT or not MIN_AMOUNT <= micros <= MAX_AMOUNT:
        minimum, maximum = money.format_usd(MIN_AMOUNT), money.format_usd(MAX_AMOUNT)
        raise _invalid_amount(f"must be {minimum} to {maximum} USD in whole cents")
    return micros


def parse_plan(value: object) -> Plan:
    """Validate the name of a plan; raises `InvalidInput`."""
    for plan in PLANS:
        if value == plan:
            return plan
    problem = errors.Problem("plan", "plan must be one of monthly, yearly", "enum")
    raise errors.InvalidInput([problem])


def _invalid_amount(predicate: str) -> errors.InvalidInput:
    return errors.InvalidInput([errors.Problem("amount_usd", f"amount_usd {predicate}", "amount")])


async def receive(event: PaymentEvent, checkout: Checkout, database: Database) -> None:
    """Apply an event, and query the processor for the origin of an unknown reversed payment.

    Payments for plans, and payments credited by a version that did not handle reversals, are unknown. Raises
    `EngineFailed` if the processor cannot be reached; the processor then repeats the event.
    """
    origin: tuple[PaymentEvent, ...] = ()
    if isinstance(event, RefundEvent | RefundFailed | DisputeEvent) and not await database.read(
        payment_records.is_known(event.payment), snapshot=False
    ):
        origin = await checkout.origin(event.payment)
    await database.write(_apply_all((*origin, event)))


def _apply_all(events: tuple[PaymentEvent, ...]) -> Transaction[None]:
    for event in events:
        yield from apply_event(event)


def apply_event(event: PaymentEvent) -> Transaction[bool]:
    """Apply an event; return False if it was applied earlier or its account is unknown."""
    match event:
        case PaymentReceived():
            return (yield from _credit(event))
        case InvoicePaid():
            yield from payment_records.record_invoice(event)
        case RefundEvent():
            yield from payment_records.record_refund(event)
        case RefundFailed():
            yield from payment_records.record_failed_refund(event)
        case DisputeEvent():
            yield from payment_records.record_dispute(event)
        case Subscription():
            if event.account_id is not None and not (yield from _exists(event.account_id)):
                return False
            yield from payment_records.record_subscription(event)
    return True


def end_plan(account_id: str) -> Transaction[None]:
    """End an account's subscriptions, which changes it to the free plan."""
    yield from payment_records.end_plan(account_id)


def _credit(payment: PaymentReceived) -> Transaction[bool]:
    if not (yield from _exists(payment.account_id)):
        _LOG.warning(
            "a payment was not credited, because its account does not exist",
            extra={"payment": payment.payment, "account_id": payment.account_id},
        )
        return False
    row = {"id": payment.payment, "kind": "paid", "account_id": payment.account_id}
    is_new = bool((yield Query("payment_event_insert", row)))
    if is_new:
        entry = ledger.LedgerEntry("top_up", f"Card payment of {money.format_usd(payment.micros)} USD")
        yield from ledger.deposit(payment.account_id, payment.micros, entry, f"payment:{payment.payment}")
        yield from audit_log.note(payment.account_id, "account.top_up", money.format_usd(payment.micros))
    # A version that did not handle reversals credited payments without a record of the intent.
    if payment.intent is not None and (is_new or not (yield from payment_records.is_known(payment.intent))):
        yield from payment_records.record_payment(payment.intent, payment.account_id, payment.micros)
    return is_new


def _exists(account_id: str) -> Transaction[bool]:
    try:
        account = yield from accounts.by_id(account_id)
    except errors.NotFound:
        return False
    # An erased account has no e-mail address, so its credit could not be used.
    return account.kind != "system" and bool(account.email)
