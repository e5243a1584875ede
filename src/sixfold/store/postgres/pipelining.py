"""Execution of one statement for many transactions in one round trip.

A round trip costs several times as much as a small statement. A statement that many transactions run at the
same time becomes a temporary function, which loops over arrays of arguments in the database server. Each
iteration sees the changes of those before it: a balance that covers some of the requests is spent in their
order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sixfold.core.database import Row
from sixfold.store.postgres.binding import PreparedStatement
from sixfold.store.postgres.connection import PostgresConnection

_ARGUMENT = re.compile(r"\$(\d+)::(text|bigint|double precision|bytea)")
_FUNCTION = """
CREATE OR REPLACE FUNCTION pg_temp.{name}({types}) RETURNS TABLE ({columns}) LANGUAGE plpgsql AS $fold$
#variable_conflict use_column
BEGIN FOR fold_turn IN 1 .. cardinality($1) LOOP {statement}; END LOOP; END $fold$"""
_ROWS = "RETURN QUERY WITH done AS ({statement}) SELECT done.*, fold_turn::bigint FROM done"


class StatementBatcher:
    """Batch functions of one session, by statement."""

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}
        self._fresh: list[str] = []  # statements whose functions are not committed yet
        self._made = 0

    def reset(self) -> None:
        """Forget all functions, for a new session."""
        self._calls.clear()
        self._fresh.clear()

    def committed(self) -> None:
        """Note that functions created in this transaction are permanent for the session."""
        self._fresh.clear()

    def rolled_back(self) -> None:
        """Forget the functions created since the last commit."""
        for text in self._fresh:
            self._calls.pop(text, None)
        self._fresh.clear()

    async def run(
        self, connection: PostgresConnection, prepared: PreparedStatement, arguments: Sequence[Sequence[Any]]
    ) -> list[list[Row]]:
        """Return the rows of each set of arguments; the number of the set follows a row's columns."""
        if len(arguments) == 1 or not prepared.names:
            return [await connection.fetch(prepared.text, *given) for given in arguments]
        call = self._calls.get(prepared.text) or await self._make(connection, prepared)
        turns: list[list[Row]] = [[] for _ in arguments]
        for row in await connection.fetch(call, *map(list, zip(*arguments, strict=True))):
            turns[int(row["fold_nr"]) - 1].append(row)
        return turns

    async def _make(self, connection: PostgresConnection, prepared: PreparedStatement) -> str:
        self._made += 1
        name = f"fold_{self._made}"
        kinds = {int(number): kind for number, kind in _ARGUMENT.findall(prepared.text)}
        types = ", ".join(f"{kinds[number]}[]" for number in sorted(kinds))
        statement = _ARGUMENT.sub(r"($\1)[fold_turn]", prepared.text)
        described: Any = await connection.prepare(prepared.text)
        columns: list[str] = [f'"{column.name}" {column.type.name}' for column in described.get_attributes()]
        if columns:
            statement = _ROWS.format(statement=statement)
        await connection.execute(
            _FUNCTION.format(
                name=name, types=types, columns=", ".join([*columns, "fold_nr bigint"]), statement=statement
            )
        )
        self._fresh.append(prepared.text)
        places = ", ".join(f"${number}::{kinds[number]}[]" for number in sorted(kinds))
        call = self._calls[prepared.text] = f"SELECT * FROM pg_temp.{name}({places})"  # noqa: S608 - our own
        return call
