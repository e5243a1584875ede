"""Snapshots of indexes: restarted servers read only later changes, and never use an invalid file."""

from __future__ import annotations

import os
import pickle
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sixfold import errors
from sixfold.core.account_data import deletion
from sixfold.core.accounts import accounts
from sixfold.core.database import many
from sixfold.core.memory import commands
from sixfold.core.memory.commands import FREELY, PageWriter, WriteTerms
from sixfold.core.memory.indexing import entries
from sixfold.core.memory.limits import MemoryLimits
from sixfold.core.memory.page_edits import PageWrite
from sixfold.core.memory.ports import SearchRequest
from sixfold.core.memory.search import index_cache, index_snapshots
from sixfold.core.memory.search.index_cache import IndexCache
from sixfold.core.memory.search.index_snapshots import IndexSnapshots, SnapshotName
from sixfold.core.memory.search.service import SearchService
from sixfold.store.search import snapshot_files
from sixfold.store.search.index import PageIndex
from sixfold.store.search.snapshot_files import SnapshotFolder
from tests.harness import databases
from tests.unit.memory.fixtures import MemoryFixture, open_memory


class Server:
    """A server that stores its snapshots in `folder`."""

    def __init__(self, memory: MemoryFixture, folder: Path, most_bytes: int = 2**29) -> None:
        self.files = SnapshotFolder(folder, most_bytes)
        self.snapshots = IndexSnapshots(memory.service.database, self.files)
        self.cache = IndexCache(memory.service.database, PageIndex, most_bytes, self.snapshots)
        self._service = SearchService(memory.service.database, self.cache)
        self._caller = memory.ann

    async def find(self, query: str) -> set[str]:
        return {hit.slug for hit in (await self._service.search(self._caller, SearchRequest(query))).hits}


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make snapshots of all indexes, and record the slugs that are read from the database."""
    monkeypatch.setattr(index_snapshots, "MIN_PAGES", 1)
    slugs: list[str] = []
    decode = entries.decode

    def record(text: str) -> entries.IndexEntry | None:
        entry = decode(text)
        slugs.append(entry.slug if entry is not None else "")
        return entry

    monkeypatch.setattr(index_cache.entries, "decode", record)
    return slugs


@pytest.fixture(params=databases.BACKENDS)
async def memory(request: pytest.FixtureRequest, read: list[str]) -> AsyncIterator[MemoryFixture]:
    async with open_memory(request.param) as opened:
        for slug in ("lake", "boat"):
            await put(opened, slug, f"A page about the {slug} and the shore.")
        yield opened


async def put(memory: MemoryFixture, slug: str, body: str) -> None:
    writer = PageWriter(memory.ann, MemoryLimits())
    await memory.service.database.write(commands.write(writer, PageWrite(slug, body), FREELY))


async def saved(memory: MemoryFixture, folder: Path) -> Server:
    server = Server(memory, folder)
    await server.find("shore")
    await server.cache.save()
    return server


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def only_file(folder: Path) -> Path:
    [path] = files_in(folder)
    return path


async def test_restarted_server_reads_only_later_changes(
    memory: MemoryFixture, read: list[str], tmp_path: Path
) -> None:
    await saved(memory, tmp_path)
    await memory.service.delete(memory.ann, "boat", WriteTerms())
    await put(memory, "pier", "A pier at the shore.")
    read.clear()
    assert await Server(memory, tmp_path).find("shore") == {"lake", "pier"}
    assert sorted(read) == ["", "pier"]


async def test_snapshots_of_each_server_stay_valid(
    memory: MemoryFixture, read: list[str], tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        await saved(memory, folder)
    read.clear()
    for folder in folders:
        assert await Server(memory, folder).find("shore") == {"lake", "boat"}
    assert read == []


async def test_new_snapshot_replaces_the_one_of_its_folder(
    memory: MemoryFixture, read: list[str], tmp_path: Path
) -> None:
    server = await saved(memory, tmp_path)
    before = only_file(tmp_path)
    await server.cache.save()
    assert only_file(tmp_path) == before
    await put(memory, "pier", "A pier at the shore.")
    await server.find("pier")
    await server.cache.save()
    assert only_file(tmp_path) != before
    read.clear()
    assert await Server(memory, tmp_path).find("shore") == {"lake", "boat", "pier"}
    assert read == []


async def test_snapshot_newer_than_a_restored_database_is_unused(
    memory: MemoryFixture, read: list[str], tmp_path: Path
) -> None:
    await saved(memory, tmp_path)
    account = {"account_id": memory.ann.account_id}
    [row] = await memory.service.database.read(many("memory_snapshots", **account))
    assert row["snapshots"] in only_file(tmp_path).name
    # A backup from before the snapshot does not contain its token.
    await memory.service.database.write(many("memory_snapshots_put", **account, snapshots=""))
    read.clear()
    server = Server(memory, tmp_path)
    assert await server.find("shore") == {"lake", "boat"}
    assert sorted(read) == ["boat", "lake"]
    await server.snapshots.sweep()
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("damage", ["torn", "changed", "empty", "of another version"])
async def test_damaged_snapshot_is_deleted(
    memory: MemoryFixture, read: list[str], tmp_path: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await saved(memory, tmp_path)
    path = only_file(tmp_path)
    content = path.read_bytes()
    middle = len(content) // 2
    damaged = {
        "torn": content[:middle],
        "changed": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "empty": b"",
    }
    path.write_bytes(damaged.get(damage, content))
    if damage not in damaged:
        monkeypatch.setattr(snapshot_files, "_version", lambda: "another version")
    read.clear()
    assert await Server(memory, tmp_path).find("shore") == {"lake", "boat"}
    assert sorted(read) == ["boat", "lake"]
    assert not path.exists()


class Command:
    """An object that runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (str(self._path),)


