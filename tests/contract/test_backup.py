"""A backup is a consistent snapshot, and a restore is complete or changes nothing."""

from __future__ import annotations

import asyncio
import fcntl
import io
import json
import os
import sqlite3
import tarfile
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from sixfold import settings
from sixfold.app import storage
from sixfold.cli.database import restore
from sixfold.cli.terminal import CommandError
from sixfold.core import ids
from sixfold.core.accounts import accounts, keys, ledger
from sixfold.core.accounts.tenants import Tenant
from sixfold.core.database import Query, Transaction
from sixfold.core.gateway.conversations import responses as stored_responses
from sixfold.core.media import blob_keys, media
from sixfold.settings import Settings
from sixfold.store import archive, backup, sql
from sixfold.store.archive import ArchiveDamaged
from sixfold.store.file_store import FileStore
from tests.harness import databases

HISTORY = 3000


def snapshot_at(folder: Path) -> Settings:
    return settings.load({}, data_dir=folder)


async def write_backup(configured: Settings, path: Path) -> backup.BackupReport:
    snapshot = storage.open_snapshot(configured, backup.copy_beside(path))
    uploads = storage.open_uploads(configured)
    return await backup.write(path, snapshot, storage.open_blobs(configured), uploads)


def customer(credit: int) -> Transaction[str]:
    account = yield from accounts.create(f"{ids.new('p')}@b.c", credit=credit)
    yield from keys.create(account.id)
    return account.id


def with_name(account_id: str, name: str, key: str, size: int, expires_at: int | None) -> Transaction[None]:
    file = media.OutputFile(name, key, "text/plain", size)
    row = media.record(file, account_id, "output")
    yield Query("media_insert", {**row, "expires_at": expires_at})


async def fill(configured: Settings, files: int = 3) -> str:
    """Create an account with money, keys, files and a stored response; return its id."""
    if not configured.database_url:
        databases.prepare(configured.data_dir)
    database, store = storage.open_database(configured), storage.open_blobs(configured)
    uploads = storage.open_uploads(configured)
    try:
        account_id = await database.write(customer(10_000_000))
        for index in range(files):
            data = f"file {index}".encode() * 1000
            key = blob_keys.blob_key(data)
            await store.put(key, data)
            await database.write(with_name(account_id, f"file-{index}.txt", key, len(data), None))
        await uploads.put("folder/picture.webp", b"a picture")
        response = stored_responses.StoredResponse("resp_1", None, "s/m", '["grüezi"]', '{"output": []}')
        await database.write(stored_responses.keep(Tenant(account_id), response))
    finally:
        await database.close()
    return account_id


def spend(account_id: str) -> Transaction[None]:
    hold_id = ids.new("hold")
    yield from ledger.hold(account_id, hold_id, 7)
    yield from ledger.capture(hold_id, 5, ledger.LedgerEntry("charge", "load"))


async def load(configured: Settings, account_id: str, busy: threading.Event, stop: threading.Event) -> int:
    """Write money and files until stopped; return the number of writes."""
    database, store = storage.open_database(configured), storage.open_blobs(configured)
    count = 0
    try:
        while not stop.is_set():
            data = os.urandom(2000)
            key = blob_keys.blob_key(data)
            await store.put(key, data)
            await database.write(with_name(account_id, f"{ids.new('f')}.bin", key, len(data), None))
            await database.write(spend(account_id))
            count += 1
            busy.set()
    finally:
        await database.close()
    return count


@pytest.mark.nightly
def test_backup_during_writes_restores_without_drift(tmp_path: Path) -> None:
    source, path = snapshot_at(tmp_path / "source"), tmp_path / "all.tar"
    account_id = asyncio.run(fill(source))
    asyncio.run(history(source, account_id))
    busy, stop, counts = threading.Event(), threading.Event(), list[int]()
    writers = [
        threading.Thread(target=lambda: counts.append(asyncio.run(load(source, account_id, busy, stop))))
        for _ in range(2)
    ]
    for writer in writers:
        writer.start()
    written = backup.BackupReport()
    try:
        assert busy.wait(60)
        for round_number in range(3):
            written = asyncio.run(write_backup(source, path))
            assert written.missing == []
            target = snapshot_at(tmp_path / f"target-{round_number}")
            report = restore.restore(path, target, verify=True)
            assert report.verified
            assert (report.drift, report.missing_blobs, report.faults, report.damaged) == (0, 0, (), [])
            assert report.tables == written.tables
            assert report.files == written.files
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert min(counts) > 0
    assert written.tables["transfer"] > HISTORY


