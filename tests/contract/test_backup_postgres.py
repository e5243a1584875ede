"""Backups are independent of the database: SQLite to PostgreSQL and back, and the commands on either."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from sixfold import settings
from sixfold.cli import main as command_line
from sixfold.cli.database import restore
from sixfold.cli.terminal import CommandError
from sixfold.settings import Settings
from sixfold.store import sql
from sixfold.store.backup import BackupReport
from tests.contract import test_backup as backup_tests
from tests.harness import backends, databases, postgres

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one"),
]


def data_folder(folder: Path, *, empty: bool = False) -> Settings:
    """Return a data folder on PostgreSQL; `empty` without even a schema."""
    url = backends.database_url(folder, "postgres")
    if empty:
        databases.keeper(url, folder).migrate(0)
        postgres.forget_schema(url)
    return settings.load({}, data_dir=folder / "data", database_url=url)


def content(configured: Settings) -> dict[str, Any]:
    """Return every row of every table."""
    with databases.snapshot(configured.database_url, configured.data_dir) as reader:
        return {
            name: sorted(map(repr, (sorted(zip(columns, row, strict=True)) for row in reader.rows(name))))
            for name, columns in reader.tables()
        }


def is_valid(report: restore.RestoreReport) -> bool:
    """Return whether `--verify` finds no fault."""
    results = (report.drift, report.missing_blobs, report.faults, report.damaged, report.missing)
    return report.verified and results == (0, 0, (), [], [])


def test_a_restore_ends_all_access_on_postgresql(tmp_path: Path) -> None:
    source, path = backup_tests.snapshot_at(tmp_path / "source"), tmp_path / "one.tar"
    asyncio.run(backup_tests.fill(source))
    asyncio.run(backup_tests.write_backup(source, path))
    target = data_folder(tmp_path / "target", empty=True)
    report = restore.restore(path, target, verify=True, end_access=True)
    assert (is_valid(report), report.ended["keys"]) == (True, 1)
    assert "('revoked_at', None)" not in "".join(content(target)["api_key"])
    assert "('revoked_at', None)" in "".join(content(source)["api_key"])


def test_round_trip_through_postgresql_changes_nothing(tmp_path: Path) -> None:
    source, path, second_path = (
        backup_tests.snapshot_at(tmp_path / "source"),
        tmp_path / "one.tar",
        tmp_path / "two.tar",
    )
    account_id = asyncio.run(backup_tests.fill(source))
    asyncio.run(backup_tests.history(source, account_id))
    first = asyncio.run(backup_tests.write_backup(source, path))
    middle = data_folder(tmp_path / "middle", empty=True)
    there = restore.restore(path, middle, verify=True)
    assert is_valid(there)
    assert there.tables == first.tables
    assert content(middle) == content(source)
    second = asyncio.run(backup_tests.write_backup(middle, second_path))
    assert (second.tables, second.files) == (first.tables, first.files)
    target = backup_tests.snapshot_at(tmp_path / "target")
    assert is_valid(restore.restore(second_path, target, verify=True))
    assert backup_tests.dump(target) == backup_tests.dump(source)
    assert backup_tests.tree(target.data_dir / "store") == backup_tests.tree(source.data_dir / "store")


def test_backup_of_a_busy_postgresql_is_consistent(tmp_path: Path) -> None:
    source, path = data_folder(tmp_path / "source"), tmp_path / "all.tar"
    account_id = asyncio.run(backup_tests.fill(source))
    busy, stop, counts = threading.Event(), threading.Event(), list[int]()
    writer = threading.Thread(
        target=lambda: counts.append(asyncio.run(backup_tests.load(source, account_id, busy, stop)))
    )
    writer.start()
    written = BackupReport()
    try:
        assert busy.wait(60)
        for backend in ("sqlite", "postgres"):
            written = asyncio.run(backup_tests.write_backup(source, path))
            folder = tmp_path / backend
            target = (
                backup_tests.snapshot_at(folder) if backend == "sqlite" else data_folder(folder, empty=True)
            )
            report = restore.restore(path, target, verify=True)
            assert is_valid(report)
            assert report.tables == written.tables
    finally:
        stop.set()
        writer.join()
    assert counts[0] > 0
    assert written.tables["transfer"] > 0


def test_restore_into_a_database_with_data_is_refused(tmp_path: Path) -> None:
    source, path, target = (
        backup_tests.snapshot_at(tmp_path / "source"),
        tmp_path / "all.tar",
        data_folder(tmp_path / "target"),
    )
    asyncio.run(backup_tests.fill(source))
    asyncio.run(backup_tests.write_backup(source, path))
    before = content(target)
    with pytest.raises(CommandError, match="is not empty: restore into a new database"):
        restore.restore(path, target, verify=True)
    assert content(target) == before


def test_damaged_backup_leaves_the_database_empty(tmp_path: Path) -> None:
    source, path, target = (
        backup_tests.snapshot_at(tmp_path / "source"),
        tmp_path / "all.tar",
        data_folder(tmp_path, empty=True),
    )
    asyncio.run(backup_tests.fill(source))
    asyncio.run(backup_tests.write_backup(source, path))
    path.write_bytes(path.read_bytes()[:-20_000])
    with pytest.raises(CommandError, match="is not a complete backup"):
        restore.restore(path, target, verify=True)
    assert databases.keeper(target.database_url, tmp_path).schema() is None


class PostgresCommands:
    """Commands on a data folder whose database is a PostgreSQL."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, *words: str) -> Any:
        assert command_line.main([*words, "--json", "--data-dir", str(self.folder)]) == 0
        return json.loads(self._capsys.readouterr().out)


