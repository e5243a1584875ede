"""Batches: requests that call a model, with their cost and the page versions that they wrote.

The amount that a request may spend is reserved in the row when the request starts, so that concurrent
requests together cannot exceed the daily limit. The reservation of a request that a crash interrupts remains
until the end of the day.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypedDict

import msgspec

from sixfold import errors
from sixfold.core import ids, money
from sixfold.core.clock import DAY_US, rfc3339
from sixfold.core.database import Query, Row, Rows, Transaction, Value, now, one
from sixfold.core.memory.facts.ports import SpendingLimits
from sixfold.core.memory.models import Caller

BatchKind = Literal["remember", "answer"]
# The rows of answers are only needed for the daily limit.
_ANSWERS_US = 2 * DAY_US


class MemoryBatchSchema(TypedDict):
    """A request of `remember`, with its cost and state: `running`, `done` or `undone`."""

    batch: str
    state: str
    folder: str
    source: str
    created_by: str
    created_at: str
    cost_usd: money.Usd


class BatchStart(msgspec.Struct, frozen=True):
    """A new batch: its id, its start in epoch µs, and the micro-dollars that it may spend.

    The row `paid_id` counts the amount. It is the batch's own row, or a separate row of the paying account if
    the batch is in a folder of another account.
    """

    id: str
    at: int
    budget: int
    paid_id: str


class BatchPage(msgspec.Struct, frozen=True):
    """A page of a batch, with its version before the batch (0 for a new page) and after it."""

    page_id: str
    before: int
    after: int


def begin(
    caller: Caller,
    payer_id: str,
    kind: BatchKind,
    label: tuple[str, str],
    limits: SpendingLimits,
    max_cost: int,
) -> Transaction[BatchStart]:
    """Reserve up to `max_cost` micro-dollars, and store a batch with its label (folder, source).

    The limit is that of the account `payer_id`: it is not the caller's account in a shared folder. Raises
    `BudgetExceeded` if the daily limit is reached.
    """
    moment = yield from now()
    yield Query("memory_answers_forget", {"account_id": payer_id, "before": moment - _ANSWERS_US})
    row = yield from one("memory_batches_spent", account_id=payer_id, since=moment - moment % DAY_US)
    remaining = limits.day - int(row["spent"] if row is not None else 0)
    budget = min(max_cost, limits.call)
    if budget > 0 and remaining <= 0:
        raise errors.BudgetExceeded(
            f"The account's requests to the memory model have cost {money.format_usd(limits.day)} USD "
            "today: try again after 00:00 UTC, or ask the operator to raise SIXFOLD_MEMORY_DAY_USD"
        )
    budget = max(0, min(budget, remaining))
    values: dict[str, Value] = {"created_by": caller.name, "at": moment}
    batch_id = paid_id = ids.new("batch")
    if kind == "remember" and payer_id != caller.account_id:
        batch = {"account_id": caller.account_id, "kind": kind, "folder": label[0], "source": label[1]}
        yield Query("memory_batch_put", {**values, **batch, "id": batch_id, "reserved": 0})
        # The row that counts against the payer's limit, in the payer's account.
        kind, label, paid_id = "answer", ("", ""), ids.new("batch")
    counted = {"account_id": payer_id, "kind": kind, "folder": label[0], "source": label[1]}
    yield Query("memory_batch_put", {**values, **counted, "id": paid_id, "reserved": budget})
    return BatchStart(batch_id, moment, budget, paid_id)


def finish(start: BatchStart, cost: int) -> Transaction[None]:
    """Replace the reservation of a batch with its cost."""
    yield Query("memory_batch_finish", {"id": start.paid_id, "cost": cost})
    if start.id != start.paid_id:
        yield Query("memory_batch_finish", {"id": start.id, "cost": 0})


def add_pages(batch_id: str, written: Sequence[BatchPage]) -> Transaction[None]:
    """Record page versions; a page that the batch has already written keeps its first version."""
    for page in written:
        yield Query(
            "memory_batch_page_put",
            {"batch_id": batch_id, "page_id": page.page_id, "before": page.before, "after": page.after},
        )


def find(caller: Caller, batch_id: str) -> Transaction[Row]:
    """Return a batch of `remember`; raises `NotFound`."""
    row = yield from one("memory_batch_find", account_id=caller.account_id, id=batch_id)
    if row is None or not _shows(caller, row):
        raise errors.NotFound(f"Batch {batch_id[:80]} not found")
    return row


def pages_of(batch_id: str) -> Transaction[tuple[BatchPage, ...]]:
    rows = yield Query("memory_batch_pages", {"batch_id": batch_id})
    return tuple(BatchPage(row["page_id"], row["version_before"], row["version_after"]) for row in rows)


def mark_undone(batch_id: str) -> Transaction[None]:
    yield Query("memory_batch_undone", {"id": batch_id})


def list_batches(caller: Caller, limit: int, before: str) -> Transaction[Rows]:
    """Return up to `limit` + 1 batches of `remember`, newest first, that the caller can see."""
    return (
        yield Query(
            "memory_batches_list",
            {
                "account_id": caller.account_id,
                "before": before,
                "created_by": caller.name if caller.collections else "",
                "limit": limit + 1,
            },
        )
    )


def to_json(row: Row) -> MemoryBatchSchema:
    return {
        "batch": row["id"],
        "state": row["state"],
        "folder": row["folder"],
        "source": row["source"],
        "created_by": row["created_by"],
        "created_at": rfc3339(row["created_at"]),
        "cost_usd": money.format_usd(row["cost"]),
    }


def _shows(caller: Caller, row: Row) -> bool:
    """Return whether a caller can see a batch: a caller with limits sees only its own batches."""
    return not caller.collections or row["created_by"] == caller.name
