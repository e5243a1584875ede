"""The memory plan: a counter beside the money, of pages created and edited."""

from __future__ import annotations

from dataclasses import dataclass

from sixfold import errors
from sixfold.core.database import Transaction, one
from sixfold.core.memory.limits import Limits

FREE_CREDITS = 100
UNCOUNTED_PLANS = frozenset({"monthly", "yearly", "unlimited"})  # the last is the operator's own
USED_UP = (
    f"The {FREE_CREDITS} free memory credits are used up: "
    "the memory plan is 8 USD per month or 80 USD per year"
)


@dataclass(frozen=True, slots=True)
class Usage:
    """Pages created or edited so far, and the plan of the account."""

    used: int
    plan: str

    @property
    def left(self) -> int | None:
        """Credits that are left; None on a paid plan and for the operator, who have no end."""
        return None if self.plan in UNCOUNTED_PLANS else max(0, FREE_CREDITS - self.used)


def spend(account_id: str, limits: Limits, pages: int = 1) -> Transaction[None]:
    """Count pages that this transaction creates or edits.

    Raises `InsufficientCredits` where plans are enforced, credits are used up and no plan is paid; never
    for the operator's account.
    """
    row = yield from one("memory_spend", account_id=account_id, cost=pages)
    if row is None or row["plan"] is None:
        raise errors.NotFound("There is no such account")
    if limits.plans_enforced and row["plan"] not in UNCOUNTED_PLANS and row["used"] > FREE_CREDITS:
        raise errors.InsufficientCredits(USED_UP)


def of(account_id: str) -> Transaction[Usage]:
    """What an account has used."""
    row = yield from one("memory_used", account_id=account_id)
    return Usage(row["used"], row["plan"]) if row is not None else Usage(0, "free")
