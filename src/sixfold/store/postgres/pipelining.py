"""Execution of one statement for many transactions in one round trip.

A round trip costs several times as much as a small statement. A statement that many transactions run at the
same time becomes a temporary function, which loops over arrays of arguments in the database server. Each
iteration sees the changes of those before it: a balance that covers only some of the requests is spent in
order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg  # pyright: ignore[reportMissingTypeStubs] # it has none

from sixfold.core.database import Row
from sixfold.store.postgres.binding import INSERT, Changes, PreparedStatement, merge
from sixfold.store.postgres.connection import WRITING, PostgresConnection

_ARGUMENT = re.compile(r"\$(\d+)::(text|bigint|double precision|bytea)")
_FUNCTION = """
CREATE OR REPLACE FUNCTION pg_temp.{name}({types}) RETURNS TABLE ({columns}) LANGUAGE plpgsql AS $fold$
#variable_conflict use_column
BEGIN FOR fold_turn IN 1 .. cardinality($1) LOOP {statement}; END LOOP; END $fold$"""
# The same for a query with a statement for all sets of arguments at once (`NAME_together` of a query `NAME`).
# It returns rows for the sets that it has processed, each with the number of the set; the other sets run one
# after the other.
_TOGETHER = """
CREATE OR REPLACE FUNCTION pg_temp.{name}({types}) RETURNS TABLE ({columns}) LANGUAGE plpgsql AS $fold$
#variable_conflict use_column
DECLARE fold_done boolean[];
BEGIN FOR {targets} IN {together} LOOP RETURN NEXT; fold_done[fold_nr] := true; END LOOP;
FOR fold_turn IN 1 .. cardinality($1) LOOP CONTINUE WHEN fold_done[fold_turn]; {statement}; END LOOP;
END $fold$"""
_TURNS = re.compile(r"\bFROM turns\b")
_REFUSED = "SX001"  # SQLSTATE
# The function's first arguments: whether it runs as a separate transaction, whether that transaction needs no
# fsync, and the numbers of rows that the steps must change, or NULL.
_CHANGES = f"""
CREATE OR REPLACE FUNCTION pg_temp.{{name}}(boolean, boolean, bigint[], {{types}})
RETURNS bigint[] LANGUAGE plpgsql AS $fold$
#variable_conflict use_column
DECLARE fold_rows bigint; fold_changed bigint; fold_all bigint[] := '{{{{}}}}';
BEGIN
IF $1 THEN PERFORM pg_advisory_xact_lock_shared({WRITING}); END IF;
IF $2 THEN PERFORM set_config('synchronous_commit', 'off', true); END IF;
{{steps}}
RETURN fold_all; END $fold$"""
_SET_STEP = "{statement}; GET DIAGNOSTICS fold_changed = ROW_COUNT;"
_LOOP_STEP = """fold_changed := 0;
FOR fold_turn IN 1 .. cardinality(${first}) LOOP {statement};
GET DIAGNOSTICS fold_rows = ROW_COUNT; fold_changed := fold_changed + fold_rows; END LOOP;"""
_CHECK = f"""
fold_all := fold_all || fold_changed;
IF fold_changed <> $3[{{number}}] THEN RAISE EXCEPTION '{{number}}' USING ERRCODE = '{_REFUSED}'; END IF;"""
_FIRST = 3  # arguments before those of the steps
_SEVERAL = re.compile(r"\)\s*,\s*\(")  # rows in one VALUES
_ROWS = "RETURN QUERY WITH done AS ({statement}) SELECT done.*, fold_turn::bigint FROM done"


class StatementBatcher:
    """The batch functions of one session, by statement."""

    def __init__(self) -> None:
        self._calls: dict[str | tuple[str, ...], str] = {}
        self._fresh: list[str | tuple[str, ...]] = []  # statements whose functions are not committed yet
        self._function_count = 0

    def reset(self) -> None:
        """Forget all functions, for a new session."""
        self._calls.clear()
        self._fresh.clear()

    def committed(self) -> None:
        """Record that functions created in this transaction are permanent for the session."""
        self._fresh.clear()

    def rolled_back(self) -> None:
        """Forget the functions created since the last commit."""
        for text in self._fresh:
            self._calls.pop(text, None)
        self._fresh.clear()

    async def run(
        self,
        connection: PostgresConnection,
        prepared: PreparedStatement,
        arguments: Sequence[Sequence[Any]],
        together: str = "",
    ) -> list[list[Row]]:
        """Return the rows of each set of arguments; the last column of a row is the number of the set.

        `together` is a statement for all sets at once, with the same arguments.
        """
        if len(arguments) == 1 or not prepared.names:
            return [await connection.fetch(prepared.text, *parameters) for parameters in arguments]
        call = self._calls.get(prepared.text) or await self._make(connection, prepared, together)
        turns: list[list[Row]] = [[] for _ in arguments]
        for row in await connection.fetch(call, *map(list, zip(*arguments, strict=True))):
            turns[int(row["fold_nr"]) - 1].append(row)
        return turns

    async def _make(self, connection: PostgresConnection, prepared: PreparedStatement, together: str) -> str:
        self._function_count += 1
        name = f"fold_{self._function_count}"
        kinds = _types(prepared.text)
        types = ", ".join(f"{kind}[]" for kind in kinds.values())
        statement = _ARGUMENT.sub(r"($\1)[fold_turn]", prepared.text)
        described: Any = await connection.prepare(prepared.text)
        attributes = described.get_attributes()
        columns: list[str] = [f'"{column.name}" {column.type.name}' for column in attributes]
        if columns:
            statement = _ROWS.format(statement=statement)
        function = (_TOGETHER if together else _FUNCTION).format(
            name=name,
            types=types,
            columns=", ".join([*columns, "fold_nr bigint"]),
            targets=", ".join([*(f'"{column.name}"' for column in attributes), "fold_nr"]),
            together=_over_turns(together, kinds),
            statement=statement,
        )
        await connection.execute(function)
        self._fresh.append(prepared.text)
        places = ", ".join(f"${number}::{kinds[number]}[]" for number in kinds)
        call = self._calls[prepared.text] = f"SELECT * FROM pg_temp.{name}({places})"  # noqa: S608 - our own
        return call

    async def change(
        self,
        connection: PostgresConnection,
        changes: Sequence[Changes],
        *,
        alone: bool = False,
        durable: bool = True,
    ) -> list[int]:
        """Run the changes in order, in one round trip; return the number of rows that each changed.

        An `INSERT` inserts all rows at once; other statements run for one set of arguments after the other,
        so rows are locked in their order. If `alone`, the changes are one transaction, which may run beside
        those of other servers. Raises `PostgresError` with the state of `refused_part` if a change does not
        affect the expected number of rows.
        """
        texts = tuple(change.text for change in changes)
        call = self._calls.get(texts) or await self._make_changes(connection, texts)
        if alone:
            self.committed()
        arguments = [column for change in changes for column in change.columns]
        expected = [change.expected for change in changes]
        return await connection.fetchval(call, alone, alone and not durable, expected, *arguments)

    async def change_all(
        self, connection: PostgresConnection, members: Sequence[Sequence[Changes]]
    ) -> list[list[int]]:
        """Run the same changes for multiple members; return the numbers of changed rows for each member.

        All run in one round trip if the expected numbers of the changes determine the result.
        """
        counts = [[change.known for change in changes] for changes in members]
        if len(members) == 1 or any(None in numbers for numbers in counts):
            return [await self.change(connection, changes) for changes in members]
        await self.change(connection, [merge(turns) for turns in zip(*members, strict=True)])
        return [[number for number in numbers if number is not None] for numbers in counts]

    async def _make_changes(self, connection: PostgresConnection, texts: tuple[str, ...]) -> str:
        self._function_count += 1
        name, types, steps = f"fold_{self._function_count}", list[str](), list[str]()
        for number, text in enumerate(texts, 1):
            steps.append(_step(text, _FIRST + len(types)) + _CHECK.format(number=number))
            types += _types(text).values()
        kinds = ", ".join(f"{kind}[]" for kind in types)
        await connection.execute(_CHANGES.format(name=name, types=kinds, steps="\n".join(steps)))
        self._fresh.append(texts)
        places = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(types, _FIRST + 1))
        call = f"SELECT pg_temp.{name}($1::boolean, $2::boolean, $3::bigint[], {places})"
        self._calls[texts] = call
        return call


def refused_part(error: asyncpg.PostgresError) -> int | None:
    """Return the index of the change that affected an unexpected number of rows, or None for other errors."""
    return int(str(error)) - 1 if getattr(error, "sqlstate", None) == _REFUSED else None


def _types(text: str) -> dict[int, str]:
    """Return the types of a statement's arguments by number, in order."""
    return dict(sorted((int(number), kind) for number, kind in _ARGUMENT.findall(text)))


