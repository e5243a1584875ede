"""The files of the repository and outlines of their code, for the tests of this folder.

Outlines are cached and syntax trees are not: those of the whole repository have 2.5 million objects.
"""

from __future__ import annotations

import ast
import gc
import subprocess
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

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


def tree(name: str) -> ast.Module:
    """Return the syntax tree of a Python file."""
    return _parse(text(name), name)


class FunctionOutline(NamedTuple):
    """What the laws need of a function, including the functions inside it.

    `calls` has dotted names such as `time.sleep`; `catch_all` has the lines of handlers that catch any
    exception and do not raise it again.
    """

    name: str
    lines: int
    asserts: bool
    calls: frozenset[str]
    catch_all: tuple[int, ...]


class ClassOutline(NamedTuple):
    """What the laws need of a class; `outermost` is false inside another class or function."""

    name: str
    outermost: bool
    decorators: tuple[str, ...]


class Outline(NamedTuple):
    functions: tuple[FunctionOutline, ...]
    classes: tuple[ClassOutline, ...]


@cache
def outline(name: str) -> Outline:
    """Return every function and class of a Python file, nested ones and methods as well."""
    return outline_of(tree(name))


def outline_of(module: ast.Module) -> Outline:
    functions: list[FunctionOutline] = []
    classes: list[ClassOutline] = []
    for node in ast.walk(module):
        if isinstance(node, Function):
            functions.append(_function(node))
        elif isinstance(node, ast.ClassDef):
            decorators = tuple(map(ast.unparse, node.decorator_list))
            classes.append(ClassOutline(node.name, node in module.body, decorators))
    return Outline(tuple(functions), tuple(classes))


def functions(name: str) -> tuple[FunctionOutline, ...]:
    """Return every function of a Python file, nested ones and methods as well."""
    return outline(name).functions


def _parse(code: str, name: str) -> ast.Module:
    # The collector would visit the tree again and again while it grows, which takes longer than to parse it.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(code, filename=name)
    finally:
        if was_enabled:
            gc.enable()


def _function(function: Function) -> FunctionOutline:
    asserts, calls, catch_all = False, set[str](), list[int]()
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            calls.add(_dotted(node.func))
        elif isinstance(node, ast.Assert):
            asserts = True
        elif isinstance(node, ast.ExceptHandler) and catches_everything(node):
            catch_all.append(node.lineno)
    return FunctionOutline(function.name, length(function), asserts, frozenset(calls), tuple(catch_all))


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return f"{_dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""


def catches_everything(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler catches any exception and does not raise it again."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    broad = any(kind is None or ast.unparse(kind) in {"Exception", "BaseException"} for kind in kinds)
    last = handler.body[-1]
    passed_on = isinstance(last, ast.Raise) and (last.exc is None or last.cause is not None)
    return broad and not passed_on


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
