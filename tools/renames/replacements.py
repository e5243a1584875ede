"""Replace text where no name is seen: imports by f-strings, paths from `__file__`, import contracts.

A table has `[[replace]]` with `file`, `old` and `new`; `[[create]]` with `file`, for the marker of a package;
and `[[relative]]` with `folder`, `package` and `table`: strings `"module:attribute"` in that folder leave the
name of the package out, and follow the moves of that table. `[[query]]` with `old` and `new` renames an SQL
query, or all of a prefix where both end in `_`; `[[move]]` with `old` and `new` moves another file.
`wrap = true` breaks lines of docstrings and comments that have become too long; `[[run]]` with `command` runs
a Python module in the checkout.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tools.renames import wrapping
from tools.renames.tree import SourceTree, rows


def apply(root: Path, table: Path) -> list[str]:
    """Apply a table of replacements, and return what was not found."""
    steps = tomllib.loads(table.read_text(encoding="utf-8"))
    report = []
    for each in steps.get("create", []):
        path = root / each["file"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for each in steps.get("replace", []):
        path = root / each["file"]
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if each["old"] not in text:
            report.append(f"not found: {each['file']}: {each['old'].strip().splitlines()[0]}")
        else:
            path.write_text(text.replace(each["old"], each["new"]), encoding="utf-8")
    for each in steps.get("relative", []):
        rename_relative(
            SourceTree(root), root / each["folder"], each["package"] + ".", table.parent / each["table"]
        )
    if queries := {each["old"]: each["new"] for each in steps.get("query", [])}:
        report += rename_queries(root, queries)
    for each in steps.get("move", []):
        report += move(root, each["old"], each["new"])
    if steps.get("wrap"):
        report += wrapping.wrap(root)
    for each in steps.get("run", []):
        done = subprocess.run(
            [sys.executable, "-m", *each["command"]], cwd=root, text=True, capture_output=True
        )
        if done.returncode:
            report.append(f"{' '.join(each['command'])}: {done.stdout}{done.stderr}".strip())
    return report


def rename_relative(tree: SourceTree, folder: Path, package: str, moves: Path) -> None:
    """Rewrite strings `"module:attribute"` whose module is written without its package."""
    names = {
        old.removeprefix(package): new.partition(" as ")[0].strip().removeprefix(package)
        for old, new in rows(moves)
        if old.startswith(package)
    }
    reference = re.compile(r'"([\w.]+)(?=:\w+")')
    for path in tree.files():
        if path.is_relative_to(folder):
            text = path.read_text(encoding="utf-8")
            new = reference.sub(lambda found: f'"{names.get(found[1], found[1])}', text)
            if new != text:
                path.write_text(new, encoding="utf-8")


def move(root: Path, old: str, new: str) -> list[str]:
    """Move a file that is no module."""
    if not (root / old).is_file():
        return [f"not found: {old}"]
    (root / new).parent.mkdir(parents=True, exist_ok=True)
    (root / old).rename(root / new)
    return []


def rename_queries(root: Path, queries: dict[str, str]) -> list[str]:
    """Rename SQL queries where they are written, and where a quoted name means them."""
    folder = root / "src" / "sixfold" / "store" / "sql" / "queries"
    heading = re.compile(r"^-- name: (\w+)", re.MULTILINE)
    names: dict[str, str] = {}
    for path in folder.rglob("*.sql"):
        for name in heading.findall(path.read_text(encoding="utf-8")):
            prefix = next((old for old in queries if old.endswith("_") and name.startswith(old)), "")
            if name in queries or prefix:
                names[name] = queries.get(name) or queries[prefix] + name[len(prefix) :]
    quoted = re.compile(rf"(?<=[\"`])({'|'.join(sorted(names))})(?=[\"`])")
    paths = [*folder.rglob("*.sql"), *SourceTree(root).files(), *(root / "docs").rglob("*.md")]
    for path in paths:
        text = path.read_text(encoding="utf-8")
        new = heading.sub(lambda found: f"-- name: {names.get(found[1], found[1])}", text)
        new = quoted.sub(lambda found: names[found[1]], new)
        if new != text:
            path.write_text(new, encoding="utf-8")
    return [f"not found: {old}" for old in queries if not old.endswith("_") and old not in names]
