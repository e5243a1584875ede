"""Rows and blocks that PostgreSQL reads for each query of a transaction, by its own statistics."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from sixfold.core.database import Transaction
from sixfold.store import sql
from sixfold.store.postgres.binding import PostgresBinder

T = TypeVar("T")
_LOST = ("Rows Removed by Filter", "Rows Removed by Index Recheck")


class Explained:
    """Database over one connection that explains each statement before it runs it."""

    def __init__(self, connection: Any) -> None:
        # The largest number of rows that one scan has read, by the name of the query.
        self.rows = Counter[str]()
        self._connection = connection
        self._queries = sql.queries("postgres")
        self._bind = PostgresBinder()

    async def read(self, transaction: Transaction[T], *, snapshot: bool = True, in_thread: bool = False) -> T:
        result: Sequence[Mapping[str, Any]] | None = None
        while True:
            try:
                query = next(transaction) if result is None else transaction.send(result)
            except StopIteration as end:
                return end.value
            result = []
            for params in sql.turns(query):
                prepared = self._bind(self._queries[query.name].sql, params)
                inputs = prepared.arguments(params)
                read = await self._explain(prepared.text, inputs)
                self.rows[query.name] = max(self.rows[query.name], read)
                result += await self._connection.fetch(prepared.text, *inputs)

    async def write(self, transaction: Transaction[T], *, durable: bool = True) -> T:
        """Explain and run the statements of a write in one transaction."""
        async with self._connection.transaction():
            return await self.read(transaction)

    async def close(self) -> None:
        await self._connection.close()

    async def _explain(self, text: str, inputs: Sequence[Any]) -> int:
        """Explain a statement with the plan for these values and with the generic plan of later calls."""
        arguments = f"({', '.join(map(_literal, inputs))})" if inputs else ""
        response = self._connection.transaction()
        await response.start()
        most = 0
        for mode in ("force_custom_plan", "force_generic_plan"):
            await self._connection.execute(
                f"SAVEPOINT s; SET LOCAL plan_cache_mode = {mode}; PREPARE e AS {text}"
            )
            plan = await self._connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE e{arguments}")
            await self._connection.execute("DEALLOCATE e; ROLLBACK TO s")
            most = max(most, _most(json.loads(plan)[0]["Plan"]))
        await response.rollback()
        return most


def _literal(value: str | int | float | bytes) -> str:
    if isinstance(value, bytes):
        return f"'\\x{value.hex()}'::bytea"
    return str(value) if not isinstance(value, str) else "'" + value.replace("'", "''") + "'"


def _most(node: Mapping[str, Any]) -> int:
    """Return the largest number of rows that a scan in the plan has read, including filtered rows."""
    read = sum(node.get(name, 0) for name in ("Actual Rows", *_LOST)) * node["Actual Loops"]
    below = max(map(_most, node.get("Plans", ())), default=0)
    return max(below, round(read) if "Relation Name" in node else 0)