async def history(configured: Settings, account_id: str, count: int = HISTORY) -> None:
    """Insert rows; reading the usual number of them takes longer than writing one."""
    database = storage.open_database(configured)
    await asyncio.gather(*(database.write(spend(account_id)) for _ in range(count)))
    await database.close()


def test_restore_is_identical_to_the_source(tmp_path: Path) -> None:
    source, target, path = (
        snapshot_at(tmp_path / "source"),
        snapshot_at(tmp_path / "target"),
        tmp_path / "all.tar",
    )
    asyncio.run(fill(source))
    (source.data_dir / "server.key").write_bytes(b"S" * 32)
    (source.data_dir / "local.key").write_text("sf_secret")
    asyncio.run(write_backup(source, path))
    restore.restore(path, target, verify=True)
    assert dump(target) == dump(source)
    for folder in ("store", "uploads"):
        assert tree(target.data_dir / folder) == tree(source.data_dir / folder)
    assert sorted(item.name for item in target.data_dir.iterdir()) == [
        "server.lock",
        "sixfold.db",
        "store",
        "uploads",
    ]
    assert b"S" * 32 not in path.read_bytes()
    assert b"sf_secret" not in path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600


def dump(configured: Settings) -> list[str]:
    with sqlite3.connect(configured.data_dir / "sixfold.db") as connection:
        lines = [line for line in connection.iterdump() if line.startswith(("INSERT", "CREATE"))]
    connection.close()
    return sorted(lines)


def tree(folder: Path) -> dict[str, bytes]:
    result = (path for path in folder.rglob("*") if path.is_file() and "~new" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in result}


def test_missing_file_is_reported_and_others_are_restored(tmp_path: Path) -> None:
    source, path = snapshot_at(tmp_path / "source"), tmp_path / "all.tar"
    asyncio.run(fill(source))
    lost = next(item for item in (source.data_dir / "store" / "blobs").rglob("*") if item.is_file())
    lost.unlink()
    written = asyncio.run(write_backup(source, path))
    assert len(written.missing) == 1
    report = restore.restore(path, snapshot_at(tmp_path / "target"), verify=True)
    assert report.missing == written.missing
    assert (report.drift, report.missing_blobs) == (0, 1)


def test_missing_file_without_a_valid_name_is_not_reported(tmp_path: Path) -> None:
    source, path = snapshot_at(tmp_path / "source"), tmp_path / "all.tar"
    account_id = asyncio.run(fill(source))

    async def expire() -> None:
        database = storage.open_database(source)
        await database.write(with_name(account_id, "old.txt", "blobs/aa/" + "b" * 62, 5, 1))
        await database.close()

    asyncio.run(expire())
    assert asyncio.run(write_backup(source, path)).missing == []


def test_damaged_file_is_named_by_the_restore(tmp_path: Path) -> None:
    source, path = snapshot_at(tmp_path / "source"), tmp_path / "all.tar"
    asyncio.run(fill(source))
    rotten = next(item for item in (source.data_dir / "store" / "blobs").rglob("*") if item.is_file())
    rotten.write_bytes(b"rot")
    asyncio.run(write_backup(source, path))
    report = restore.restore(path, snapshot_at(tmp_path / "target"), verify=False)
    assert [key.rpartition("/")[2] for key in report.damaged] == [rotten.name]


def test_restored_database_has_the_latest_schema(tmp_path: Path) -> None:
    source, path = snapshot_at(tmp_path / "source"), tmp_path / "all.tar"
    asyncio.run(fill(source))
    asyncio.run(write_backup(source, path))
    target = snapshot_at(tmp_path / "target")
    assert restore.restore(path, target, verify=True).schema == sql.latest("sqlite")
    with sqlite3.connect(target.data_dir / "sixfold.db") as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (sql.latest("sqlite"),)
    connection.close()


# -- refusals --------------------------------------------------------------------------------------


@pytest.fixture
def valid_backup(tmp_path: Path) -> Path:
    path = tmp_path / "whole.tar"
    asyncio.run(fill(snapshot_at(tmp_path / "source")))
    asyncio.run(write_backup(snapshot_at(tmp_path / "source"), path))
    return path


def failed_restore(path: Path, target: Path) -> str:
    """Check that a restore fails without leaving anything; return the error message."""
    before = sorted(target.rglob("*")) if target.exists() else None
    with pytest.raises(CommandError) as excinfo:
        restore.restore(path, snapshot_at(target), verify=False)
    after = sorted(item for item in target.rglob("*") if item.name != "server.lock") if before else None
    assert after == before
    assert target.exists() == (before is not None)
    return str(excinfo.value)


