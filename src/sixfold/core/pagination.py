"""Pages of lists with a limit on their size in bytes."""

from __future__ import annotations

from sixfold.core.database import Query, Transaction, Value

PAGE_BYTES = 8 * 2**20


def fitting(query: str, params: dict[str, Value], limit: int) -> Transaction[tuple[int, int]]:
    """Return how many rows of a list fit into `PAGE_BYTES`, at least one, and how many exist up to `limit`.

    `query` returns the `size` of each row in the list's order.
    """
    rows = yield Query(query, {**params, "limit": limit})
    left, count = PAGE_BYTES, 0
    for row in rows:
        left -= row["size"]
        if left < 0 and count:
            break
        count += 1
    return count, len(rows)
