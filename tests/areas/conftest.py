"""One server for each test that asks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.areas.house import House, house


@pytest.fixture
async def either_home(either: Path) -> AsyncIterator[House]:
    """The same on SQLite, and then on PostgreSQL."""
    async with house(either) as found:
        yield found


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[House]:
    """A server with the painter of dots."""
    async with house(tmp_path) as found:
        yield found
