"""Translation of `:name` parameters to numbered ones, which SQLite binds faster."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any

from sixfold.core.database import Value

# String literals and comments, in which a colon does not begin a parameter.
_TOKEN = re.compile(r"'(?:[^']|'')*'|--[^\n]*|:([a-z_]\w*)")
# SQLite copies the rows of RETURNING twice before it returns the first one.
_RETURNING = re.compile(r"\b(?:INSERT INTO|UPDATE) (prediction)\b(?s:.*?)\bRETURNING (\*.*)\Z")
Arguments = Callable[[Mapping[str, Value]], tuple[Any, ...]]


class BoundStatement:
    """A statement for SQLite with the names of its arguments; `:now` is the last argument.

    If `reading` is set, the statement returns the rowids of predictions, which may be large, and `reading`
    returns the row of each.
    """

    __slots__ = ("_named", "_needs_now", "reading", "text")

    def __init__(self, sql: str) -> None:
        first_uses = {match[1]: None for match in _TOKEN.finditer(sql) if match[1]}
        self._needs_now = "now" in first_uses
        names = [*(name for name in first_uses if name != "now"), *(["now"] if self._needs_now else [])]
        places = {name: f"?{place}" for place, name in enumerate(names, 1)}
        text = _TOKEN.sub(lambda match: places[match[1]] if match[1] else match[0], sql)
        returning = _RETURNING.search(text)
        self.text = text if returning is None else f"{text[: returning.start(2)]}rowid"
        self.reading = returning and returning.expand(r"SELECT \2 FROM \1 WHERE rowid = ?1")
        self._named = _getter([name for name in names if name != "now"])

    def arguments(self, params: Mapping[str, Value], now: int) -> tuple[Any, ...]:
        """Return the values in order; raises `KeyError` for a missing value."""
        values = self._named(params)
        return (*values, now) if self._needs_now else values

    def rows(self, each: Iterable[Mapping[str, Value]], now: int) -> list[tuple[Any, ...]]:
        """Return the values of each set of parameters."""
        values = map(self._named, each)
        return [(*row, now) for row in values] if self._needs_now else list(values)


class SqliteBinder:
    """A binder that translates each statement once."""

    def __init__(self) -> None:
        self._known: dict[str, BoundStatement] = {}

    def __call__(self, sql: str) -> BoundStatement:
        bound = self._known.get(sql)
        if bound is None:
            bound = self._known[sql] = BoundStatement(sql)
        return bound


def _getter(names: list[str]) -> Arguments:
    if not names:
        return lambda _: ()
    if len(names) == 1:
        (name,) = names
        return lambda params: (params[name],)
    return itemgetter(*names)
