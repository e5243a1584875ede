"""The databases that the contract suite runs on; each back adds one row."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from sixfold.core.clock import Clock
from sixfold.core.database import Database
from sixfold.store import databases as stores
from tests import ground

Opener = Callable[[Path, Clock | None], AbstractAsyncContextManager[Database]]


@asynccontextmanager
async def on(back: str | None, folder: Path, clock: Clock | None = None) -> AsyncIterator[Database]:
    """The database of `folder`, on `back` or what the suite runs on; opened again it has what it had."""
    database = opened(folder, clock, back)
    try:
        yield database
    finally:
        await database.close()


def opened(folder: Path, clock: Clock | None = None, back: str | None = None) -> Database:
    """The same, to be closed by the caller."""
    return stores.open_database(ground.database_url(folder, back), folder / "sixfold.db", clock)


OPENERS: dict[str, Opener] = {name: partial(on, name) for name in ground.DATABASES}

# Values for `parametrize` where a test runs on every database.
BACKS = [
    pytest.param(name, marks=[pytest.mark.postgres] if name == "postgres" else [])
    for name in ground.DATABASES
]