@pytest.mark.parametrize("name", ["sixfold.db", "store", "uploads"])
def test_restore_into_a_folder_with_data_is_refused(tmp_path: Path, valid_backup: Path, name: str) -> None:
    target = tmp_path / "target"
    target.mkdir()
    if name.endswith(".db"):
        (target / name).write_bytes(b"")
    else:
        (target / name).mkdir()
        (target / name / "something").write_bytes(b"mine")
    assert f"is not empty (it has {name})" in failed_restore(valid_backup, target)


def test_restore_keeps_an_existing_server_key(tmp_path: Path, valid_backup: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "sixfold.toml").write_text("port = 9000\n")
    (target / "server.key").write_bytes(b"S" * 32)
    restore.restore(valid_backup, snapshot_at(target), verify=True)
    assert (target / "server.key").read_bytes() == b"S" * 32


@pytest.mark.nightly
def test_every_truncation_is_detected(tmp_path: Path, valid_backup: Path) -> None:
    data = valid_backup.read_bytes()
    end = data.rstrip(b"\0")
    cut = tmp_path / "cut.tar"
    for length in (*range(0, len(end), 1536), len(end) - 1):
        cut.write_bytes(data[:length])
        assert "is not a complete backup" in failed_restore(cut, tmp_path / "target"), length


