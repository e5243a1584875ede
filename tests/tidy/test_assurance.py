"""Every promise of safety and money names tests that are there, and stands on the page."""

from __future__ import annotations

from tests.tidy import source
from tools import assurance


def test_each_promise_names_tests_that_are_there() -> None:
    for promise in assurance.promises():
        assert promise.of in assurance.TITLES
        assert promise.tests, promise.about
        for test in promise.tests:
            name, _, function = test.partition("::")
            found = {node.name for node in source.functions(name)}
            assert not function or function in found, test
            assert function or any(each.startswith("test_") for each in found), test


def test_each_promise_stands_on_the_page() -> None:
    text = source.text("docs/reference/assurance.md")
    missing = [promise.about for promise in assurance.promises() if f"| {promise.about} |" not in text]
    assert not missing, f"`make assurance` writes the page anew: it lacks {missing}"


def test_what_is_counted_is_there() -> None:
    for promise in assurance.promises():
        assert all(assurance.count(place) for place in promise.counts.values()), promise.about
