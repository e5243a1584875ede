"""Holds of dead servers: released at once by a starting server, at the second sweep by a running one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sixfold.core.accounts import accounts, ledger_queries
from sixfold.core.database import Database, one
from sixfold.core.gateway import request_log
from sixfold.core.gateway.request_log import CallRecord
from sixfold.core.workers.peer_events import SharedDatabase
from tests.harness import databases, postgres

NONE: frozenset[str] = frozenset()


async def _read_held(database: Database, account_id: str) -> int:
    row: Any = await database.read(one("account_by_id", id=account_id))
    assert await database.read(ledger_queries.verify()) == ()
    return int(row["held"])


async def _begun(database: Database, holder: str) -> str:
    account = await database.write(accounts.create("a@example.com", credit=100))
    call = CallRecord("req_a", account.id, None, "chat", "m", "s/m", streamed=False, held=10)
    await database.write(request_log.begin(call, holder, None))
    return account.id


@pytest.mark.postgres
@pytest.mark.skipif(bool(postgres.LACKING), reason=postgres.LACKING or "there is one")
async def test_live_server_call_is_kept_and_dead_one_checked_twice(tmp_path: Path) -> None:
    async with databases.running_database("postgres", tmp_path) as ours:
        async with databases.running_database("postgres", tmp_path) as theirs:
            assert isinstance(theirs, SharedDatabase)
            await theirs.join("boot_there", lambda *_: None)
            account_id = await _begun(theirs, "boot_there")
            for suspects in (None, frozenset({"boot_there"})):
                for cutoff in (0, 1 << 60):
                    assert await ours.write(request_log.sweep("boot_here", cutoff, suspects)) == NONE
        dead_servers = await ours.write(request_log.sweep("boot_here", 0, NONE))
        assert (dead_servers, await _read_held(ours, account_id)) == ({"boot_there"}, 10)
        await ours.write(request_log.sweep("boot_here", 0, dead_servers))
        assert await _read_held(ours, account_id) == 0


@pytest.mark.parametrize("backend", databases.BACKENDS)
async def test_start_frees_own_calls_and_any_too_old_call(tmp_path: Path, backend: str) -> None:
    async with databases.OPENERS[backend](tmp_path, None) as database:
        account_id = await _begun(database, "boot_here")
        assert await database.write(request_log.sweep("boot_here", 0, None)) == NONE
        assert await _read_held(database, account_id) == 10
        assert await database.write(request_log.sweep("boot_here", 1 << 60, NONE, {"req_a"})) == NONE
        assert await _read_held(database, account_id) == 10, "the call is active"
        assert await database.write(request_log.sweep("boot_here", 1 << 60, NONE)) == NONE
        assert await _read_held(database, account_id) == 0
        await database.write(
            request_log.begin(CallRecord("req_b", account_id, None, "chat", "m", "s/m", False, 7), "x", None)
        )
        assert await database.write(request_log.sweep("boot_here", 0, None)) == {"x"}
        assert await _read_held(database, account_id) == 0
