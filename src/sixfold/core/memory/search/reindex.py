"""Re-indexing of pages whose index entries are missing or were written by an older version, in batches."""

from __future__ import annotations

from sixfold.core.database import Database, Query, Rows, Transaction, one
from sixfold.core.memory import pages
from sixfold.core.memory.indexing import entries as index

# Pages per statement.
_BATCH = 200


async def rewrite_outdated(database: Database) -> int:
    """Write all missing and outdated entries, and return their number."""
    rewritten, after = 0, ""
    while True:
        batch = await database.read(one("memory_index_batch", after=after, limit=_BATCH))
        if batch is None or batch["last"] is None:
            return rewritten
        last = str(batch["last"])
        if await database.read(_outdated(after, last)):
            rewritten += await database.write(_rewrite(after, last), durable=False)
        after = last


def _rewrite(after: str, last: str) -> Transaction[int]:
    rows = yield from _outdated(after, last)
    for row in rows:
        page = pages.of(row)
        yield from pages.retag(page)
        yield from pages.reindex(page)
    return len(rows)


def _outdated(after: str, last: str) -> Transaction[Rows]:
    form = {"prefix": index.PREFIX, "length": len(index.PREFIX)}
    return (yield Query("memory_index_outdated", {"after": after, "last": last, **form}))