@pytest.mark.nightly
def test_every_changed_byte_is_detected(tmp_path: Path, valid_backup: Path) -> None:
    data = bytearray(valid_backup.read_bytes())
    changed_path = tmp_path / "changed.tar"
    contents = [range(info.offset_data, info.offset_data + info.size) for info in members(valid_backup)]
    offsets = [offset for content in contents for offset in content[:: max(1, len(content) // 5)]]
    assert len(offsets) > 20
    for offset in offsets:
        original = data[offset]
        data[offset] ^= 1
        changed_path.write_bytes(data)
        assert restored_otherwise(changed_path, tmp_path / "target") is False, offset
        data[offset] = original


def members(path: Path) -> list[tarfile.TarInfo]:
    with tarfile.open(path) as tar:
        return tar.getmembers()


def restored_otherwise(path: Path, target: Path) -> bool:
    """Return whether a changed backup was restored; only the time of the backup may differ."""
    try:
        restore.restore(path, snapshot_at(target), verify=False)
    except CommandError:
        return False
    with archive.open_archive(path) as result:
        cosmetic = (result.manifest.created_at, result.manifest.sixfold)
    for item in sorted(target.rglob("*"), reverse=True):
        item.rmdir() if item.is_dir() else item.unlink()
    target.rmdir()
    with archive.open_archive(path.with_name("whole.tar")) as valid_backup:
        return cosmetic == (valid_backup.manifest.created_at, valid_backup.manifest.sixfold)


Change = Callable[[str, bytes], list[tuple[tarfile.TarInfo, bytes]]]


def with_changed_members(path: Path, change: Change) -> Path:
    target = path.with_name("rewritten.tar")
    with tarfile.open(path) as old, tarfile.open(target, "w") as new:
        for info in old.getmembers():
            file = old.extractfile(info)
            assert file is not None
            for item, data in change(info.name, file.read()):
                item.size = len(data) if item.isreg() else 0
                new.addfile(item, io.BytesIO(data))
    return target


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


HOSTILE = [
    "../evil",
    "/etc/evil",
    "store/../../evil",
    "store/blobs/../../../evil",
    "uploads/./evil",
    "uploads//evil",
    "uploads/evil/",
    "uploads/~new/evil",
    "uploads/ev\nil",
    "sixfold.db",
    "server.key",
    "tables/extra.jsonl",
    "store",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_archive_member_with_a_hostile_name_is_refused(tmp_path: Path, valid_backup: Path, name: str) -> None:
    def change(old: str, data: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
        extra = [(member(name), b"evil")] if old == "blobs.jsonl" else []
        return [*extra, (member(old), data)]

    failed_restore(with_changed_members(valid_backup, change), tmp_path / "target")
    assert not list(tmp_path.rglob("evil*"))


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
)
def test_archive_member_that_is_no_regular_file_is_refused(
    tmp_path: Path, valid_backup: Path, kind: bytes
) -> None:
    def change(old: str, data: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
        extra = [(member("uploads/evil", kind, "/etc/passwd"), b"")] if old == "blobs.jsonl" else []
        return [*extra, (member(old), data)]

    assert "not a regular file" in failed_restore(
        with_changed_members(valid_backup, change), tmp_path / "target"
    )


def in_manifest(change: Callable[[dict[str, object]], None]) -> Change:
    def changed(old: str, data: bytes) -> list[tuple[tarfile.TarInfo, bytes]]:
        if old == "manifest.json":
            document = json.loads(data)
            change(document)
            data = json.dumps(document).encode()
        return [(member(old), data)]

    return changed


def test_newer_schema_asks_to_upgrade(tmp_path: Path, valid_backup: Path) -> None:
    path = with_changed_members(
        valid_backup, in_manifest(lambda document: document.update(schema=sql.latest("sqlite") + 1))
    )
    assert "upgrade Sixfold" in failed_restore(path, tmp_path / "target")


@pytest.mark.parametrize("schema", [0, -1, "1", None])
def test_invalid_schema_is_refused(tmp_path: Path, valid_backup: Path, schema: object) -> None:
    assert failed_restore(
        with_changed_members(valid_backup, in_manifest(lambda document: document.update(schema=schema))),
        tmp_path / "target",
    )


def test_unknown_format_is_refused(tmp_path: Path, valid_backup: Path) -> None:
    path = with_changed_members(
        valid_backup, in_manifest(lambda document: document.update(format="sixfold-backup/2"))
    )
    assert "its format is 'sixfold-backup/2'" in failed_restore(path, tmp_path / "target")


@pytest.mark.parametrize("name", ["account", "../account", "sqlite_master", "no such"])
def test_unknown_table_is_refused(tmp_path: Path, valid_backup: Path, name: str) -> None:
    def change(document: dict[str, object]) -> None:
        tables = document["tables"]
        assert isinstance(tables, list)
        tables[-1]["name"] = name

    assert failed_restore(with_changed_members(valid_backup, in_manifest(change)), tmp_path / "target")


@pytest.mark.parametrize("data", [b"", b"not a tar", b"\0" * 10_240, os.urandom(4096)])
def test_incomplete_backup_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "nothing.tar"
    path.write_bytes(data)
    assert "is not a complete backup" in failed_restore(path, tmp_path / "target")


def test_remains_of_a_killed_restore_are_removed_by_the_next(tmp_path: Path, valid_backup: Path) -> None:
    target = tmp_path / "target"
    (target / ".restoring" / "store").mkdir(parents=True)
    (target / ".restoring" / "sixfold.db").write_bytes(b"half")
    restore.restore(valid_backup, snapshot_at(target), verify=True)
    assert not (target / ".restoring").exists()


# -- the file itself -------------------------------------------------------------------------------


def test_failed_backup_keeps_the_previous_one(tmp_path: Path, valid_backup: Path) -> None:
    before = valid_backup.read_bytes()

    class Broken(FileStore):
        async def stream(self, key: str, start: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
            raise OSError(5, "Input/output error")
            yield b""

    source = snapshot_at(tmp_path / "source")
    broken = Broken(source.data_dir / "store")
    with pytest.raises(OSError, match="Input/output"):
        asyncio.run(backup.write(valid_backup, storage.open_snapshot(source), broken, None))
    assert valid_backup.read_bytes() == before
    assert not valid_backup.with_name("whole.tar.tmp").exists()


def test_second_backup_into_one_file_is_refused(tmp_path: Path, valid_backup: Path) -> None:
    with valid_backup.with_name("whole.tar.tmp").open("wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(backup.BackupBusy):
            asyncio.run(write_backup(snapshot_at(tmp_path / "source"), valid_backup))


@pytest.mark.parametrize(
    "row",
    [
        (None, 0, -(2**63), 2**63 - 1),
        ("", "text", "ünïcödé 🦊 \x00 \u2028", '"\\\n'),
        (b"", b"\x00\xff", 1.5, -0.0),
        (float("inf"), float("-inf"), 1e308, 5e-324),
    ],
)
def test_row_is_identical_after_encoding_and_decoding(row: tuple[archive.Value, ...]) -> None:
    line = archive.encode_row(row)
    assert line.count(b"\n") == 1
    result = archive.decode_row(line, len(row))
    assert result == list(row)
    assert [type(value) for value in result] == [type(value) for value in row]


@pytest.mark.parametrize(
    "line",
    [
        b"[true]\n",
        b"[[1]]\n",
        b'[{"base64":"!"}]\n',
        b'[{"float":"1"}]\n',
        b'[{"base64":"","x":1}]\n',
        b"[1]",
        b"{}\n",
    ],
)
def test_row_with_unsupported_values_is_reported_as_damaged(line: bytes) -> None:
    with pytest.raises(ArchiveDamaged):
        archive.decode_row(line, 1)
