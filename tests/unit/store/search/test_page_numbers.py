"""Numbers of pages: after a change, only those of changed pages are computed again."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sixfold.core.clock import HOUR_US
from sixfold.core.memory.indexing.entries import entry
from sixfold.core.memory.models import MemoryPage
from sixfold.core.memory.search import ranking
from sixfold.core.memory.search.ranking import RankedQuery
from sixfold.store.search import index as search_index
from sixfold.store.search.columns import Floats
from sixfold.store.search.index import PageIndex
from sixfold.store.search.page_numbers import PageNumbers, Rows

HISTORIES = st.lists(st.dictionaries(st.integers(0, 60), st.integers(0, 9), max_size=4), max_size=8)


@given(HISTORIES)
def test_numbers_equal_those_of_all_current_pages(history: list[dict[int, int]]) -> None:
    values, numbers = np.zeros(40, np.float32), PageNumbers()
    computed: list[int] = []

    def compute(rows: Rows) -> Floats:
        result = values[rows] * np.float32(2)
        computed.append(len(result))
        return result

    assert numbers.get("twice", compute).tolist() == [0] * 40
    for changes in history:
        values = np.append(values, np.zeros(max((*changes, len(values) - 1)) + 1 - len(values), np.float32))
        for position, value in changes.items():
            values[position] = value
            numbers.change(position)
        numbers.catch_up(len(values))
        assert numbers.get("twice", compute).tolist() == (values * 2).tolist()
    assert all(count <= 4 or count >= 40 for count in computed)


def test_another_version_is_computed_from_all_pages() -> None:
    numbers = PageNumbers()
    for version in (1, 1, 2):
        result = numbers.get("age", lambda _, now=version: np.full(3, now, np.float32), version)
        assert result.tolist() == [version] * 3
    assert numbers.size == 12


def test_many_changed_pages_are_computed_with_all_others() -> None:
    numbers, requested = PageNumbers(), list[object]()

    def compute(rows: Rows) -> Floats:
        requested.append(rows)
        return np.zeros(20, np.float32)

    numbers.get("zero", compute)
    for position in range(3):
        numbers.change(position)
    numbers.catch_up(20)
    numbers.get("zero", compute)
    assert requested == [slice(None), slice(None)]


def write(index: PageIndex, number: int) -> None:
    page = MemoryPage(
        id=f"page_{number}", account_id="a", slug=f"log/{number}", title="Lake", body="A boat.",
        type="note", tags=(), collections=(), version=1, created_at=number, updated_at=number,
        created_by="",
    )  # fmt: skip
    index.put_many([(page.id, entry(page, ()))])


def record_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the numbers of pages of which indexes compute numbers from now on."""
    rows, get = list[int](), PageNumbers.get

    def recorded(
        self: PageNumbers, key: object, compute: Callable[[Rows], Floats], version: int = 0
    ) -> Floats:
        def record(of: Rows) -> Floats:
            result = compute(of)
            rows.append(len(result))
            return result

        return get(self, key, record, version)

    monkeypatch.setattr(PageNumbers, "get", recorded)
    return rows


def test_search_after_a_write_computes_numbers_of_one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = record_rows(monkeypatch)
    index = PageIndex()
    for number in range(30):
        write(index, number)
    ranking.rank(index.view(()), RankedQuery({"boat": 1.0}))
    assert set(rows) == {30}
    rows.clear()
    write(index, 30)
    ranking.rank(index.view(()), RankedQuery({"boat": 1.0}))
    assert set(rows) == {1}


def test_each_half_life_has_its_own_recency() -> None:
    index = PageIndex()
    for number in (0, 2 * HOUR_US):
        write(index, number)
    view = index.view(())
    assert view.recency(2 * HOUR_US).tolist() == [0.5, 1]
    assert view.recency(HOUR_US).tolist() == [0.25, 1]


def test_ages_are_computed_again_once_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = record_rows(monkeypatch)
    index = PageIndex()
    for number in range(30):
        write(index, number)
    counts: list[int] = []
    for moment in (HOUR_US, HOUR_US + 20_000_000, 2 * HOUR_US - 1, 2 * HOUR_US):
        write(index, moment)
        rows.clear()
        index.view(()).recency(HOUR_US)
        counts.append(sum(rows))
    assert counts == [31, 1, 1, 1 + 34]


@pytest.mark.parametrize(("pages", "kept"), [(1, True), (100, False)])
def test_large_index_keeps_one_outdated_view(monkeypatch: pytest.MonkeyPatch, pages: int, kept: bool) -> None:
    """The vectors of the previous view are freed only after those of the next one exist."""
    monkeypatch.setattr(search_index, "LARGE_PAGES", pages)
    index = PageIndex()
    write(index, 0)
    size = index.cache_size
    first = weakref.ref(index.view(()))
    write(index, 1)
    assert (first() is not None) == kept == (index.cache_size > size)
    second = weakref.ref(index.view(()))
    write(index, 2)
    write(index, 3)
    assert first() is None
    assert (second() is not None) == kept
