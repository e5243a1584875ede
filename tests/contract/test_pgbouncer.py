"""A database behind PgBouncer in session mode keeps every promise; transaction mode is refused.

A server listens for notifications, holds locks and creates functions, which all belong to a session.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from sixfold.core.accounts import accounts, ledger, ledger_batches, ledger_queries
from sixfold.core.accounts.ledger_batches import Capture
from sixfold.core.database import Transaction
from sixfold.store.postgres.connection import DatabaseUnreachable
from tests.harness import backends, databases, postgres

PGBOUNCER = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one"),
    pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed"),
]
_CONFIG = """[databases]
* = host={host} user={user}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
"""


@contextmanager
def _pooler(tmp_path: Path, mode: str) -> Iterator[str]:
    """Yield the URL of an empty database behind PgBouncer."""
    url = urlsplit(backends.database_url(tmp_path, "postgres"))
    assert PGBOUNCER is not None
    host = parse_qs(url.query)["host"][0]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path / "pgbouncer.ini"
    config.write_text(_CONFIG.format(host=host, user=url.username or "postgres", port=port, mode=mode))
    # It refuses to run as root, and reads its configuration as the owner of the database's socket.
    user = Path(host).owner()
    command = [PGBOUNCER, *(["-u", user] if os.geteuid() == 0 else []), str(config)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        assert process.stderr is not None
        assert any(b"process up" in line for line in process.stderr)
        yield f"postgresql://{url.username or 'postgres'}@127.0.0.1:{port}{url.path}"
    finally:
        process.terminate()
        process.wait(20)
        assert process.stderr is not None
        process.stderr.close()


def _charge(account_id: str, hold_id: str) -> Transaction[None]:
    yield from ledger.hold(account_id, hold_id, 7)
    entry = ledger.LedgerEntry("chat", "test")
    yield from ledger_batches.capture_all([Capture(account_id, hold_id, 7, 7, entry)])


@asynccontextmanager
async def _pooled_database(tmp_path: Path, mode: str) -> AsyncIterator[Any]:
    with _pooler(tmp_path, mode) as url:
        (tmp_path / "database.url").write_text(url)
        async with databases.running_database(None, tmp_path) as database:
            yield database


async def test_ledger_and_notifications_work_in_session_mode(tmp_path: Path) -> None:
    async with _pooled_database(tmp_path, "session") as database:
        await database.join("boot_a", lambda *_: None)
        account = await database.write(accounts.create("a@example.com", credit=100))
        await asyncio.gather(*(database.write(_charge(account.id, f"h{n}")) for n in range(9)))
        after = await database.read(accounts.by_id(account.id))
        assert (after.posted, after.held) == (100 - 9 * 7, 0)
        assert await database.read(ledger_queries.verify()) == ()


@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_servers_refuse_poolers_that_share_sessions(mode: str, tmp_path: Path) -> None:
    async with _pooled_database(tmp_path, mode) as database:
        with pytest.raises(
            DatabaseUnreachable, match=r"set pool_mode = session .* or set SIXFOLD_DATABASE_URL"
        ):
            await database.join("boot_a", lambda *_: None)
