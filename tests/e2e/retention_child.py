"""Retention in a process that tests kill: `retention_child FOLDER FAILPOINTS`.

It archives what is in the folder as if 500 days had passed, erases the accounts that are marked, and prints
`done`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sixfold.core import ids
from sixfold.core.account_data import retention
from sixfold.core.account_data.archive.writer import ArchiveWriter
from sixfold.core.account_data.retention import Retention
from sixfold.core.clock import DAY_US
from sixfold.core.database import Database, now
from sixfold.core.failpoints import Failpoints
from tests.harness import backends, databases

POLICY = {"predictions_days": 30, "audit_days": 30, "ledger_days": 400}


async def sweep(database: Database, folder: Path, failpoints: str = "", *, archive: bool = True) -> None:
    """Delete or archive what has expired in 500 days, and erase."""
    writer = ArchiveWriter(database, backends.open_blobs(folder), Failpoints(failpoints))
    retaining = Retention(writer, retention.policy({**POLICY, "archive": archive}), ids.new("boot"))
    await retaining.sweep(await database.read(now()) + 500 * DAY_US)
    await retaining.erase()


async def main(folder: Path, failpoints: str) -> None:
    """Run to the end, unless a failpoint ends the process first."""
    database = databases.open_database(folder)
    try:
        await sweep(database, folder, failpoints, archive=not failpoints.startswith("sweep"))
        print("done", flush=True)  # noqa: T201 - what the parent reads
    finally:
        await database.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
