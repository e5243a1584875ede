"""Named queries and numbered migrations, read from the SQL files in this package."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import msgspec

from sixfold.core.database import Query, Value

_HERE = Path(__file__).parent
# Tables that a script reads or writes row by row, and those that it creates.
_TOUCHES = re.compile(
    r"\bINDEX(?: IF NOT EXISTS)? \w+\s+ON (\w+)|\bUPDATE (\w+)\s+SET|\bFROM (\w+)", re.IGNORECASE
)
_COMMENT = re.compile(r"--.*")
_CREATES = re.compile(r"\bCREATE TABLE (\w+)", re.IGNORECASE)
_NAME = re.compile(r"^-- name: (\w+) \| (.+)$", re.MULTILINE)
_FRAGMENT = re.compile(r"^-- fragment: (\w+) \| .+$", re.MULTILINE)
# A fragment, `{name}`; for the rows of a table or alias, `{name alias}`; for a value, `{name :parameter}`.
_USE = re.compile(r"\{(\w+)(?: ([^{}]+))?\}")


class SchemaMismatch(Exception):
    """The database has a newer schema than this version of Sixfold supports."""


class SqlStatement(msgspec.Struct, frozen=True):
    """A named query: SQL with `:name` parameters, and its description."""

    sql: str
    description: str
    needs_now: bool


class Migration(msgspec.Struct, frozen=True):
    """A numbered step of the schema, with the script that reverts it."""

    number: int
    name: str
    up: str
    down: str

    @property
    def description(self) -> str:
        """The first line of the script, one sentence for operators."""
        first = self.up.partition("\n")[0]
        return first.removeprefix("-- ") if first.startswith("-- ") else self.name

    @property
    def tables(self) -> frozenset[str]:
        """The tables of an older schema whose rows the script reads or writes."""
        touched = {name for names in _TOUCHES.findall(_COMMENT.sub("", self.up)) for name in names if name}
        return frozenset(touched - set(_CREATES.findall(self.up)))


@cache
def queries(dialect: str) -> dict[str, SqlStatement]:
    """Return all named queries; those in `queries/<dialect>/`, and its fragments, replace portable ones."""
    statements: dict[str, SqlStatement] = {}
    folder = _HERE / "queries"
    fragments = _fragments(folder / "fragments.sql")
    if (own := folder / dialect / "fragments.sql").exists():
        fragments |= _fragments(own)
    for path in sorted(folder.glob("*.sql")) + sorted((folder / dialect).glob("*.sql")):
        pieces = _NAME.split(path.read_text("utf-8"))[1:]
        for name, description, sql in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
            text = _insert(fragments, sql).strip()
            statements[name] = SqlStatement(text.rstrip(";"), description, ":now" in text)
    return statements


def _insert(fragments: Mapping[str, str], sql: str) -> str:
    """Insert fragments, which may use others with `{name row}`, into a statement."""

    def fragment(use: re.Match[str]) -> str:
        text = _insert(fragments, fragments[use[1]])
        return text.replace("row.", f"{use[2]}.").replace(":argument", use[2]) if use[2] else text

    return _USE.sub(fragment, sql)


def _fragments(path: Path) -> dict[str, str]:
    """Return the expressions that statements share, by name.

    `row` stands for their table, and `:argument` for their value.
    """
    pieces = _FRAGMENT.split(path.read_text("utf-8"))[1:]
    return {name: sql.strip() for name, sql in zip(pieces[::2], pieces[1::2], strict=True)}


def turns(query: Query) -> Sequence[Mapping[str, Value]]:
    """Return the sets of parameters with which a query runs."""
    return (query.params,) if query.each is None else query.each


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """Return the migrations of a dialect in order: those in `migrations/` and in the dialect's folder."""
    folders = (_HERE / "migrations", _HERE / dialect)
    scripts = {path.name: path for folder in folders for path in folder.glob("*.sql")}
    steps: list[Migration] = []
    for stem in sorted(name.removesuffix(".up.sql") for name in scripts if name.endswith(".up.sql")):
        number, _, name = stem.partition("_")
        up, down = (scripts[f"{stem}.{way}.sql"].read_text("utf-8") for way in ("up", "down"))
        steps.append(Migration(int(number), name, up, down))
    return tuple(steps)


def latest(dialect: str) -> int:
    """Return the newest schema version that this version of Sixfold supports."""
    steps = migrations(dialect)
    return steps[-1].number if steps else 0


def check_known(dialect: str, schema: int) -> None:
    """Raise `SchemaMismatch` for a schema that is newer than this version of Sixfold supports."""
    newest = latest(dialect)
    if schema > newest:
        raise SchemaMismatch(
            f"The database has schema {schema}, but this version supports up to {newest}: upgrade Sixfold."
        )


def plan(dialect: str, before: int, target: int | None = None) -> list[tuple[str, int]]:
    """Return the scripts from schema `before` to `target` (default: the newest), each with its version.

    Raises `SchemaMismatch` for a schema that is newer than this version of Sixfold supports.
    """
    check_known(dialect, before)
    goal = latest(dialect) if target is None else target
    steps = migrations(dialect)
    forward = [(step.up, step.number) for step in steps if before < step.number <= goal]
    back = [(step.down, step.number - 1) for step in reversed(steps) if goal < step.number <= before]
    return forward + back
