"""N processes compete for funds that suffice for M requests: exactly M succeed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from sixfold.core.accounts import accounts, ledger_queries
from tests.harness import databases, processes

PROCESSES, TRIES = 4, 30


@pytest.mark.parametrize("backend", databases.BACKENDS)
@pytest.mark.parametrize(("amount", "affordable"), [(1, 50), (7_000, 33), (2, 0)])
async def test_concurrent_charges_succeed_exactly_up_to_the_balance(
    backend: str, tmp_path: Path, amount: int, affordable: int
) -> None:
    async with databases.running_database(backend, tmp_path) as database:
        account = await database.write(
            accounts.create("a@example.com", credit=amount * affordable + amount - 1)
        )
        command = (sys.executable, "-m", "tests.e2e.spend_process", str(tmp_path), account.id)
        children = [
            await asyncio.create_subprocess_exec(
                *command, str(amount), str(TRIES), stdout=asyncio.subprocess.PIPE
            )
            for _ in range(PROCESSES)
        ]
        response = await asyncio.gather(*(processes.read_output(child) for child in children))
        assert sum(int(output) for output, _ in response) == affordable
        after = await database.read(accounts.by_id(account.id))
        assert (after.posted, after.held) == (amount - 1, 0)
        assert await database.read(ledger_queries.verify()) == ()
