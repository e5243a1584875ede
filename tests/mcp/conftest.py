"""Fixtures of the MCP tests: one server for each test that uses it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.api.app_fixture import AppFixture, running_app
from tests.mcp.agent import Agent


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AppFixture]:
    """Run a server with `DotEngine`."""
    async with running_app(tmp_path) as result:
        yield result


@pytest.fixture
def agent(app: AppFixture) -> Agent:
    """Return an MCP client of the first account."""
    return Agent(app)
