"""A newer version migrates while the previous one is running: migrations only add."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from sixfold.core.predictions.states import PredictionState
from sixfold.store import sql
from sixfold.store.postgres import binding
from sixfold.store.postgres import connection as connections
from sixfold.store.sql import Migration, SqlStatement
from tests.harness import backends, postgres
from tests.harness.pipeline import Options, running_pipeline

DESTRUCTIVE = re.compile(r"\b(DROP|RENAME|ALTER\s+COLUMN|SET\s+NOT\s+NULL|TRUNCATE)\b", re.IGNORECASE)
# A trigger that the same script creates again, such as one that refuses less.
REPLACES_TRIGGER = re.compile(r"DROP TRIGGER (\w+);\s*(?=CREATE TRIGGER \1\b)")
# A unique constraint that the same script replaces with a unique index.
REPLACES_UNIQUE = re.compile(r"ALTER TABLE \w+ DROP CONSTRAINT (\w+);\s*(?=CREATE UNIQUE INDEX \1\b)")
# An index that does not enforce a rule, but only makes queries fast.
DROPS_INDEX = re.compile(r"DROP INDEX (\w+);")
ADDS_COLUMN = re.compile(r"ADD COLUMN[^;]*;", re.IGNORECASE)
PARAMETER = re.compile(r"(?<!:):([a-z_]\w*)")
# Migrations that are tested on PostgreSQL; SQLite tests all of them.
LATEST = 4
ON_POSTGRES = [
    pytest.mark.postgres,
    pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one"),
]


@pytest.mark.parametrize("dialect", backends.DATABASES)
def test_migration_keeps_what_the_previous_version_uses(dialect: str) -> None:
    steps = sql.migrations(dialect)
    plain = {name for step in steps for name in re.findall(r"CREATE INDEX (?:IF NOT EXISTS )?(\w+)", step.up)}
    for step in steps:
        response = f"{dialect} {step.number}_{step.name}"
        rest = DROPS_INDEX.sub(lambda match: "" if match[1] in plain else match[0], step.up)
        for replaced in (REPLACES_TRIGGER, REPLACES_UNIQUE):
            rest = replaced.sub("", rest)
        assert not DESTRUCTIVE.search(rest), f"{response} takes something away: do so one release later"
        for column in ADDS_COLUMN.findall(step.up):
            assert "NOT NULL" not in column or "DEFAULT" in column, f"{response}: {column} needs a default"


def test_every_statement_stays_valid_in_the_next_schema(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "steps.db")
    connection.create_function("server_lives", 1, lambda _: False)
    known: set[str] = set()
    for step in sql.migrations("sqlite"):
        connection.executescript(step.up)
        now = {name for name, query in sql.queries("sqlite").items() if _understood(connection, query)}
        assert known <= now, f"{step.number}_{step.name} breaks {sorted(known - now)}"
        known = now
    connection.close()
    assert known == sql.queries("sqlite").keys()


def _understood(connection: sqlite3.Connection, query: SqlStatement) -> bool:
    values = dict.fromkeys(PARAMETER.findall(query.sql))
    try:
        connection.execute(f"EXPLAIN {query.sql}", values)
    except sqlite3.OperationalError:
        return False
    return True


class TestPostgres:
    """The upgrade tests on PostgreSQL, where another server may run during the migration."""

    pytestmark = ON_POSTGRES

    async def test_every_statement_stays_valid_in_the_next_schema(self, tmp_path: Path) -> None:
        connection = await connections.connect(backends.database_url(tmp_path, "postgres"))
        last = sql.latest("postgres")
        known: set[str] = set()
        try:
            await connections.migrate(connection, last - LATEST)
            for number in range(last - LATEST, last + 1):
                await connections.migrate(connection, number)
                now = {
                    name
                    for name, query in sql.queries("postgres").items()
                    if await _prepare(connection, query)
                }
                assert known <= now, f"{number} breaks {sorted(known - now)}"
                known = now
        finally:
            await connections.close(connection)
        assert len(known) > 100

    async def test_server_continues_while_the_next_version_migrates(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        backends.database_url(tmp_path, "postgres")
        async with running_pipeline(tmp_path, Options(slots=2)) as serving:
            before = [serving.run(extras={"n": number}) for number in range(10)]
            assert {prediction.state for prediction in await asyncio.gather(*before)} == {
                PredictionState.SUCCEEDED
            }
            real = sql.migrations("postgres")
            following = (*real, Migration(real[-1].number + 1, "next", NEXT, ""))
            with monkeypatch.context() as patch:
                patch.setattr(sql, "migrations", lambda _dialect: following)
                during = asyncio.gather(*(serving.run(extras={"n": number}) for number in range(60)))
                connection = await connections.connect(backends.database_url(tmp_path))
                try:
                    _, after = await connections.migrate(connection)
                finally:
                    await connections.close(connection)
            assert after == real[-1].number + 1
            assert {prediction.state for prediction in await during} == {PredictionState.SUCCEEDED}
            assert (await serving.run()).state is PredictionState.SUCCEEDED
            assert await serving.faults() == ()


NEXT = """
ALTER TABLE prediction ADD COLUMN mood TEXT COLLATE "C" NOT NULL DEFAULT 'calm';
ALTER TABLE account ADD COLUMN colour TEXT COLLATE "C";
ALTER TABLE hold ADD COLUMN weight BIGINT NOT NULL DEFAULT 0;
CREATE TABLE moods (name TEXT COLLATE "C" PRIMARY KEY);
CREATE INDEX prediction_mood ON prediction (mood) WHERE mood <> 'calm';
"""


async def _prepare(connection: Any, query: SqlStatement) -> bool:
    values = dict.fromkeys(PARAMETER.findall(query.sql))
    values.pop("now", None)
    text = binding.translate(query.sql, values).text
    try:
        await connection.prepare(text)
    except connections.GONE:
        return False
    return True
