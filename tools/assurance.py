"""Write what the tests behind every promise of safety and money found.

tools/assurance.toml names the promises. `make assurance` runs their tests, which takes many minutes;
ARGS="--from .pytest_cache/suite.xml" takes what the last `make test` found instead, and runs what it lacks.
It prints each row, writes docs/reference/assurance.md, and fails where a promise is not kept. Other ARGS, as
in "-k ledger", go through to pytest, and then the page stays as it is.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree as Tree

from tools import lock

PROMISES = lock.ROOT / "tools" / "assurance.toml"
PAGE = lock.ROOT / "docs" / "reference" / "assurance.md"
HEADER = """# Assurance

What is promised about safety and money, each with the tests that show it and what they found.
`make assurance` writes this page, from a run of the whole suite or of these tests alone. A row is there for
each hole that this field has had, and for each way in which money gets lost. A check is one test with one of
its cases; a skipped check lacked a requirement on the machine and proves nothing.
"""
TITLES = {"security": "Safety", "money": "Money and jobs"}
SOURCES = ("src", "tests")


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
    result: Any = getattr(importlib.import_module(module), name)
    return len(cast("Sized", result() if callable(result) else result))


@dataclass(frozen=True)
class Run:
    """One run of tests: when it began, and how each of its checks ended, by the test's address."""

    began: datetime
    ends: list[tuple[str, str]]

    def tests(self) -> Iterator[str]:
        """What it ran, as the table may name it: tests, and their files."""
        for name, _ in self.ends:
            yield name
            yield name.partition("::")[0]

    def line(self) -> str:
        """When it was, and how it ended, for the page."""
        result = Counter(end for _, end in self.ends)
        day = self.began.astimezone(UTC).date().isoformat()
        return f"{result.total()} checks on {day}: {result['failed']} failed, {result['skipped']} skipped"


def told(report: Path) -> Run:
    """The run that a JUnit report tells of."""
    root = Tree.parse(report).getroot()  # noqa: S314  # pytest wrote it, on this machine
    began = min(datetime.fromisoformat(suite.get("timestamp", "")) for suite in root.iter("testsuite"))
    return Run(began, [(address(case), outcome(case)) for case in root.iter("testcase")])


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


def changed_since(moment: datetime, root: Path = lock.ROOT) -> Path | None:
    """A source or a test that is newer than a moment, if there is one."""
    paths = (path for name in SOURCES for path in (root / name).rglob("*") if "__pycache__" not in path.parts)
    newer = (path for path in paths if path.is_file() and path.stat().st_mtime > moment.timestamp())
    return next(newer, None)


def run(tests: Iterable[str], options: list[str]) -> Run:
    """Run tests once."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *options, *tests]
        command.append(f"--basetemp={folder}/own")  # others who test meanwhile clear the usual place
        subprocess.run(command, cwd=lock.ROOT, check=False)
        return told(report)


def judge(rows: list[Promise], runs: list[Run]) -> None:
    """Give every row its outcomes."""
    for row in rows:
        for name, end in (each for run in runs for each in run.ends):
            if name in row.tests or name.partition("::")[0] in row.tests:
                row.found[end] += 1


def page(rows: list[Promise], runs: list[Run]) -> str:
    """The page of the documentation."""
    parts = [HEADER, "\nChecks run: ", "; ".join(run.line() for run in runs), ".\n"]
    for of, title in TITLES.items():
        lines = [row.row() for row in rows if row.of == of]
        head = "| risk | requirement | result | tests |\n|---|---|---|---|"
        parts.append(f"\n## {title}\n\n{head}\n" + "\n".join(lines) + "\n")
    return "".join(parts)


def main() -> None:
    """Take what was told, run the rest, print, write; fail where a promise is not kept."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description="Other options go through to pytest.")
    parser.add_argument("--from", dest="report", type=Path, help="what `make test` left: a JUnit report")
    inputs, options = parser.parse_known_args()
    rows, runs = promises(), list[Run]()
    if inputs.report is not None:
        runs.append(told(inputs.report))
        if changed := changed_since(runs[0].began):
            raise SystemExit(f"{changed} has changed since that run, which shows nothing of what is here now")
    lacking = {test for row in rows for test in row.tests}.difference(*(each.tests() for each in runs))
    if lacking:
        runs.append(run(sorted(lacking), options))
    judge(rows, runs)
    for row in rows:
        print(f"{'kept' if row.kept else 'NOT SHOWN':9}  {row.about}: {row.figure()}")
    if not options:
        PAGE.write_text(page(rows, runs))
        raise SystemExit(0 if all(row.kept for row in rows) else 1)


if __name__ == "__main__":
    main()
