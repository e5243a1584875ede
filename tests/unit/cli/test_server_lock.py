"""One server per data folder, and leftovers of the previous one."""

from __future__ import annotations

from pathlib import Path

import pytest

from sixfold import settings
from sixfold.cli import database_access, server_lock
from sixfold.cli.terminal import CommandError
from sixfold.core.accounts import accounts


def test_partial_uploads_of_a_killed_server_are_deleted(tmp_path: Path) -> None:
    received = tmp_path / "tmp" / "import-1"
    received.parent.mkdir()
    received.write_bytes(b"half of an archive")
    with server_lock.hold(tmp_path):
        assert not received.exists()
        received.write_bytes(b"one that comes now")
        with pytest.raises(CommandError), server_lock.hold(tmp_path):
            pass
        assert received.exists()


def test_command_with_another_database_is_refused(tmp_path: Path) -> None:
    server_settings = settings.load(data_dir=tmp_path, database_url="")
    with server_lock.hold(tmp_path) as lock:
        lock.write_url("http://127.0.0.1:8600", on_postgres=True)
        with pytest.raises(CommandError, match="uses PostgreSQL: set SIXFOLD_DATABASE_URL"):
            database_access.write(server_settings, accounts.create("ann@example.com"), make=True)
        with pytest.raises(CommandError, match="uses PostgreSQL"):
            database_access.read(server_settings, accounts.operator())
        assert not (tmp_path / "sixfold.db").exists()
        lock.write_url("http://127.0.0.1:8600", on_postgres=False)
        database_access.write(server_settings, accounts.create("ann@example.com"), make=True)
    assert database_access.read(server_settings, accounts.operator()) is None
