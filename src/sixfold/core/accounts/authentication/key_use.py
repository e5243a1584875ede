"""The times at which keys were last used, stored once a minute so that requests do not write them."""

from __future__ import annotations

import asyncio

from sixfold import errors
from sixfold.core.database import Database, Query, Transaction, encode_json

STORE_SECONDS = 60
# Keys per statement.
_BATCH = 1000


class KeyUse:
    """The keys that were used since the last write."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._used: set[str] = set()

    def note(self, key_id: str) -> None:
        """Record that a key is used now."""
        self._used.add(key_id)

    async def run(self) -> None:
        """Store the use of keys every minute, until canceled."""
        while True:
            await asyncio.sleep(STORE_SECONDS)
            await self.store()

    async def store(self) -> None:
        """Store the use of all recorded keys; if that fails, the next call repeats it."""
        used, self._used = self._used, set()
        if not used:
            return
        try:
            await self._database.write(_store(sorted(used)), durable=False)
        except errors.StoreFailed:
            self._used |= used


def _store(key_ids: list[str]) -> Transaction[None]:
    for start in range(0, len(key_ids), _BATCH):
        text = encode_json(key_ids[start : start + _BATCH])
        yield Query("keys_used", {"ids": text})
