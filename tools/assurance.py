"""Run the tests behind every promise of safety and money, and write what they found.

tools/assurance.toml names the promises. Run it with `make assurance`; it takes minutes, prints each row,
writes docs/reference/assurance.md, and fails where a promise is not kept. ARGS="-k ledger" goes through to
pytest, and then the page stays as it is.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree as Tree

from tools import lock

PROMISES = lock.ROOT / "tools" / "assurance.toml"
PAGE = lock.ROOT / "docs" / "reference" / "assurance.md"
HEADER = """# Assurance

What is promised about safety and money, each with the tests that show it and what they found.
`make assurance` runs them and writes this page. A row is there for each hole that this field has had, and for
each way in which money gets lost. A check is one test with one of its cases; one that is skipped lacked
something on the machine, and is no proof.
"""
TITLES = {"security": "Safety", "money": "Money and jobs"}


@dataclass
class Promise:
    """One row: what could go wrong, what is wanted, and the tests; `found` has each outcome's number."""

    of: str
    about: str
    goal: str
    tests: list[str]
    counts: dict[str, str] = field(default_factory=dict[str, str])
    found: Counter[str] = field(default_factory=Counter[str])

    @property
    def kept(self) -> bool:
        """Whether something was shown and nothing failed."""
        return bool(self.found["passed"]) and not self.found["failed"]

    def figure(self) -> str:
        """What was counted, and how the checks ended."""
        counted = [f"{count(place)} {what}" for what, place in self.counts.items()]
        ends = [
            f"{self.found[end]} {end}" for end in ("failed", "skipped") if self.found[end] or end == "failed"
        ]
        return ", ".join([*counted, f"{self.found.total()} checks", *ends])

    def row(self) -> str:
        """Its line of the page."""
        files = sorted({test.partition("::")[0] for test in self.tests})
        verdict = self.figure() if self.kept else f"**not shown**: {self.figure()}"
        return f"| {self.about} | {self.goal} | {verdict} | {', '.join(f'`{name}`' for name in files)} |"


def promises() -> list[Promise]:
    """Every promise of the table."""
    return [Promise(**row) for row in tomllib.loads(PROMISES.read_text())["promise"]]


def count(place: str) -> int:
    """How many there are of something in the tests: a list's length, or that of what a function gives."""
    module, _, name = place.partition(":")
    found: Any = getattr(importlib.import_module(module), name)
    return len(cast("Sized", found() if callable(found) else found))


def outcome(case: Tree.Element) -> str:
    """How one test ended."""
    ends = {child.tag for child in case}
    if ends & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in ends else "passed"


def address(case: Tree.Element) -> str:
    """A test's address without its case, as the table names it."""
    folders = case.get("classname", "").split(".")
    return f"{'/'.join(folders)}.py::{case.get('name', '').partition('[')[0]}"


def run(rows: list[Promise], options: list[str]) -> None:
    """Run all tests once, and give every row its outcomes."""
    tests = sorted({test for row in rows for test in row.tests})
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *options, *tests]
        command.append(f"--basetemp={folder}/own")  # others who test meanwhile clear the usual place
        subprocess.run(command, cwd=lock.ROOT, check=False)
        told = Tree.parse(report)  # noqa: S314  # pytest wrote it a moment ago
        cases = [(address(case), outcome(case)) for case in told.iter("testcase")]
    for row in rows:
        for name, end in cases:
            if name in row.tests or name.partition("::")[0] in row.tests:
                row.found[end] += 1


def page(rows: list[Promise]) -> str:
    """The page of the documentation."""
    parts = [HEADER]
    for of, title in TITLES.items():
        lines = [row.row() for row in rows if row.of == of]
        head = "| what could go wrong | wanted | found | shown by |\n|---|---|---|---|"
        parts.append(f"\n## {title}\n\n{head}\n" + "\n".join(lines) + "\n")
    return "".join(parts)


def main() -> None:
    """Run, print, write; fail where a promise is not kept."""
    rows, options = promises(), sys.argv[1:]
    run(rows, options)
    for row in rows:
        print(f"{'kept' if row.kept else 'NOT SHOWN':9}  {row.about}: {row.figure()}")
    if not options:
        PAGE.write_text(page(rows))
        raise SystemExit(0 if all(row.kept for row in rows) else 1)


if __name__ == "__main__":
    main()
