"""The files of the repository and their syntax trees, for the tests of this folder."""

from __future__ import annotations

import ast
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "sixfold"
DOCS = ROOT / "docs"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def files() -> tuple[str, ...]:
    """Return every file that git tracks or does not ignore, by its path from the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    return tuple(sorted({name for name in names.split("\0") if name and (ROOT / name).is_file()}))


def python(*folders: str) -> list[str]:
    """Return the Python files below `folders`, or all of them."""
    return [name for name in files() if name.endswith(".py") and name.startswith(folders or "")]


@cache
def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@cache
def tree(name: str) -> ast.Module:
    """Return the syntax tree of a Python file."""
    return ast.parse(text(name), filename=name)


def functions(name: str) -> Iterator[Function]:
    """Yield every function of a Python file, nested ones and methods as well."""
    return (node for node in ast.walk(tree(name)) if isinstance(node, Function))


def length(function: Function) -> int:
    """Count a function's lines without its docstring; decorators count."""
    start = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
    lines = (function.end_lineno or start) - start + 1
    if ast.get_docstring(function, clean=False) is not None:
        lines -= (function.body[0].end_lineno or 0) - function.body[0].lineno + 1
    return lines


@cache
def documentation() -> str:
    """Return the text of every page of the documentation, and of the README."""
    pages = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
    return "\n".join(path.read_text(encoding="utf-8") for path in [*pages, ROOT / "README.md"])


@cache
def exempt(law: str) -> dict[str, str]:
    """Return the exemptions from a law with their reasons, from `exemptions.toml`."""
    return tomllib.loads((Path(__file__).parent / "exemptions.toml").read_text(encoding="utf-8")).get(law, {})


def check_law(law: str, broken: dict[str, str]) -> None:
    """Fail for every breach without an exemption, and for every exemption without a breach."""
    __tracebackhide__ = True
    faults = [f"{place}: {why}" for place, why in sorted(broken.items()) if place not in exempt(law)]
    stale = [
        f"{place}: exempt from '{law}', and no longer needs it"
        for place in exempt(law)
        if place not in broken
    ]
    weak = [f"{place}: its exemption gives no reason" for place, why in exempt(law).items() if len(why) < 10]
    assert not [*faults, *stale, *weak], "\n" + "\n".join([*faults, *stale, *weak])
