"""`sixfold move`: from SQLite and files to PostgreSQL and an object store, row by row and file by file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sixfold import settings
from sixfold.app import storage
from sixfold.cli import server_lock
from sixfold.cli.database import move, restore
from sixfold.core.media.ports import BlobStore, ObjectInfo
from sixfold.settings import Settings
from sixfold.store import sql
from sixfold.store.object_store import ObjectStore
from tests.contract import test_backup as backup_tests
from tests.contract.test_backup_postgres import content
from tests.harness import backends, databases, postgres, s3
from tests.unit.cli.conftest import Commands

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one"),
    *s3.NEEDED,
]
TRANSFERS = 300


class Installation:
    """A data folder with rows and files, and an empty database and bucket to move it to."""

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.source = backup_tests.snapshot_at(folder / "data")
        self.account_id = asyncio.run(backup_tests.fill(self.source, files=20))
        asyncio.run(backup_tests.history(self.source, self.account_id, TRANSFERS))
        self.url = backends.database_url(folder / "target", "postgres")
        databases.keeper(self.url, folder).migrate(0)
        postgres.forget_schema(self.url)
        bucket = s3.server().new_bucket()
        environ = s3.environment(s3.server().endpoint) | {
            "SIXFOLD_DATABASE_URL": self.url,
            "SIXFOLD_BLOB_URL": f"s3://{bucket}/store",
            "SIXFOLD_UPLOAD_URL": f"s3://{bucket}/uploads",
        }
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        self.target = settings.load(data_dir=self.source.data_dir)
        self.sixfold = Commands(self.source.data_dir, capsys)

    def files(self, configured: Settings) -> dict[str, bytes]:
        """Return the content of both stores."""
        return asyncio.run(self._files(configured.replace(blob_cache_bytes=0)))

    async def _files(self, configured: Settings) -> dict[str, bytes]:
        result: dict[str, bytes] = {}
        for store in (storage.open_blobs(configured), storage.open_uploads(configured)):
            async for info in store.list():
                result[info.key] = await store.get(info.key)
        return result

    def schema(self) -> int | None:
        return storage.open_admin(self.target).schema()


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Installation:
    return Installation(tmp_path, monkeypatch, capsys)


def test_every_row_and_file_is_moved_and_the_source_is_unchanged(old: Installation) -> None:
    before = (backup_tests.dump(old.source), old.files(old.source))
    result = old.sixfold.ok("move")
    assert (result["files"], result["copied"], result["missing"], result["rows_were_there"]) == (
        21,
        21,
        [],
        False,
    )
    assert result["tables"]["transfer"] > TRANSFERS
    assert content(old.target) == content(old.source)
    assert old.files(old.target) == old.files(old.source)
    assert (backup_tests.dump(old.source), old.files(old.source)) == before
    assert old.sixfold.ok("ledger", "verify") == {"ok": True, "faults": [], "archived": 0}
    text = old.sixfold("move").out
    assert "equals its original" in text
    assert "were there already" in text
    assert "0 copied now" in text


def test_an_interrupted_move_is_repeated(old: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    put_file, count = ObjectStore.put_file, 0

    async def fails_after_five(self: Any, key: str, path: Path, **options: Any) -> ObjectInfo:
        nonlocal count
        count += 1
        if count > 5:
            raise OSError(5, "the machine lost its network")
        return await put_file(self, key, path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "put_file", fails_after_five)
        assert "lost its network" in old.sixfold.error_of("move")
    assert old.schema() is None
    result = old.sixfold.ok("move")
    assert result["files"] == 21
    assert result["copied"] == 16, "five were there"
    assert content(old.target) == content(old.source)


def test_a_damaged_copy_is_replaced(old: Installation) -> None:
    key = min(old.files(old.source))
    asyncio.run(storage.open_blobs(old.target).put(key, b"half of it"))
    old.sixfold.ok("move")
    assert old.files(old.target) == old.files(old.source)


def test_rows_that_differ_leave_the_database_empty(
    old: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare: Callable[..., tuple[int, int]] = move.compare_rows
    monkeypatch.setattr(move, "compare_rows", lambda *words: (compare(*words)[0], 1))
    assert "Nothing was moved" in old.sixfold.error_of("move")
    assert old.schema() is None


def test_a_running_server_refuses_the_move(old: Installation) -> None:
    with server_lock.hold(old.source.data_dir):
        assert "stop it first" in old.sixfold.error_of("move")
    assert old.schema() is None
    assert old.files(old.target) == {}


def test_another_database_is_not_overwritten(old: Installation) -> None:
    storage.open_admin(old.target).migrate(1)
    assert "is neither empty nor a copy" in old.sixfold.error_of("move")
    storage.open_admin(old.target).migrate(sql.latest("postgres"))
    before = content(old.target)
    assert "is neither empty nor a copy" in old.sixfold.error_of("move")
    assert content(old.target) == before


def test_text_that_postgresql_cannot_store_is_moved(old: Installation, tmp_path: Path) -> None:
    with sqlite3.connect(old.source.data_dir / databases.FILE) as connection:
        connection.execute("UPDATE audit SET detail = 'a' || char(0) || 'b'")
    connection.close()
    old.sixfold.ok("move")
    with storage.open_snapshot(old.target) as reader:
        columns = dict(reader.tables())["audit"]
        assert {row[columns.index("detail")] for row in reader.rows("audit")} == {"a\ufffdb"}
    path, second_settings = tmp_path / "all.tar", backup_tests.snapshot_at(tmp_path / "again")
    asyncio.run(backup_tests.write_backup(old.source, path))
    databases.keeper(old.url, tmp_path).migrate(0)
    postgres.forget_schema(old.url)
    assert restore.restore(path, second_settings.replace(database_url=old.url), verify=True).drift == 0


def test_a_missing_file_is_reported(old: Installation) -> None:
    lost = asyncio.run(lose_one(storage.open_blobs(old.source)))
    result = old.sixfold("move", "--json")
    assert (result.status, result.json["missing"]) == (1, [lost])
    assert lost in result.err
    assert content(old.target) == content(old.source)


async def lose_one(store: BlobStore) -> str:
    key = (await anext(store.list())).key
    assert await store.delete(key)
    return key


@pytest.mark.parametrize("change", ["nothing to move to", "no data", "an older schema"])
def test_refused_move_reports_the_reason(
    old: Installation, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = {
        "nothing to move to": "The target is not set",
        "no data": "no Sixfold data",
        "an older schema": "sixfold upgrade",
    }
    if change == "nothing to move to":
        for name in ("DATABASE", "BLOB", "UPLOAD"):
            monkeypatch.delenv(f"SIXFOLD_{name}_URL")
    elif change == "no data":
        old.sixfold.folder = tmp_path / "empty"
    else:
        storage.open_admin(old.source).migrate(1)
    assert text.get(change, "sixfold upgrade") in old.sixfold.error_of("move")
    assert old.schema() is None
