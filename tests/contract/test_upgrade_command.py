"""`sixfold upgrade`: its plan, its blockers, and a check that changes nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sixfold.cli import server_lock
from sixfold.store import sql
from tests.harness import backends, databases, old_data, postgres
from tests.unit.cli.conftest import Commands

OLD = 30


@pytest.fixture
def sixfold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Commands:
    old_data.make(tmp_path, "sqlite", OLD)
    return Commands(tmp_path, capsys)


def content(folder: Path) -> dict[str, bytes]:
    """Every file, without the log that SQLite makes for a reader."""
    files = (
        path for path in folder.rglob("*") if path.is_file() and path.suffix not in {".db-wal", ".db-shm"}
    )
    return {str(path): path.read_bytes() for path in files}


def expected_rows(folder: Path) -> int:
    """Count the rows of each table that a pending migration indexes or changes, once for each migration."""
    connection = sqlite3.connect(folder / databases.FILE)
    present = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    steps = [step for step in sql.migrations("sqlite") if step.number > OLD]
    tables = [table for step in steps for table in step.tables if table in present]
    counts = [connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in tables]  # noqa: S608 - our own names
    connection.close()
    assert "prediction" in tables
    assert sum(counts) > 3
    return sum(counts)


def test_an_unknown_setting_blocks_the_check(sixfold: Commands) -> None:
    (sixfold.folder / "sixfold.toml").write_text("setting_of_another_version = 3\n")
    result = sixfold("upgrade", "--check")
    assert result.status == 1
    assert "unknown setting 'setting_of_another_version'" in result.err


def test_check_describes_an_upgrade_and_changes_nothing(sixfold: Commands) -> None:
    before = content(sixfold.folder)
    plan = sixfold.ok("upgrade", "--check")
    pending = [step for step in sql.migrations("sqlite") if step.number > OLD]
    assert (plan["schema"], plan["latest"], plan["upgraded"]) == (OLD, sql.latest("sqlite"), False)
    assert [row["number"] for row in plan["migrations"]] == [step.number for step in pending]
    assert plan["needed_bytes"] > plan["database_bytes"] > 0
    assert plan["free_bytes"] > plan["needed_bytes"]
    assert plan["rows"] == expected_rows(sixfold.folder)
    assert plan["seconds"] == 1
    assert plan["blockers"] == []
    text = sixfold("upgrade", "--check").out
    assert f"schema {OLD} to {sql.latest('sqlite')}" in text
    assert "sixfold backup" in text
    assert f"up to 1 s, to index or change {plan['rows']} rows" in text
    assert pending[0].description in text
    assert content(sixfold.folder) == before


def test_an_upgrade_migrates_once(sixfold: Commands) -> None:
    assert sixfold.ok("upgrade")["upgraded"] is True
    second_result = sixfold.ok("upgrade")
    assert (second_result["schema"], second_result["migrations"], second_result["needed_bytes"]) == (
        sql.latest("sqlite"),
        [],
        0,
    )
    assert second_result["upgraded"] is False
    assert sixfold.ok("ledger", "verify")["ok"] is True


@pytest.mark.parametrize("words", [("upgrade", "--check"), ("upgrade",)], ids=" ".join)
def test_a_running_server_blocks_it(sixfold: Commands, words: tuple[str, ...]) -> None:
    with server_lock.hold(sixfold.folder):
        result = sixfold(*words)
    assert result.status == 1
    assert "stop it before the upgrade" in result.err
    assert databases.keeper("", sixfold.folder).schema() == OLD


@pytest.mark.parametrize(
    ("statement", "blocker"),
    [
        ("DELETE FROM account WHERE id = 'acct_old'", "refers to a missing row of account"),
        ("PRAGMA user_version=999", "upgrade Sixfold"),
    ],
)
def test_damage_and_a_newer_schema_block_an_upgrade(sixfold: Commands, statement: str, blocker: str) -> None:
    connection = sqlite3.connect(sixfold.folder / databases.FILE)
    with connection:
        connection.execute(statement)
    connection.close()
    result = sixfold("upgrade", "--json")
    assert result.status == 1
    assert blocker in result.json["blockers"][0]
    assert blocker in result.err


def test_every_migration_has_a_description() -> None:
    for dialect in backends.DATABASES:
        for step in sql.migrations(dialect):
            assert step.description.endswith("."), (
                f"{dialect} {step.number}_{step.name}: begin with a sentence"
            )


@pytest.mark.postgres
@pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one")
def test_running_server_does_not_block_upgrades_on_postgresql(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old_data.make(tmp_path, "postgres", OLD)
    monkeypatch.setenv("SIXFOLD_DATABASE_URL", backends.database_url(tmp_path))
    sixfold = Commands(tmp_path, capsys)
    with server_lock.hold(tmp_path):
        plan = sixfold.ok("upgrade", "--check")
        assert (plan["schema"], plan["free_bytes"], plan["blockers"]) == (OLD, None, [])
        assert plan["database_bytes"] > 0
        assert plan["seconds"] > 0
        assert sixfold.ok("upgrade")["upgraded"] is True
    assert sixfold.ok("upgrade")["schema"] == sql.latest("postgres")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[gateway]\nretrys = 2", "unknown setting 'retrys'"),
        ('[prices]\nown_hardwear = "free"', "own_hardwear"),
        ('[prices]\nra1 = "cheap"', "ra1"),
        ('[search]\nsearx = "x"', "unknown setting 'searx'"),
        ('[gateway.upstreams.x]\nkind = "opnai"', "opnai"),
        ("[engines.foo]\nx = 1", "foo"),
        ("[retention]\njobs_days = 3", "unknown setting 'jobs_days'"),
        ("[gatway]\nretries = 2", "unknown setting 'gatway': did you mean gateway?"),
    ],
)
def test_an_invalid_table_blocks_the_check(sixfold: Commands, text: str, message: str) -> None:
    (sixfold.folder / "sixfold.toml").write_text(text)
    result = sixfold("upgrade", "--check")
    assert result.status == 1
    assert message in result.err


def test_a_missing_variable_does_not_block_the_check(sixfold: Commands) -> None:
    (sixfold.folder / "sixfold.toml").write_text(
        '[gateway.upstreams.x]\nkind = "openai"\nbase_url = "https://api.example.com/v1"\n'
        'api_key_env = "UNSET_VARIABLE"\n'
        '[mcp.files]\nurl = "https://api.example.com/mcp"\napi_key_env = "UNSET_VARIABLE"\n'
    )
    assert sixfold("upgrade", "--check").status == 0
