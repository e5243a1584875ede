"""Process that charges an account concurrently with others: `spend_process FOLDER ACCOUNT AMOUNT TRIES`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sixfold import errors
from sixfold.core import ids
from sixfold.core.accounts import ledger
from sixfold.core.database import Transaction
from tests.harness import databases


def spend(account_id: str, amount: int) -> Transaction[None]:
    """Hold and capture in one transaction."""
    hold_id = ids.new("hold")
    yield from ledger.hold(account_id, hold_id, amount)
    yield from ledger.capture(hold_id, amount, ledger.LedgerEntry("charge", "race"))


async def main(folder: Path, account_id: str, amount: int, tries: int) -> int:
    """Return the number of charges that the balance covered."""
    won = 0
    async with databases.running_database(None, folder) as database:
        for _ in range(tries):
            try:
                await database.write(spend(account_id, amount))
                won += 1
            except errors.InsufficientCredits:
                pass
    return won


if __name__ == "__main__":
    print(asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))  # noqa: T201 - its answer
