"""Pages of lists: how many of the newest or oldest rows fit into the bytes of one page."""

from __future__ import annotations

from sixfold.core.database import Query, Transaction, Value

PAGE_BYTES = 8 * 2**20


def fitting(query: str, params: dict[str, Value], limit: int) -> Transaction[tuple[int, int]]:
    """How many rows of a list fit into `PAGE_BYTES`, at least one, and how many there are up to `limit`.

    `query` gives the `size` of each row in its order.
    """
    rows = yield Query(query, {**params, "limit": limit})
    left, count = PAGE_BYTES, 0
    for row in rows:
        left -= row["size"]
        if left < 0 and count:
            break
        count += 1
    return count, len(rows)
