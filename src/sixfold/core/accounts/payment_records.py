"""Payments and subscriptions as reported by a payment processor, in any order and possibly repeated.

A record stores totals, and only the difference from the amounts applied earlier is applied. Therefore the
result does not depend on whether events are repeated, late, or earlier than their payment.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from sixfold.core import money
from sixfold.core.accounts import audit_log, ledger
from sixfold.core.database import Query, Transaction, many, one

FREE_PLAN = "free"
State = Literal["unknown", "live", "paused", "over"]
RANKS: dict[State, int] = {"unknown": 0, "live": 1, "paused": 2, "over": 3}


class RefundEvent(msgspec.Struct, frozen=True):
    """The total amount of a payment, in micro-dollars, refunded by `reported_at` (epoch seconds)."""

    payment: str
    total: int
    reported_at: int = 0


class RefundFailed(msgspec.Struct, frozen=True):
    """A refund that failed after it was reported, so its amount was not paid out."""

    payment: str
    refund: str
    micros: int
    reported_at: int = 0


class InvoicePaid(msgspec.Struct, frozen=True):
    """A payment of an invoice, which a subscription issued."""

    payment: str
    invoice: str
    micros: int


class DisputeEvent(msgspec.Struct, frozen=True):
    """A step of a dispute, which withdrew or reinstated the amount of the payment."""

    payment: str
    dispute: str
    micros: int
    withdrawn: bool
    reinstated: bool
    reported_at: int = 0


class Subscription(msgspec.Struct, frozen=True):
    """The state of a subscription and of its latest invoice at `reported_at` (epoch seconds).

    `account_id`, `plan` and `invoice` may be missing.
    """

    id: str
    state: State
    reported_at: int
    account_id: str | None = None
    plan: str | None = None
    invoice: str | None = None


# -- payments --------------------------------------------------------------------------------------


def record_payment(payment: str, account_id: str, micros: int) -> Transaction[None]:
    """Record a credited payment, and withdraw refunds that were reported before it."""
    yield Query("payment_paid", {"id": payment, "account_id": account_id, "micros": micros})
    yield from _apply_totals(payment)


def is_known(payment: str) -> Transaction[bool]:
    """Return whether the account or the invoice of a payment is known."""
    row = yield from one("payment_standing", id=payment)
    return row is not None and (row["account_id"] or row["invoice"]) is not None


def record_invoice(paid: InvoicePaid) -> Transaction[None]:
    yield Query("payment_invoiced", {"id": paid.payment, "invoice": paid.invoice, "micros": paid.micros})
    yield from _apply_totals(paid.payment)


def record_refund(refund: RefundEvent) -> Transaction[None]:
    """Withdraw the refunded amount from the account."""
    row = {"id": refund.payment, "total": refund.total, "reported_at": refund.reported_at}
    yield Query("payment_refunded", row)
    yield from _apply_totals(refund.payment)


def record_failed_refund(refund: RefundFailed) -> Transaction[None]:
    """Credit the amount of a refund that failed."""
    yield Query("payment_seen", {"id": refund.payment})
    row = {"id": refund.refund, "payment_id": refund.payment, "amount": refund.micros}
    yield Query("payment_refund_failed", {**row, "failed_at": refund.reported_at})
    yield from _apply_totals(refund.payment)


def record_dispute(dispute: DisputeEvent) -> Transaction[None]:
    """Withdraw the disputed amount from the account, or credit it again."""
    yield Query("payment_seen", {"id": dispute.payment})
    yield Query(
        "payment_disputed",
        {
            "id": dispute.dispute,
            "payment_id": dispute.payment,
            "amount": dispute.micros,
            "withdrawn": int(dispute.withdrawn),
            "reinstated": int(dispute.reinstated),
            "reported_at": dispute.reported_at,
        },
    )
    yield from _apply_totals(dispute.payment)


def _apply_totals(payment: str) -> Transaction[None]:
    """Post the difference between the amount that the totals require and the amount withdrawn so far.

    A payment of an invoice pays for a plan instead of credit: the plan depends on the withdrawn amount.
    """
    row = yield from one("payment_standing", id=payment)
    if row is None or (row["account_id"] or row["invoice"]) is None:
        return
    refunded = max(0, int(row["refunded"]) - int(row["failed"]))
    target = min(int(row["paid"]), refunded + int(row["disputed"]))
    change = target - int(row["taken_back"])
    if change == 0:
        return
    yield Query("payment_taken_back", {"id": payment, "taken_back": target})
    if row["account_id"] is None:
        for subscription in (yield from many("subscriptions_of_invoice", invoice=row["invoice"])):
            yield from _choose_plan(str(subscription["account_id"]))
        return
    account_id, amount = str(row["account_id"]), money.format_usd(abs(change))
    text = f"Card payment reversed: {amount} USD" if change > 0 else f"Card payment reinstated: {amount} USD"
    transfer = f"payment:{payment}:{row['moves']}"
    yield from ledger.deposit(
        account_id, -change, ledger.LedgerEntry("reversal", text), transfer, below_zero=True
    )
    yield from audit_log.note(account_id, "account.reversal", money.format_usd(-change))


# -- subscriptions ---------------------------------------------------------------------------------


def record_subscription(update: Subscription) -> Transaction[None]:
    """Store the state of a subscription and update its account's plan. The state `over` is final."""
    stored = yield from one("subscription_by_id", id=update.id)
    account_id, plan = update.account_id, update.plan
    state, reported_at, invoice = update.state, update.reported_at, update.invoice
    if stored is not None:
        account_id, plan = account_id or stored["account_id"], plan or stored["plan"]
        if invoice is None or int(stored["told_at"]) > reported_at:
            invoice = stored["latest_invoice"] or invoice
        before = (int(stored["told_at"]), RANKS[stored["state"]])
        if stored["state"] == "over" or (update.state != "over" and before > (reported_at, RANKS[state])):
            state, reported_at = stored["state"], int(stored["told_at"])
    if account_id is None:
        owner = yield from one("account_by_subscription", subscription=update.id)
        account_id = None if owner is None else str(owner["id"])
    row = {"id": update.id, "account_id": account_id, "plan": plan, "state": state, "told_at": reported_at}
    yield Query("subscription_put", {**row, "invoice": invoice})
    if account_id is not None:
        yield from _choose_plan(account_id)


def end_plan(account_id: str) -> Transaction[None]:
    """End all subscriptions of an account, which changes to the free plan."""
    yield Query("subscriptions_end", {"account_id": account_id})
    yield from _set_plan(account_id, FREE_PLAN, None)


def _choose_plan(account_id: str) -> Transaction[None]:
    account = yield from one("account_by_id", id=account_id)
    if account is None:
        return
    live = yield from many("subscriptions_living", account_id=account_id)
    plan = next((row for row in live if row["id"] == account["subscription"]), None)
    if plan is None and live:
        plan = live[0]
    if plan is not None:
        if (account["plan"], account["subscription"]) != (plan["plan"], plan["id"]):
            yield from _set_plan(account_id, str(plan["plan"]), str(plan["id"]))
    elif account["subscription"] is not None:
        yield from _set_plan(account_id, FREE_PLAN, None)


def _set_plan(account_id: str, plan: str, subscription: str | None) -> Transaction[None]:
    yield Query("account_set_plan", {"id": account_id, "plan": plan, "subscription": subscription})
    yield from audit_log.note(account_id, "account.plan", plan)
