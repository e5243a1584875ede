"""Every scenario of the official conformance suite, with its fixtures in place of the product's tools."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from sixfold import settings
from sixfold.app import asgi
from sixfold.mcp import app as mcp_app
from sixfold.web.app import WebApp
from sixfold.web.metrics import Metrics
from tests.api.app_fixture import AppFixture
from tests.harness import nodejs, processes
from tests.mcp import fixtures
from tests.mcp.loopback import serve, with_key

SUITE = "@modelcontextprotocol/conformance@0.1.16"
RUN_SECONDS = 100
_TOTAL = re.compile(r"^Total: (\d+) passed, (\d+) failed", re.MULTILINE)

pytestmark = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Node and the suite, installed with npm; skips with a reason where that cannot be."""
    folder = tmp_path_factory.mktemp("conformance")
    node = nodejs.installed(folder, SUITE)
    return node, folder / "node_modules/@modelcontextprotocol/conformance/dist/index.js"


@pytest.mark.parametrize("scenarios", ["active", "pending"])
async def test_every_scenario_of_the_official_suite_passes(
    suite: tuple[Path, Path], app: AppFixture, tmp_path: Path, scenarios: str
) -> None:
    asgi_app = WebApp([mcp_app.serve(asgi.build_services(app.server), fixtures.server())], Metrics())
    async with serve(with_key(asgi_app, app.key)) as origin:
        arguments = (
            "server",
            "--url",
            f"{origin}/mcp",
            "--suite",
            scenarios,
            "-o",
            str(tmp_path / "results"),
        )
        child = await asyncio.create_subprocess_exec(
            *map(str, suite), *arguments, cwd=tmp_path, env=settings.worker_environment(),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        message, _ = await processes.read_output(child, RUN_SECONDS)
    text = message.decode()
    total = _TOTAL.search(text)
    assert total is not None, text[-2000:]
    passed, failed = map(int, total.groups())
    print(f"conformance, {scenarios}: {passed} passed, {failed} failed")  # noqa: T201 - read in CI's log
    assert failed == 0, text[-4000:]
    # A run without checks must not count as passed.
    assert passed >= {"active": 38, "pending": 4}[scenarios]
    assert child.returncode == 0
