"""Credits with an Idempotency-Key, which can be used for another credit after a day, on both databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from sixfold.core.accounts import accounts, ledger_queries
from sixfold.core.accounts.idempotency import LIFE_US
from sixfold.core.accounts.operation import customers
from tests.harness import databases

BEGAN = 1_764_500_000_000_000


@pytest.mark.parametrize("backend", databases.BACKENDS)
async def test_each_use_of_an_expired_key_credits_once(backend: str, tmp_path: Path) -> None:
    """A server may stop before it stores the response, so that the request is repeated."""
    moment = BEGAN
    async with databases.running_database(backend, tmp_path, lambda: moment) as database:
        operator = await database.write(accounts.create("op@example.com", operator=True))
        account = await database.write(accounts.create("a@example.com"))
        for use in range(3):
            moment = BEGAN + use * LIFE_US
            for _ in range(2):
                credit = customers.credit(operator.owner, account.id, 1_000_000, "paid", "scope")
                await database.write(credit)
        assert (await database.read(accounts.by_id(account.id))).posted == 3_000_000
        assert await database.read(ledger_queries.verify()) == ()
