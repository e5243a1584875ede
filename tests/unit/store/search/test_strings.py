"""Packed strings and link tables, after any history."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sixfold.store.search import link_table, strings
from sixfold.store.search.link_table import LinkTable
from sixfold.store.search.postings import Postings
from sixfold.store.search.strings import BytesColumn, StringColumn, StringTable

PLACES = st.integers(0, 40)


@given(st.lists(st.tuples(PLACES, st.binary(max_size=30)), max_size=120))
def test_a_column_has_the_strings_that_were_set_last(history: list[tuple[int, bytes]]) -> None:
    column, written = BytesColumn(), list[bytes]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(strings, "PART_BITS", 3)
        patched.setattr(strings, "PART_MASK", 7)
        for expected, value in history:
            index = min(expected, len(written))
            written[index : index + 1] = [value]
            column[index] = value
            assert [column[at] for at in range(len(column))] == written
        assert column.size == sum(map(len, written)) + 8 * len(written)
        stored = sum(len(part.data) for part in column._parts)
        assert stored <= 2 * sum(map(len, written)) + 30 * len(column._parts)


@given(st.lists(st.tuples(st.booleans(), st.text(max_size=2)), max_size=200))
def test_a_table_has_the_texts_that_were_added(history: list[tuple[bool, str]]) -> None:
    column, positions = StringColumn(), dict[str, int]()
    table = StringTable(column)
    for adding, text in history:
        assert table.get(text) == positions.get(text)
        if adding and text not in positions:
            positions[text] = len(column)
            column[positions[text]] = text
            table.add(text, positions[text])
        elif not adding and text in positions:
            table.remove(text, positions.pop(text))
    assert len(table) == len(positions)
    assert {text: table.get(text) for text in positions} == positions


@given(st.lists(st.tuples(st.integers(0, 8), st.sets(st.integers(0, 8))), max_size=40))
def test_links_are_listed_from_both_ends(history: list[tuple[int, set[int]]]) -> None:
    links, targets = LinkTable(), dict[int, set[int]]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(link_table, "MANY", 3)
        for index in range(9):
            links.begin(index)
        for index, others in history:
            links.replace(index, others)
            targets[index] = others
        for index in range(9):
            assert set(links.targets(index)) == targets.get(index, set())
            assert set(links.sources(index)) == {source for source, of in targets.items() if index in of}


def test_distant_word_numbers_are_stored() -> None:
    postings = Postings()
    postings.put(0, {f"w{number}": 1 for number in range(70_000)})
    postings.put(1, {"w0": 2, "w69999": 1})
    postings.put(1, {"w1": 1})
    assert [postings.positions(word).tolist() for word in ("w0", "w1", "w69999")] == [[0], [0, 1], [0]]
