"""Re-indexing of pages whose index entries are missing or were written by an older version, in batches."""

from __future__ import annotations

from sixfold.core.database import Database, Query, Rows, Transaction, one
from sixfold.core.memory import pages
from sixfold.core.memory.indexing import entries as index

# Pages that one statement looks through, and pages that one transaction rewrites: other writes wait for it.
_BATCH, _MAX_REWRITTEN = 200, 10


async def rewrite_outdated(database: Database) -> int:
    """Write all missing and outdated entries, and return their number."""
    rewritten, after = 0, ""
    while True:
        batch = await database.read(one("memory_index_batch", after=after, limit=_BATCH))
        if batch is None or batch["last"] is None:
            return rewritten
        last = str(batch["last"])
        while await database.read(_outdated(after, last, limit=1)):
            ids = await database.write(_rewrite(after, last), durable=False)
            rewritten += len(ids)
            after = ids[-1] if ids else last
        after = last


def _rewrite(after: str, last: str) -> Transaction[list[str]]:
    rows = yield from _outdated(after, last, limit=_MAX_REWRITTEN)
    for row in rows:
        page = pages.of(row)
        yield from pages.retag(page)
        yield from pages.reindex(page)
    return [str(row["id"]) for row in rows]


def _outdated(after: str, last: str, limit: int) -> Transaction[Rows]:
    form = {"prefix": index.PREFIX, "length": len(index.PREFIX)}
    return (yield Query("memory_index_outdated", {"after": after, "last": last, "limit": limit, **form}))
