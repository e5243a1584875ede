"""The columns of the page index after any history: no stale entries and no excess memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sixfold.core.memory.indexing.entries import decode, encode, entry
from sixfold.core.memory.models import MemoryPage
from sixfold.core.memory.search.embedding import halved
from sixfold.store.search import columns
from sixfold.store.search import postings as postings_module
from sixfold.store.search.columns import FreeList, PackedColumn, Positions, SharedBuffer
from sixfold.store.search.index import PageIndex
from sixfold.store.search.postings import Postings
from tests.unit.memory.fake_embedder import Meanings

COUNTED = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 300), max_size=6)


@given(
    st.lists(st.dictionaries(st.integers(0, 12), COUNTED, max_size=5), max_size=40),
    st.sampled_from([1, 2, 16]),
    st.sampled_from([0, 128]),
    st.sampled_from([1, 8]),
)
def test_postings_have_the_last_stored_counts(
    history: list[dict[int, dict[str, int]]], bits: int, scatter_share: int, batch: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(postings_module, "_SCATTER_SHARE", scatter_share)
        patched.setattr(postings_module, "_BATCH", batch)
        patched.setattr(postings_module, "BLOCK_BITS", bits)
        patched.setattr(postings_module, "BLOCK_MASK", (1 << bits) - 1)
        _check_history(history)


def _check_history(history: list[dict[int, dict[str, int]]]) -> None:
    postings, written = Postings(), dict[int, dict[str, int]]()
    for batch in history:
        postings.put_many(batch)
        written |= batch
        for word in "abcdefgh":
            result = postings.get(word)
            response = (
                {} if result is None else dict(zip(result[0].tolist(), result[1].tolist(), strict=True))
            )
            having = {at: min(of[word], 255) for at, of in sorted(written.items()) if word in of}
            assert list(response.items()) == list(having.items())
            assert postings.positions(word).tolist() == list(having)
            assert postings.among(np.arange(14), word).tolist() == [at in having for at in range(14)]


def test_counts_that_another_thread_removes_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    postings = Postings()
    postings.put(0, {"a": 3})
    positions_of = postings_module._List.positions

    def positions(each: postings_module._List) -> Positions:
        assert each.repeated is not None
        del each.repeated[:]
        return positions_of(each)

    monkeypatch.setattr(postings_module._List, "positions", positions)
    result = postings.get("a")
    assert result is not None
    assert [column.tolist() for column in result] == [[0], [1.0]]


def test_removed_words_leave_no_entries() -> None:
    postings = Postings()
    postings.put(0, {"first": 1, "stays": 1})
    postings.put(0, {"second": 1, "stays": 1})
    size = postings.size
    for number in range(500):
        postings.put(0, {f"word{number}": 1, "stays": 1})
    assert postings.size == size
    assert dict(postings.take_renamed()) == {
        number: word
        for number, word in enumerate(postings.words_from(0))
        if word in ("word498", "word499", "")
    }
    assert list(postings.take_renamed()) == []


def test_column_grows_to_the_written_position() -> None:
    column = PackedColumn(np.int64)
    column[200] = 7
    column[3] = 5
    assert (len(column), column[3], column.values.sum()) == (201, 5, 12)


def test_released_positions_are_reused_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "MAX_POSITIONS", 2)
    free_list = FreeList()
    assert [free_list.take(), free_list.take()] == [0, 1]
    with pytest.raises(OverflowError):
        free_list.take()
    free_list.release(0)
    assert free_list.take() == 0


def test_shares_grow_and_shrink() -> None:
    shares = SharedBuffer()
    assert shares.fit(7, 3) == ([0, 1, 2], [])
    assert shares.fit(8, 1) == ([3], [])
    assert shares.fit(7, 1) == ([0], [1, 2])
    assert shares.fit(8, 3) == ([3, 2, 1], [])
    assert (shares.count, shares.of(7), shares.of(9)) == (4, [0], ())


def test_endlessly_edited_index_does_not_grow() -> None:
    index = PageIndex()
    model = Meanings()

    def write(number: int, turn: int) -> None:
        """A page whose words, names and passages are others at every turn, with as many vectors."""
        parts = [f"## Part {part}\n\n" + f"word{number}x{turn} " * 160 for part in range(3 + turn % 2)]
        page = MemoryPage(
            id=f"page_{number}", account_id="a", slug=f"log{turn % 3}/{number}", title=f"Name{turn}",
            body="\n\n".join(parts), type="note", tags=(f"tag{turn}",), collections=(), version=1,
            created_at=number, updated_at=turn, created_by="",
        )  # fmt: skip
        remaining = decode(encode(entry(page, ())))
        assert remaining is not None
        index.put(page.id, remaining)
        index.embed(page.id, halved(model.embed([page.body])[0]) * len(remaining.passages))

    def free_list() -> tuple[int, ...]:
        return (
            index.size,
            len(index.alive),
            len(index.passage_page),
            len(index.row_page),
            len(index.folder_pages),
        )

    for turn in range(6):
        for number in range(9):
            write(number, turn)
    before = free_list()
    for turn in range(6, 60):
        for number in range(9):
            write(number, turn)
    index.remove("page_0")
    write(9, 59)
    assert free_list() == before
    assert (len(index), index.vectors) == (9, 9 * 4)
