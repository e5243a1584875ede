"""Every guarantee on safety and money names tests that exist, and is on the page."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.architecture import source
from tools import assurance

ENDS = """
import pytest
@pytest.fixture
def torn():
    yield
    assert False
@pytest.mark.parametrize("number", [1, 2])
def test_passes(number): assert number
def test_fails(): assert False
def test_fails_behind(torn): assert True
@pytest.mark.skip(reason="no")
def test_lacks(): assert False
"""
FILE = "tests/test_ends.py"


def test_tests_of_every_guarantee_exist() -> None:
    for guarantee in assurance.guarantees():
        assert guarantee.of in assurance.TITLES
        assert guarantee.tests, guarantee.about
        for test in guarantee.tests:
            name, _, function = test.partition("::")
            results = {node.name for node in source.functions(name)}
            assert not function or function in results, test
            assert function or any(each.startswith("test_") for each in results), test


def test_each_guarantee_is_on_the_page() -> None:
    text = source.text("docs/reference/assurance.md")
    missing = [
        guarantee.about for guarantee in assurance.guarantees() if f"| {guarantee.about} |" not in text
    ]
    assert not missing, f"`make assurance` writes the page anew: it lacks {missing}"


def test_counted_collections_of_every_guarantee_exist() -> None:
    for guarantee in assurance.guarantees():
        assert all(assurance.count(place) for place in guarantee.counts.values()), guarantee.about


@pytest.fixture(scope="module", params=[[], ["-n", "2"]], ids=["alone", "by two"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> assurance.Run:
    """The results of a small test suite, as its report has them."""
    folder = tmp_path_factory.mktemp("suite")
    (folder / FILE).parent.mkdir()
    (folder / FILE).write_text(ENDS)
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir=.",
        "--junitxml=report.xml",
    ]
    result = subprocess.run([*words, *request.param], cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 1, result.stdout + result.stderr
    return assurance.read_report(folder / "report.xml")


def _guarantee(*tests: str) -> assurance.Guarantee:
    return assurance.Guarantee("money", "what", "none", list(tests))


def test_results_of_a_guarantee_are_found_in_any_run(run: assurance.Run) -> None:
    rows = [
        _guarantee(f"{FILE}::test_passes"),
        _guarantee(FILE),
        _guarantee(f"{FILE}::test_lacks"),
        _guarantee("tests/other.py"),
    ]
    assurance.judge(rows, [run])
    assert [dict(row.outcomes) for row in rows] == [
        {"passed": 2},
        {"passed": 2, "failed": 2, "skipped": 1},
        {"skipped": 1},
        {},
    ]
    assert [row.shown for row in rows] == [True, False, False, False]
    assert {test for row in rows for test in row.tests}.difference(run.tests()) == {"tests/other.py"}


def test_page_names_its_test_runs(run: assurance.Run) -> None:
    later = assurance.Run(datetime(2031, 5, 6, 1, tzinfo=UTC), [("tests/other.py::test_x", "passed")])
    rows = [_guarantee(f"{FILE}::test_passes")]
    assurance.judge(rows, [run, later])
    text = assurance.page(rows, [run, later])
    day = run.began.astimezone(UTC).date()
    assert f"Checks run: 5 checks on {day}: 2 failed, 1 skipped; 1 checks on 2031-05-06: 0 failed" in text
    assert f"| what | none | 2 checks, 0 failed | `{FILE}` |" in text


def test_source_changed_after_a_run_is_detected(tmp_path: Path) -> None:
    began = datetime.now(UTC)
    for name, age in (
        ("src/old.py", 9),
        ("tests/old.py", 9),
        ("src/__pycache__/new.pyc", -9),
        ("docs/new.md", -9),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        moment = (began - timedelta(seconds=age)).timestamp()
        os.utime(path, (moment, moment))
    assert assurance.changed_since(began, tmp_path) is None
    assert assurance.changed_since(began - timedelta(seconds=10), tmp_path) is not None
