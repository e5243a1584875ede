"""Credit and plans that are bought: what is asked of a payment processor, and what its word changes here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from sixfold import errors
from sixfold.core import money
from sixfold.core.accounts import accounts, audit, ledger
from sixfold.core.database import Query, Transaction, one

Plan = Literal["monthly", "yearly"]
PLANS: dict[Plan, int] = {"monthly": 8 * money.MICROS_PER_USD, "yearly": 80 * money.MICROS_PER_USD}
FREE_PLAN = "free"
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

    def read(self, body: bytes, signature: str, now_seconds: float) -> Paid | Subscribed | Ended | None:
        """What a signed message says, None where it is nothing to us; raises `BadRequest` if forged."""
        ...


@dataclass(frozen=True, slots=True)
class Paid:
    """Credit was paid. `payment` names it for good, however many events tell of it."""

    event: str
    payment: str
    account_id: str
    micros: int


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A plan is paid."""

    event: str
    account_id: str
    plan: Plan
    subscription: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A subscription is over."""

    event: str
    subscription: str


def amount(value: object) -> int:
    """Micro-dollars of an amount to be paid, a text or a number in USD; raises `InvalidInput`."""
    text = str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    try:
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


def settle(told: Paid | Subscribed | Ended) -> Transaction[bool]:
    """Let a processor's word count, once; False when it counted before, or is about nobody here."""
    match told:
        case Paid():
            return (yield from _paid(told))
        case Subscribed():
            return (yield from _subscribed(told))
        case Ended():
            row = yield from one("account_by_subscription", subscription=told.subscription)
            if row is None or not (yield from _first(told.event, "ended", str(row["id"]))):
                return False
            yield from end_plan(str(row["id"]))
            return True


def end_plan(account_id: str) -> Transaction[None]:
    """Its plan is over: the account has the free one."""
    yield from _set_plan(account_id, FREE_PLAN, None)


def _paid(told: Paid) -> Transaction[bool]:
    if not (yield from _known(told.account_id)):
        return False
    if not (yield from _first(told.payment, "paid", told.account_id)):
        return False
    entry = ledger.Entry("top_up", f"Card payment of {money.format_usd(told.micros)} USD")
    yield from ledger.deposit(told.account_id, told.micros, entry, f"payment:{told.payment}")
    yield from audit.note(told.account_id, "account.top_up", money.format_usd(told.micros))
    return True


def _subscribed(told: Subscribed) -> Transaction[bool]:
    if not (yield from _known(told.account_id)):
        return False
    if not (yield from _first(told.event, "subscribed", told.account_id)):
        return False
    yield from _set_plan(told.account_id, told.plan, told.subscription)
    return True


def _known(account_id: str) -> Transaction[bool]:
    try:
        yield from accounts.by_id(account_id)
    except errors.NotFound:
        return False
    return True


def _first(event: str, kind: str, account_id: str) -> Transaction[bool]:
    rows = yield Query("payment_event_insert", {"id": event, "kind": kind, "account_id": account_id})
    return bool(rows)


def _set_plan(account_id: str, plan: str, subscription: str | None) -> Transaction[None]:
    yield Query("account_set_plan", {"id": account_id, "plan": plan, "subscription": subscription})
    yield from audit.note(account_id, "account.plan", plan)