def test_objects_of_other_classes_are_not_created(tmp_path: Path) -> None:
    name, files = SnapshotName("acct_1", 1, "0" * 16), SnapshotFolder(tmp_path, 2**30)
    assert files.write(name, PageIndex())
    path = only_file(tmp_path)
    content = path.read_bytes().split(b"\n")[0] + b"\n" + pickle.dumps(Command(tmp_path / "created"))
    path.write_bytes(content + zlib.crc32(content).to_bytes(4, "big"))
    assert files.read(name) is None
    assert files_in(tmp_path) == []


async def test_snapshots_of_erased_accounts_are_deleted(memory: MemoryFixture, tmp_path: Path) -> None:
    server = await saved(memory, tmp_path)
    await server.snapshots.sweep()
    assert only_file(tmp_path).stat().st_mode & 0o777 == 0o600
    database = memory.service.database
    account = await database.read(accounts.by_id(memory.ann.account_id))
    await database.write(deletion.close(account, -1))
    assert await database.write(deletion.erase(account.id))
    await server.snapshots.sweep()
    assert files_in(tmp_path) == []


def test_oldest_snapshots_above_the_limit_are_deleted(tmp_path: Path) -> None:
    files, index = SnapshotFolder(tmp_path, 2**30), PageIndex()
    names = [SnapshotName(f"acct_{number}", 1, "0" * 16) for number in range(4)]
    for number, name in enumerate(names):
        assert files.write(name, index)
        os.utime(tmp_path / f"acct_{number}.1.{name.token}.index", (number, number))
    size = (tmp_path / f"acct_0.1.{names[0].token}.index").stat().st_size
    SnapshotFolder(tmp_path, 3 * size).trim(names[0])
    assert set(files.names()) == {names[0], names[2], names[3]}


async def test_index_with_words_on_disk_is_not_saved(memory: MemoryFixture, tmp_path: Path) -> None:
    server = Server(memory, tmp_path, most_bytes=1_000)
    assert await server.find("shore") == {"lake", "boat"}
    await server.cache.save()
    assert files_in(tmp_path) == []


async def test_full_disk_is_logged_and_the_search_works(
    memory: MemoryFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(snapshot_files.os, "fsync", fail)
    server = await saved(memory, tmp_path)
    assert "cannot be saved: no space left" in caplog.text
    assert files_in(tmp_path) == []
    assert await server.find("shore") == {"lake", "boat"}


async def test_failed_publication_of_a_snapshot_is_repeated(
    memory: MemoryFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(memory, tmp_path)
    await server.find("shore")

    async def fail(*_: object, **__: object) -> None:
        raise errors.StoreFailed

    with monkeypatch.context() as failing:
        failing.setattr(memory.service.database, "write", fail)
        with pytest.raises(errors.StoreFailed):
            await server.cache.save()
    await server.snapshots.sweep()
    assert files_in(tmp_path) == []
    await server.cache.save()
    assert files_in(tmp_path) != []
