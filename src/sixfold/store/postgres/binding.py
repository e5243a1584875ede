"""Translation of `:name` parameters to typed `$1` ones, so that one SQL text serves both databases.

PostgreSQL needs the type of each parameter when it prepares a statement. It follows from the value: text,
bigint, double precision or bytea; None becomes NULL. So a query is prepared once per combination of types.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sixfold.core.database import Value
from sixfold.store.postgres.connection import BEGUN

# Strings, comments and casts may contain a colon that does not begin a parameter.
_TOKEN = re.compile(r"'(?:[^']|'')*'|--[^\n]*|::|:([a-z_]\w*)")
_TYPES = ((str, "text"), (int, "bigint"), (float, "double precision"), (bytes, "bytea"))


@dataclass(frozen=True, slots=True)
class PreparedStatement:
    """A statement for PostgreSQL with the names of its arguments, and the indexes of strings and booleans."""

    text: str
    names: tuple[str, ...]
    texts: tuple[int, ...] = ()
    flags: tuple[int, ...] = ()

    def arguments(self, params: Mapping[str, Value]) -> list[Any]:
        """Return the values in order; NUL becomes U+FFFD, since PostgreSQL does not store it in text."""
        values: list[Any] = [params[name] for name in self.names]
        for index in self.texts:
            if "\0" in values[index]:
                values[index] = _without_nul(values[index])
        for index in self.flags:
            values[index] = int(values[index])
        return values


@dataclass(frozen=True, slots=True)
class Changes:
    """A statement without RETURNING and the values of each of its arguments, one for each turn.

    `expected` is the number of rows that all turns have to change, None for any.
    """

    text: str
    columns: Sequence[Sequence[Any]]
    expected: int | None = None


class PostgresBinder:
    """Translates each statement once per combination of types."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], PreparedStatement] = {}

    def __call__(self, sql: str, params: Mapping[str, Value]) -> PreparedStatement:
        """Return the statement for parameters of these types; raises `KeyError` for a missing value."""
        key = (sql, *params, *map(type, params.values()))
        bound = self._known.get(key)
        if bound is None:
            bound = self._known[key] = translate(sql, params)
        return bound

    def changes(self, sql: str, rows: Sequence[Mapping[str, Value]], expected: int | None = None) -> Changes:
        """Return the statement for several sets of parameters; a parameter has one type, or None, in all."""
        values = {name: [row[name] for row in rows] for name in rows[0]}
        sample = {name: next((v for v in column if v is not None), None) for name, column in values.items()}
        prepared = self(sql, sample)
        columns: list[list[Any]] = [values[name] for name in prepared.names]
        for index in prepared.texts:
            columns[index] = [v if v is None or "\0" not in v else _without_nul(v) for v in columns[index]]
        for index in prepared.flags:
            columns[index] = [v if v is None else int(v) for v in columns[index]]
        return Changes(prepared.text, columns, expected)


def translate(sql: str, params: Mapping[str, Value]) -> PreparedStatement:
    """Translate a statement; a `:now` without a value is the start of the transaction."""
    names: list[str] = []

    def numbered(match: re.Match[str]) -> str:
        name = match[1]
        if name is None:
            return match[0]
        if name == "now" and name not in params:
            return BEGUN
        kind = _type(params[name])
        if kind is None:
            return "NULL"
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}::{kind}"

    text = _TOKEN.sub(numbered, sql)
    texts = tuple(index for index, name in enumerate(names) if isinstance(params[name], str))
    flags = tuple(index for index, name in enumerate(names) if isinstance(params[name], bool))
    return PreparedStatement(text, tuple(names), texts, flags)


def _without_nul(text: str) -> str:
    return text.replace("\0", "\ufffd")


def _type(value: Value) -> str | None:
    return next((name for kind, name in _TYPES if isinstance(value, kind)), None)
