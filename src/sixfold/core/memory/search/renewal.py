"""Entries of another form, which an older program has written, are written anew by a newer one."""

from __future__ import annotations

from sixfold.core.database import Query, Transaction
from sixfold.core.memory import pages
from sixfold.core.memory.indexing import entries as index

_AT_ONCE = 100


def step() -> Transaction[int]:
    """Renew the entries of some pages; gives how many it was. Until then search does not find them."""
    rows = yield Query(
        "memory_index_outdated",
        {"prefix": index.PREFIX, "length": len(index.PREFIX), "limit": _AT_ONCE},
    )
    for row in rows:
        yield from pages.reindex(pages.of(row))
    return len(rows)
