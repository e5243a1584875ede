"""Bytecode of the product and the tests, which the workers of a run compile together.

After a checkout each worker would compile and rewrite all 2,000 modules, since the workers collect the
same files at the same time: 16 seconds of processor time for each of them.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest
from _pytest.assertion import rewrite
from hypothesis.internal import constants_ast

ROOT = Path(__file__).parents[2]


def compile_share(config: pytest.Config) -> None:
    """Compile this worker's share of the modules that have no bytecode, if the run collects all tests."""
    worker = getattr(config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode or [Path(path).name for path in config.args] != ["tests"]:
        return
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    for path in sorted((ROOT / "src").rglob("*.py"))[number::count]:
        if not Path(importlib.util.cache_from_source(str(path))).exists():
            _compile(path)
            _note_constants(path)
    for path in sorted((ROOT / "tests").rglob("*.py"))[number::count]:
        if not path.name.startswith("test_") and path.name != "conftest.py":
            _compile(path)
        else:
            _rewrite(path, config)


def _compile(path: Path) -> None:
    """Write the bytecode of a module, unless it is current."""
    SourceFileLoader(path.stem, str(path)).get_code(path.stem)


def _note_constants(path: Path) -> None:
    """Write the constants of a module that Hypothesis tries in examples."""
    module = ModuleType(path.stem)
    module.__file__ = str(path)
    constants_ast.constants_from_module(module)


def _rewrite(path: Path, config: pytest.Config) -> None:
    """Write the bytecode of a test module with the assertions that pytest rewrites, unless it exists."""
    folder = rewrite.get_cache_dir(path)
    target = folder / f"{path.stem}{rewrite.PYC_TAIL}"
    if not target.exists() and rewrite.try_makedirs(folder):
        source_hash, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, target)
