"""The databases that the contract suite runs on; each back adds one row."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from sixfold.core.clock import Clock
from sixfold.core.database import Database
from sixfold.store.sqlite import SqliteDatabase

Opener = Callable[[Path, Clock | None], AbstractAsyncContextManager[Database]]


@asynccontextmanager
async def sqlite(folder: Path, clock: Clock | None = None) -> AsyncIterator[Database]:
    """A SQLite file in `folder`; opening it again finds what was there."""
    database = SqliteDatabase(folder / "sixfold.db", clock=clock)
    try:
        yield database
    finally:
        await database.close()


OPENERS: dict[str, Opener] = {"sqlite": sqlite}
