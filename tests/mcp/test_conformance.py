"""The official conformance suite: every scenario of it, with its fixtures in place of the product's tools."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sixfold import faces, settings
from sixfold.mcp import face
from sixfold.web.app import App
from sixfold.web.metrics import Metrics
from tests.areas.house import House
from tests.mcp import fixtures
from tests.mcp.loopback import served, with_key

SUITE = "@modelcontextprotocol/conformance@0.1.16"
NODE = "node@22.23.3"  # the suite needs 22, whatever the machine has
INSTALL_SECONDS, RUN_SECONDS = 100, 100
_TOTAL = re.compile(r"^Total: (\d+) passed, (\d+) failed", re.MULTILINE)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Node and the suite, installed with npm; skips with a reason where that cannot be."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("the official conformance suite comes with npm, which is not here")
    folder = tmp_path_factory.mktemp("conformance")
    command = (npm, "install", "--no-fund", "--no-audit", "--prefix", str(folder), NODE, SUITE)
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm could not install the conformance suite within {INSTALL_SECONDS} s")
    modules = folder / "node_modules"
    node, program = modules / "node/bin/node", modules / "@modelcontextprotocol/conformance/dist/index.js"
    if done.returncode or not node.exists() or not program.exists():
        pytest.skip(f"npm could not install the conformance suite: {done.stderr.decode()[-300:]}")
    return node, program


@pytest.mark.parametrize("scenarios", ["active", "pending"])
async def test_no_scenario_of_the_official_suite_fails(
    suite: tuple[Path, Path], home: House, tmp_path: Path, scenarios: str
) -> None:
    app = App([face.serve(faces.build_services(home.product), fixtures.server())], Metrics())
    async with served(with_key(app, home.key)) as origin:
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
        async with asyncio.timeout(RUN_SECONDS):
            said, _ = await child.communicate()
    text = said.decode()
    total = _TOTAL.search(text)
    assert total is not None, text[-2000:]
    passed, failed = map(int, total.groups())
    print(f"conformance, {scenarios}: {passed} passed, {failed} failed")  # noqa: T201 - read in CI's log
    assert failed == 0, text[-4000:]
    assert passed >= {"active": 38, "pending": 4}[scenarios]  # an empty pass is none
    assert child.returncode == 0
