"""Write the results of the tests of the guarantees on security and money.

tools/assurance.toml lists the guarantees. `make assurance` runs their tests, which takes many minutes;
ARGS="--from .pytest_cache/suite.xml" uses the results of the last `make test` and runs only the missing
tests. It prints each row, writes docs/reference/assurance.md, and fails if a guarantee is not shown. Other
ARGS, such as "-k ledger", are passed to pytest; the page is then not written.
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

GUARANTEES = lock.ROOT / "tools" / "assurance.toml"
PAGE = lock.ROOT / "docs" / "reference" / "assurance.md"
HEADER = """# Assurance

This page lists the guarantees on security and money, with their tests and the results. The tables have a row
for each class of vulnerability and each way to lose money. `make assurance` writes the page from a run of the
whole test suite or of these tests alone. A check is one test with one of its cases. `make test` runs some of
these tests with fewer cases; `make assurance` without a report also runs those of `make nightly`. A check is
skipped if the machine does not meet a requirement; a skipped check does not show anything.
"""
TITLES = {"security": "Security", "money": "Money and jobs"}
SOURCES = ("src", "tests")


@dataclass
class Guarantee:
    """One row of the page: risk, requirement, tests, and the number of checks by outcome."""

    of: str
    about: str
    goal: str
    tests: list[str]
    counts: dict[str, str] = field(default_factory=dict[str, str])
    outcomes: Counter[str] = field(default_factory=Counter[str])

    @property
    def shown(self) -> bool:
        """Whether at least one check passed and none failed."""
        return bool(self.outcomes["passed"]) and not self.outcomes["failed"]

    def figure(self) -> str:
        """Return the counts and the outcomes as a string."""
        counted = [f"{count(place)} {label}" for label, place in self.counts.items()]
        ends = [
            f"{self.outcomes[end]} {end}"
            for end in ("failed", "skipped")
            if self.outcomes[end] or end == "failed"
        ]
        return ", ".join([*counted, f"{self.outcomes.total()} checks", *ends])

    def row(self) -> str:
        """Return the row as a line of the page's table."""
        files = sorted({test.partition("::")[0] for test in self.tests})
        verdict = self.figure() if self.shown else f"**not shown**: {self.figure()}"
        return f"| {self.about} | {self.goal} | {verdict} | {', '.join(f'`{name}`' for name in files)} |"


def guarantees() -> list[Guarantee]:
    return [Guarantee(**row) for row in tomllib.loads(GUARANTEES.read_text())["guarantee"]]


def count(place: str) -> int:
    """Return the length of a collection in the tests, or of the collection that a function returns."""
    module, _, name = place.partition(":")
    result: Any = getattr(importlib.import_module(module), name)
    return len(cast("Sized", result() if callable(result) else result))


@dataclass(frozen=True)
class Run:
    """One run of tests: its start, and the outcome of each check by the test's address."""

    began: datetime
    ends: list[tuple[str, str]]

    def tests(self) -> Iterator[str]:
        """Yield the names by which the table can refer to the tests of this run: tests and files."""
        for name, _ in self.ends:
            yield name
            yield name.partition("::")[0]

    def line(self) -> str:
        """Return the date and the outcomes as a string."""
        result = Counter(end for _, end in self.ends)
        day = self.began.astimezone(UTC).date().isoformat()
        return f"{result.total()} checks on {day}: {result['failed']} failed, {result['skipped']} skipped"


def read_report(report: Path) -> Run:
    """Return the run that a JUnit report describes."""
    root = Tree.parse(report).getroot()  # noqa: S314  # pytest wrote it, on this machine
    began = min(datetime.fromisoformat(suite.get("timestamp", "")) for suite in root.iter("testsuite"))
    return Run(began, [(address(case), outcome(case)) for case in root.iter("testcase")])


def outcome(case: Tree.Element) -> str:
    """Return the outcome of one check: `passed`, `failed` or `skipped`."""
    ends = {child.tag for child in case}
    if ends & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in ends else "passed"


def address(case: Tree.Element) -> str:
    """Return a test's address without its parameters, as in tools/assurance.toml."""
    folders = case.get("classname", "").split(".")
    return f"{'/'.join(folders)}.py::{case.get('name', '').partition('[')[0]}"


def changed_since(moment: datetime, root: Path = lock.ROOT) -> Path | None:
    """Return a source or test file that is newer than `moment`, or None."""
    paths = (path for name in SOURCES for path in (root / name).rglob("*") if "__pycache__" not in path.parts)
    newer = (path for path in paths if path.is_file() and path.stat().st_mtime > moment.timestamp())
    return next(newer, None)


def run(tests: Iterable[str], options: list[str]) -> Run:
    """Run tests with pytest and return their outcomes."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *options, *tests]
        # Concurrent runs of pytest clear the default folder.
        command.append(f"--basetemp={folder}/own")
        subprocess.run(command, cwd=lock.ROOT, check=False)
        return read_report(report)


def judge(rows: list[Guarantee], runs: list[Run]) -> None:
    """Add the outcomes of the runs to the rows."""
    for row in rows:
        for name, end in (each for run in runs for each in run.ends):
            if name in row.tests or name.partition("::")[0] in row.tests:
                row.outcomes[end] += 1


def page(rows: list[Guarantee], runs: list[Run]) -> str:
    """Return the content of docs/reference/assurance.md."""
    parts = [HEADER, "\nChecks run: ", "; ".join(run.line() for run in runs), ".\n"]
    for of, title in TITLES.items():
        lines = [row.row() for row in rows if row.of == of]
        head = "| risk | requirement | result | tests |\n|---|---|---|---|"
        parts.append(f"\n## {title}\n\n{head}\n" + "\n".join(lines) + "\n")
    return "".join(parts)


def main() -> None:
    """Run the tests that the report lacks, and write the results; exit with 1 if a guarantee is not shown."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description="Other options are passed to pytest.")
    parser.add_argument("--from", dest="report", type=Path, help="JUnit report of the last `make test`")
    inputs, options = parser.parse_known_args()
    rows, runs = guarantees(), list[Run]()
    if inputs.report is not None:
        runs.append(read_report(inputs.report))
        if changed := changed_since(runs[0].began):
            raise SystemExit(f"{changed} has changed since the run of the report; run `make test` again")
    missing = {test for row in rows for test in row.tests}.difference(*(each.tests() for each in runs))
    if missing:
        runs.append(run(sorted(missing), options))
    judge(rows, runs)
    for row in rows:
        print(f"{'shown' if row.shown else 'NOT SHOWN':9}  {row.about}: {row.figure()}")
    if not options:
        PAGE.write_text(page(rows, runs))
        raise SystemExit(0 if all(row.shown for row in rows) else 1)


if __name__ == "__main__":
    main()
