"""One server for each test that asks for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sixfold.app import catalog as app_catalog
from tests.api import browser
from tests.api.app_fixture import House, house
from tests.mcp.loopback import served


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


@pytest.fixture
async def stand(tmp_path: Path) -> AsyncIterator[tuple[House, str, Any]]:
    """A server with its real engines, its address, a browser."""
    async with (
        house(tmp_path, app_catalog.models_document()) as home,
        served(home.app) as url,
        browser.browser() as chromium,
    ):
        yield home, url, chromium
