"""Named queries and numbered migrations, read from the SQL files beside this module."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sixfold.core.database import Query, Value

_HERE = Path(__file__).parent
_NAME = re.compile(r"^-- name: (\w+) \| (.+)$", re.MULTILINE)


class SchemaMismatch(Exception):
    """The database's schema is not one that this program speaks."""


@dataclass(frozen=True, slots=True)
class SqlStatement:
    """One named query: its SQL with `:name` parameters, and the sentence that describes it."""

    sql: str
    description: str
    needs_now: bool


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step of the schema, forward and back."""

    number: int
    name: str
    up: str
    down: str


@cache
def queries(dialect: str) -> dict[str, SqlStatement]:
    """Every named query; a file in `queries/<dialect>/` replaces portable ones by name."""
    found: dict[str, SqlStatement] = {}
    folder = _HERE / "queries"
    for path in sorted(folder.glob("*.sql")) + sorted((folder / dialect).glob("*.sql")):
        pieces = _NAME.split(path.read_text("utf-8"))[1:]
        for name, description, sql in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
            found[name] = SqlStatement(sql.strip().rstrip(";"), description, ":now" in sql)
    return found


def turns(query: Query) -> Sequence[Mapping[str, Value]]:
    """The parameters that a query is run with, one after another."""
    return (query.params,) if query.each is None else query.each


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """The migrations of a dialect in their order."""
    steps: list[Migration] = []
    for up in sorted((_HERE / dialect).glob("*.up.sql")):
        number, _, name = up.name.removesuffix(".up.sql").partition("_")
        down = up.with_name(up.name.replace(".up.sql", ".down.sql"))
        steps.append(Migration(int(number), name, up.read_text("utf-8"), down.read_text("utf-8")))
    return tuple(steps)


def latest(dialect: str) -> int:
    """The newest schema version that this program knows."""
    steps = migrations(dialect)
    return steps[-1].number if steps else 0


def plan(dialect: str, before: int, target: int | None = None) -> list[tuple[str, int]]:
    """The scripts from schema `before` to `target` (default: the newest), each with the number it leads to.

    Raises `SchemaMismatch` for a schema that is newer than this program.
    """
    newest = latest(dialect)
    goal = newest if target is None else target
    if before > newest:
        raise SchemaMismatch(
            f"The database has schema {before}, this program knows {newest}: upgrade Sixfold."
        )
    steps = migrations(dialect)
    forward = [(step.up, step.number) for step in steps if before < step.number <= goal]
    back = [(step.down, step.number - 1) for step in reversed(steps) if goal < step.number <= before]
    return forward + back
