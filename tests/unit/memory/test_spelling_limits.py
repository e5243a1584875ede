"""Spelling correction is bounded in steps and runs off the event loop."""

from __future__ import annotations

import itertools

from sixfold.store.search.postings import Postings
from sixfold.store.search.spelling import Spellings


class _CountingPostings(Postings):
    """Counts the words that are compared letter by letter."""

    compared = 0

    def word(self, number: int) -> str:
        self.compared += 1
        return super().word(number)


def _similar_words() -> _CountingPostings:
    """Return words that all have the same letters, so that their sets of letters exclude none."""
    words = ["".join(letters) for letters in itertools.permutations("abcdefgh")]
    postings = _CountingPostings()
    for index, start in enumerate(range(0, len(words), 2_000)):
        postings.put(index, dict.fromkeys(words[start : start + 2_000], 1))
    return postings


def test_a_search_compares_a_bounded_number_of_words() -> None:
    postings = _similar_words()
    spellings = Spellings(postings)
    for _ in range(2):
        spellings.begin()
        postings.compared = 0
        results = [len(list(spellings.containing(part))) for part in ("abc", "fgh", "hgf", "cab") * 6]
        results += [len(list(spellings.near(word, 2))) for word in ("abcdefhgx", "hgfedcbax") * 6]
        # Each search has the whole amount of work.
        assert results[0] > 0
        assert postings.compared < 60_000


def test_words_beyond_the_limit_are_not_yielded_one_by_one() -> None:
    postings = Postings()
    for index in range(20):
        postings.put(index, {f"krank{index}x{number}": 1 for number in range(2_000)})
    spellings = Spellings(postings)
    spellings.begin()
    assert 0 < len(list(spellings.containing("krank"))) < 10_000