def _over_turns(text: str, kinds: Mapping[int, str]) -> str:
    """Return the statement with `turns` replaced by the rows of a function's arguments, with a `number`."""
    arrays, names = (", ".join(f"{prefix}{number}" for number in kinds) for prefix in ("$", "v"))
    rows = f"FROM unnest({arrays}) WITH ORDINALITY AS turns ({names}, number)"
    return _TURNS.sub(rows, _ARGUMENT.sub(r"turns.v\1", text))


def _step(text: str, before: int) -> str:
    """Return a step of a function; the first `before` arguments belong to earlier steps."""
    numbers = _types(text)
    insert = INSERT.fullmatch(text)
    if insert is None or _SEVERAL.search(insert[2]) or not numbers:
        statement = _ARGUMENT.sub(lambda match: f"(${before + int(match[1])})[fold_turn]", text)
        return _LOOP_STEP.format(first=before + 1, statement=statement)
    values = _ARGUMENT.sub(lambda match: f"fold.v{match[1]}", insert[2])
    arrays = ", ".join(f"${before + number}" for number in numbers)
    names = ", ".join(f"v{number}" for number in numbers)
    rows = f"SELECT {values} FROM unnest({arrays}) AS fold ({names})"  # noqa: S608 - our own
    return _SET_STEP.format(statement=f"{insert[1]} {rows}")
