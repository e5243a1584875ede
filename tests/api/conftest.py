"""Fixtures of the API tests: an app for each test, or one for all tests of a module."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sixfold.app import catalog as app_catalog
from tests.api import browser
from tests.api.app_fixture import AppFixture, running_app
from tests.api.gateway import Gateway, running_gateway
from tests.api.realtime import RealtimeServer, running_realtime
from tests.harness.backends import FILES
from tests.mcp.loopback import serve


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_browser() -> AsyncIterator[browser.SharedBrowser]:
    """Run one browser for all browser tests of a process: each start takes as long as many of them."""
    async with browser.SharedBrowser() as result:
        yield result


# The name that pytest-asyncio gives to the fixture with the event loop of a test and of its fixtures.
@pytest.fixture
def _function_scoped_runner(request: pytest.FixtureRequest) -> asyncio.Runner:
    """Return the event loop of the shared browser for a browser test, and a new one for another test."""
    if request.node.get_closest_marker("browser") is None:
        return request.getfixturevalue("_function_scoped_runner")
    request.getfixturevalue("shared_browser")
    return request.getfixturevalue("_session_scoped_runner")


@pytest.fixture
async def any_database_app(either: Path) -> AsyncIterator[AppFixture]:
    """Run a server on SQLite, then on PostgreSQL."""
    async with running_app(either) as result:
        yield result


@pytest.fixture
async def any_database_gateway(either: Path) -> AsyncIterator[Gateway]:
    """Run a gateway with two model servers, on SQLite, then on PostgreSQL."""
    async with running_gateway(either) as result:
        yield result


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[AppFixture]:
    """Run a server with `DotEngine`."""
    async with running_app(tmp_path) as result:
        yield result


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[AppFixture]:
    """Run a server with the bundled catalog, on which only the embedded engines are available."""
    async with running_app(tmp_path, app_catalog.models_document(), probe=False) as result:
        yield result


@pytest.fixture
async def browser_app(tmp_path: Path) -> AsyncIterator[browser.BrowserApp]:
    """Run a server with its real engines, and a browser."""
    async with (
        running_app(tmp_path, app_catalog.models_document()) as app,
        serve(app.asgi) as url,
        browser.browser() as chromium,
    ):
        yield browser.BrowserApp(app, url, chromium)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    """Run a gateway with two model servers."""
    async with running_gateway(tmp_path) as result:
        yield result


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Gateway]:
    """Run one gateway with two model servers for all tests of a module."""
    async with running_gateway(tmp_path_factory.mktemp("gateway"), settings=FILES) as result:
        yield result


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_realtime(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RealtimeServer]:
    """Run one gateway on a real port for all tests of a module."""
    async with running_realtime(tmp_path_factory.mktemp("realtime"), settings=FILES) as result:
        yield result


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_realtime_with_engines(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[RealtimeServer]:
    """Run one gateway with the embedded engines on a real port for all tests of a module."""
    folder, models = tmp_path_factory.mktemp("realtime"), app_catalog.models_document()
    async with running_realtime(folder, settings=FILES, models=models) as result:
        yield result