@pytest.fixture
def shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> PostgresCommands:
    monkeypatch.setenv("SIXFOLD_DATABASE_URL", backends.database_url(tmp_path, "postgres"))
    monkeypatch.setenv("SIXFOLD_PROBE", "0")
    return PostgresCommands(tmp_path / "data", capsys)


def test_account_key_and_ledger_commands_use_postgresql(shell: PostgresCommands) -> None:
    result = shell("account", "create", "a@b.c", "--credit", "5")
    assert shell("account", "credit", "a@b.c", "2.5")["balance_usd"] == "7.50"
    key = shell("key", "create", "a@b.c", "--read-only")
    assert len(shell("key", "list", "a@b.c")["keys"]) == 2
    assert shell("key", "revoke", key["id"])["revoked"] is True
    assert shell("account", "show", "a@b.c")["account_id"] == result["account_id"]
    assert shell("ledger", "verify") == {"ok": True, "faults": [], "archived": 0}
    assert not (shell.folder / "sixfold.db").exists()


def test_doctor_checks_postgresql(shell: PostgresCommands) -> None:
    newest = sql.latest("postgres")
    shell("account", "create", "a@b.c")
    assert shell("doctor")["database"] == {
        "schema": newest,
        "latest": newest,
        "faults": [],
        "ledger_faults": [],
    }


def test_schema_is_downgraded_and_upgraded_with_its_data(shell: PostgresCommands) -> None:
    shell("account", "create", "a@b.c", "--credit", "5")
    newest = sql.latest("postgres")
    assert shell("migrate", "--to", "1", "--drop") == {"before": newest, "after": 1, "latest": newest}
    assert shell("migrate") == {"before": 1, "after": newest, "latest": newest}
    assert shell("account", "show", "a@b.c")["balance_usd"] == "5.00"
    assert shell("ledger", "verify")["ok"] is True


def test_unreachable_database_is_reported_without_its_password(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIXFOLD_DATABASE_URL", "postgresql://me:geheim@127.0.0.1:9/shop")
    # A server replaces the handlers, which later tests in this process would use after this one ends.
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    for words in (
        ("account", "show", "a@b.c"),
        ("serve",),
        ("migrate",),
        ("backup", str(tmp_path / "x.tar")),
    ):
        assert command_line.main([*words, "--data-dir", str(tmp_path / "data")]) == 1
        text = capsys.readouterr().err
        assert "postgresql://127.0.0.1:9/shop cannot be reached" in text
        assert text.count("\n") == 1
        assert "geheim" not in text
