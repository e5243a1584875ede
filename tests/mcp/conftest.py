"""One server for each test that asks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.app_fixture import House, house
from tests.mcp.agent import Agent


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[House]:
    """A server with the painter of dots."""
    async with house(tmp_path) as found:
        yield found


@pytest.fixture
def agent(home: House) -> Agent:
    """The first account's agent."""
    return Agent(home)
