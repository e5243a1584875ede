"""Translation of `:name` parameters to typed `$1` ones, so one SQL string works with both databases.

PostgreSQL needs the type of each parameter when it prepares a statement. It follows from the value: text,
bigint, double precision or bytea; None becomes NULL. So a query is prepared once per combination of types.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
from msgspec.structs import replace

from sixfold.core.database import Query, Value
from sixfold.store.postgres.connection import BEGUN

# Strings, comments and casts may contain a colon that does not begin a parameter.
_TOKEN = re.compile(r"'(?:[^']|'')*'|--[^\n]*|::|:([a-z_]\w*)")
_PLACE = re.compile(r"\$\d+")
# A parameter that is parsed as JSON, and the JSON escape of NUL, which follows an even number of backslashes.
_JSON = re.compile(r":([a-z_]\w*)::json\b")
_NUL_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
INSERT = re.compile(r"(INSERT INTO \w+ \([^()]*\))\s+VALUES \((.*)\)", re.DOTALL)
_TYPES = ((str, "text"), (int, "bigint"), (float, "double precision"), (bytes, "bytea"))


class PreparedStatement(msgspec.Struct, frozen=True):
    """A statement for PostgreSQL with the names of its arguments.

    It also contains the indexes of the string, JSON and boolean arguments.
    """

    text: str
    names: tuple[str, ...]
    texts: tuple[int, ...] = ()
    documents: tuple[int, ...] = ()
    flags: tuple[int, ...] = ()

    def arguments(self, params: Mapping[str, Value]) -> list[Any]:
        """Return the values in order, with U+FFFD in place of NUL, which PostgreSQL cannot store in text."""
        values: list[Any] = [params[name] for name in self.names]
        for index in self.texts:
            if "\0" in values[index]:
                values[index] = _without_nul(values[index])
        for index in self.documents:
            values[index] = _without_nul_escapes(values[index])
        for index in self.flags:
            values[index] = int(values[index])
        return values

    def renumbered(self, names: Sequence[str]) -> str:
        """Return the SQL with its arguments numbered in the order of `names`."""
        numbers = {f"${number}": names.index(name) + 1 for number, name in enumerate(self.names, 1)}
        return _PLACE.sub(lambda match: f"${numbers[match[0]]}", self.text)


class Changes(msgspec.Struct, frozen=True):
    """A statement without RETURNING, with the values of each argument: one for each set of arguments.

    `expected` is the number of rows that all sets together must change, or None for any number. `sums` are
    the indexes of the arguments whose values are added up across sets whose other values are equal.
    """

    text: str
    columns: Sequence[Sequence[Any]]
    expected: int | None = None
    sums: Collection[int] = ()

    @property
    def known(self) -> int | None:
        """The number of rows that the statement changes if it succeeds, or None if it is unknown."""
        if self.expected is None and INSERT.fullmatch(self.text) and self.columns:
            return len(self.columns[0])
        return self.expected

    def added(self) -> Changes:
        """Return the change with the sets of arguments combined that differ only in `sums`."""
        rows = list(zip(*self.columns, strict=True))
        if not self.sums or self.expected != len(rows):
            return self
        totals: dict[tuple[Any, ...], list[Any]] = {}
        for row in rows:
            without = [0 if index in self.sums else value for index, value in enumerate(row)]
            total = totals.setdefault(tuple(without), without)
            for index in self.sums:
                total[index] += row[index]
        return replace(self, columns=list(zip(*totals.values(), strict=True)), expected=len(totals))


def merge(changes: Sequence[Changes]) -> Changes:
    """Combine changes that have the same statement into one."""
    first = changes[0]
    columns = [list(chain.from_iterable(each)) for each in zip(*(c.columns for c in changes), strict=True)]
    numbers = [change.expected for change in changes]
    expected = None if None in numbers else sum(number for number in numbers if number is not None)
    return replace(first, columns=columns, expected=expected).added()


class PostgresBinder:
    """A binder that translates each statement once per combination of types."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], PreparedStatement] = {}

    def __call__(self, sql: str, params: Mapping[str, Value]) -> PreparedStatement:
        """Return the statement for parameters of these types; raises `KeyError` for a missing value."""
        key = (sql, *params, *map(type, params.values()))
        bound = self._known.get(key)
        if bound is None:
            bound = self._known[key] = translate(sql, params)
        return bound

    def changes(self, sql: str, rows: Sequence[Mapping[str, Value]], of: Query) -> Changes:
        """Return the statement for multiple sets of parameters.

        A parameter has the same type in all sets, or is None.
        """
        values = {name: [row[name] for row in rows] for name in rows[0]}
        sample = {name: next((v for v in column if v is not None), None) for name, column in values.items()}
        prepared = self(sql, sample)
        columns: list[list[Any]] = [values[name] for name in prepared.names]
        for index in prepared.texts:
            columns[index] = [v if v is None or "\0" not in v else _without_nul(v) for v in columns[index]]
        for index in prepared.documents:
            columns[index] = [v if v is None else _without_nul_escapes(v) for v in columns[index]]
        for index in prepared.flags:
            columns[index] = [v if v is None else int(v) for v in columns[index]]
        sums = [index for index, name in enumerate(prepared.names) if name in of.sums]
        return Changes(prepared.text, columns, of.expected, sums)


def translate(sql: str, params: Mapping[str, Value]) -> PreparedStatement:
    """Translate a statement; a missing `:now` is replaced by the time at which the transaction started."""
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

    text, json_names = _TOKEN.sub(numbered, sql), set(_JSON.findall(sql))
    texts = tuple(index for index, name in enumerate(names) if isinstance(params[name], str))
    documents = tuple(index for index in texts if names[index] in json_names)
    flags = tuple(index for index, name in enumerate(names) if isinstance(params[name], bool))
    return PreparedStatement(text, tuple(names), texts, documents, flags)


def _without_nul(text: str) -> str:
    return text.replace("\0", "\ufffd")


def _without_nul_escapes(document: str) -> str:
    return _NUL_ESCAPE.sub(r"\1\\ufffd", document) if "\\u0000" in document else document


def _type(value: Value) -> str | None:
    return next((name for kind, name in _TYPES if isinstance(value, kind)), None)
