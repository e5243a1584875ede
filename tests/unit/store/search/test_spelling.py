"""Edit distance: the quick letter filter omits no word that the exact count accepts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sixfold.store.search.postings import Postings
from sixfold.store.search.spelling import Spellings, distance

WORDS = st.text("abcdй東", min_size=1, max_size=11)


def edits(first: str, second: str) -> int:
    """Return the edit distance, computed with the full table."""
    table = [[row + column for column in range(len(second) + 1)] for row in range(len(first) + 1)]
    for row in range(1, len(first) + 1):
        for column in range(1, len(second) + 1):
            same = first[row - 1] == second[column - 1]
            ways = [
                table[row - 1][column] + 1,
                table[row][column - 1] + 1,
                table[row - 1][column - 1] + (not same),
            ]
            if row > 1 and column > 1 and first[row - 2 : row] == second[column - 2 : column][::-1]:
                ways.append(table[row - 2][column - 2] + 1)
            table[row][column] = min(ways)
    return table[-1][-1]


@given(WORDS, WORDS, st.integers(1, 2))
def test_distance_is_computed_up_to_a_maximum(first: str, second: str, most: int) -> None:
    assert distance(first, second, most) == min(edits(first, second), most + 1)


@given(st.lists(WORDS, unique=True), st.text("abcdй東", min_size=8, max_size=10), st.integers(1, 2))
def test_every_word_within_the_distance_of_a_long_one_is_found(
    words: list[str], word: str, most: int
) -> None:
    postings = Postings()
    near = Spellings(postings)
    for index, other in enumerate(words):
        postings.put(index, {other: 1})
        if index % 3 == 0:
            # Words that follow are added to a cached result.
            list(near.near(word, most))
    expected = [other for other in words if edits(word, other) == most and (most == 1 or other[0] == word[0])]
    assert list(near.near(word, most)) == expected


def test_short_word_is_found_by_one_edit_or_transposition() -> None:
    postings = Postings()
    postings.put(
        0, dict.fromkeys(("trail", "trial", "train", "trai", "trails", "rail", "grail", "a" * 90), 1)
    )
    near = Spellings(postings)
    assert set(near.near("trail", 1)) == {"trial", "trai", "trails"}
    assert list(near.near("a" * 89, 1)) == []
    assert near.size > 0
