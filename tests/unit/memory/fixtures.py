"""Memory fixtures on each database, with an account that writes pages."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from sixfold.core.accounts import accounts
from sixfold.core.clock import Clock
from sixfold.core.memory.limits import MemoryLimits
from sixfold.core.memory.models import Caller
from sixfold.core.memory.search.index_cache import IndexCache
from sixfold.core.memory.search.service import SearchService
from sixfold.core.memory.service import MemoryService
from sixfold.store.search.index import PageIndex
from tests.harness import databases

BASE = "http://memory.test"


@dataclass(frozen=True, slots=True)
class MemoryFixture:
    """A memory with two accounts."""

    service: MemoryService
    ann: Caller
    ben: Caller


@asynccontextmanager
async def open_memory(
    backend: str, clock: Clock | None = None, limits: MemoryLimits | None = None, folder: Path | None = None
) -> AsyncIterator[MemoryFixture]:
    with tempfile.TemporaryDirectory() as result:
        async with databases.OPENERS[backend](folder or Path(result), clock) as database:
            people = [await database.write(accounts.create(f"{name}@example.com")) for name in ("ann", "ben")]
            finder = SearchService(database, IndexCache(database, PageIndex))
            memory = MemoryService(database, limits or MemoryLimits(), BASE, finder)
            yield MemoryFixture(memory, Caller(people[0].id, "ann"), Caller(people[1].id, "ben"))


@asynccontextmanager
async def ticking(backend: str) -> AsyncIterator[MemoryFixture]:
    """A memory whose clock advances by a second with every read."""
    ticks = itertools.count(1_800_000_000_000_000, 1_000_000)
    async with open_memory(backend, lambda: next(ticks)) as result:
        yield result
