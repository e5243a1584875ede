"""A backup of SQLite copies the database first, so that its write-ahead log can shrink meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sixfold.app import storage
from sixfold.store import archive
from sixfold.store.sqlite import database as sqlite
from tests.contract import test_backup as backup_tests


def rows_of(reader: archive.TableReader) -> dict[str, list[archive.Row]]:
    return {name: list(reader.rows(name)) for name, _ in reader.tables()}


@pytest.mark.nightly
@pytest.mark.parametrize("copied", [True, False], ids=["copied", "not copied"])
def test_write_ahead_log_shrinks_while_a_copy_is_read(tmp_path: Path, copied: bool) -> None:
    source, copy = backup_tests.snapshot_at(tmp_path / "source"), tmp_path / "whole.tar.db"
    asyncio.run(backup_tests.fill(source))
    file = source.data_dir / storage.DATABASE
    with storage.open_snapshot(source) as reader:
        before = rows_of(reader)
    copy.write_bytes(b"left by a backup that was killed")
    with storage.open_snapshot(source, copy if copied else None) as reader:
        writer = sqlite.connect(str(file))
        for number in range(50):
            writer.execute("UPDATE account SET plan = ?", (f"plan-{number}",))
        busy, pages, merged = writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        writer.close()
        assert copied == (busy == 0 and pages == merged), (busy, pages, merged)
        assert rows_of(reader) == before, "rows of the moment at which it began"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("whole")] == (
        [] if copied else [copy.name]
    )
