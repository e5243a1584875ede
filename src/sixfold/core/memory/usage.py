"""The memory plan and its quota: counts of edits, pages, and bytes of all versions."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sixfold import errors
from sixfold.core.database import Transaction, one
from sixfold.core.memory.limits import MemoryLimits

FREE_CREDITS = 100
_OPERATOR = "unlimited"
UNCOUNTED_PLANS = frozenset({"monthly", "yearly", _OPERATOR})
# Bytes of a version or an entry in addition to its texts.
ROW_BYTES = 512
USED_UP = (
    f"The {FREE_CREDITS} free memory credits are used up: "
    "the memory plan is 8 USD per month or 80 USD per year"
)


class Growth(msgspec.Struct, frozen=True):
    """The growth of an account's memory by a change: pages, and bytes of versions or entries."""

    pages: int = 0
    bytes: int = 0

    @classmethod
    def of_texts(cls, texts: Iterable[str], pages: int = 0) -> Growth:
        """Return the growth of one row with these texts."""
        return cls(pages, ROW_BYTES + sum(len(text.encode()) for text in texts))

    def __add__(self, other: Growth) -> Growth:
        return Growth(self.pages + other.pages, self.bytes + other.bytes)


class MemoryUsage(msgspec.Struct, frozen=True):
    """The number of pages created or edited so far, and the plan of the account."""

    used: int
    plan: str

    @property
    def left(self) -> int | None:
        """The remaining credits, or None on a paid plan and for the operator, which are unlimited."""
        return None if self.plan in UNCOUNTED_PLANS else max(0, FREE_CREDITS - self.used)


def spend(account_id: str, limits: MemoryLimits, growth: Growth, edits: int = 1) -> Transaction[None]:
    """Count the pages that this transaction creates or edits, and the growth of the memory.

    Raises `InsufficientCredits` if plans are enforced and the free credits are used up, and `TooLarge` above
    the quota; the operator's account is exempt.
    """
    row = yield from one(
        "memory_spend", account_id=account_id, cost=edits, pages=growth.pages, bytes=growth.bytes
    )
    if row is None or row["plan"] is None:
        raise errors.NotFound("The account was not found")
    if limits.plans_enforced and row["plan"] not in UNCOUNTED_PLANS and row["used"] > FREE_CREDITS:
        raise errors.InsufficientCredits(USED_UP)
    if row["plan"] != _OPERATOR:
        _check("pages", row["pages"], growth.pages, limits.account_pages)
        _check("bytes of pages and their versions", row["bytes"], growth.bytes, limits.account_bytes)


def _check(noun: str, present: int, added: int, limit: int) -> None:
    if added > 0 and present > limit:
        raise errors.TooLarge(
            f"The memory of this account is limited to {limit:,} {noun} (this change needs {present:,}): "
            "ask the operator to raise the limit"
        )


def of(account_id: str) -> Transaction[MemoryUsage]:
    row = yield from one("memory_used", account_id=account_id)
    return MemoryUsage(row["used"], row["plan"]) if row is not None else MemoryUsage(0, "free")
