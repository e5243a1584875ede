"""The port of the search index: an account's pages in memory, with a score per page for each signal.

`ranking.py` combines the `Vector`s of an `IndexView`, which contain one number per page. It does not depend
on the library that computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from sixfold.core.memory.indexing.answer_kinds import AnswerKind
from sixfold.core.memory.indexing.entries import IndexEntry
from sixfold.core.memory.indexing.weights import Saturation

T = TypeVar("T")


class Vector(Protocol):
    """One number per page of a view, which is 0 for a page without a match."""

    def __add__(self, other: Any, /) -> Any: ...

    def __mul__(self, factor: Any, /) -> Any: ...


class SearchFilter(msgspec.Struct, frozen=True):
    """The filter of results: a page must have one of the types, one of the tags and one of the collections.

    An empty field matches all pages. `since` and `until` limit `updated_at`, both inclusive, in epoch µs.
    """

    types: Collection[str] = ()
    tags: Collection[str] = ()
    collections: Collection[str] = ()
    since: int | None = None
    until: int | None = None


class IndexView(Protocol):
    """The pages of an account that one caller can see; the scores do not depend on any other pages."""

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the result of `make`, cached under `key` until the pages change."""
        ...

    def narrowed(self, words: Collection[str], page_ids: Collection[str], *, linked: bool) -> IndexView:
        """Return a view with the same results for `words`, whose vectors may have fewer pages.

        `page_ids` may be results as well, and if `linked` is true, pages that are linked with a page whose
        title the words contain. Vectors of different views must not be combined.
        """
        ...

    def nothing(self) -> Vector:
        """Return 0 for each page, always as the same vector, for signals without a match."""
        ...

    def text(self, words: Mapping[str, float], saturation: Saturation) -> Vector:
        """Return the BM25 score of each page for the weighted words."""
        ...

    def passages(self, words: Mapping[str, float], saturation: Saturation, text: Vector) -> Vector:
        """Return the BM25 score of each page's best passage; `text` is used for pages with one passage."""
        ...

    def folders(self, words: Mapping[str, float], saturation: Saturation, crowd: int) -> Vector:
        """Return the BM25 score of each page's folder as one document, reduced above `crowd` pages."""
        ...

    def folder_words(self, words: Mapping[str, float]) -> Vector:
        """Return the total rarity of the words in the names of each page's folders."""
        ...

    def parts(self) -> Vector:
        """Return 1 for a page that is a part of its folder, and 0 for a self-contained article."""
        ...

    def statements(self) -> Vector:
        """Return 1 for a page that makes a statement, and 0 for a short page that asks a question."""
        ...

    def asking(self) -> Vector:
        """Return 1 for a short page that asks a question, and 0 for any other page."""
        ...

    def kind_counts(self, kind: AnswerKind) -> Vector:
        """Score the answers of the requested kind on each page: 0 for none, 0.5 for one, 1 for more."""
        ...

    def substance(self, half: int) -> Vector:
        """Return a measure of the content of each page: 0.5 at `half` significant words, approaching 1."""
        ...

    def previous(self, vector: Vector) -> Vector:
        """Return for each page the value of the preceding page in its folder."""
        ...

    def next(self, vector: Vector) -> Vector:
        """Return for each page the value of the following page in its folder."""
        ...

    def named(self, names: Collection[str]) -> Vector:
        """Return the fraction, from 0 to 1, of the names that each page is about."""
        ...

    def title_shares(self, words: Collection[str]) -> Vector:
        """Return the fraction of the words' rarity that each title covers; 0 for titles with other words."""
        ...

    def entitled(self, words: Collection[str]) -> Vector:
        """Score titles that contain all the words: 0.5, plus half of the words' fraction of the title."""
        ...

    def complete(self, words: Collection[str]) -> Vector:
        """Return 1 for a page that contains all the words, and 0 for any other page."""
        ...

    def linked(self, vector: Vector, linking: int, crowd: int = 0) -> Vector:
        """Return for each page the best value of its linked pages, among the `linking` best pages only.

        If `crowd` is set, a page with more links than that passes a smaller value to each.
        """
        ...

    def from_scores(self, numbers: Mapping[str, float]) -> Vector:
        """Return a vector from values by page id; unknown and invisible ids are ignored."""
        ...

    def recency(self, half_life_us: int) -> Vector:
        """Return 1 for the account's newest page, halved per half-life of age."""
        ...

    def when(self, since: int, until: int) -> Vector:
        """Return 1 for pages of a period, by the date in the slug, else by their creation or last change."""
        ...

    def meaning(self, question: bytes) -> Vector:
        """Return the cosine of the query's vector and each page's nearest passage, at least 0.

        The vector consists of 32-bit floats.
        """
        ...

    def greatest(self, vector: Vector) -> float:
        """Return the greatest value of a vector, at least 0; 0 if there are no pages."""
        ...

    def at_least(self, vector: Vector, least: float) -> Vector:
        """Return 1 for each page whose value is at least `least`, otherwise 0."""
        ...

    def best(self, score: Vector, candidates: Vector, keep: SearchFilter, limit: int) -> Sequence[int]:
        """Return the positions of the `limit` best pages that pass `keep` and are above 0 in `candidates`.

        Ties are ordered by slug.
        """
        ...

    def score_at(self, vector: Vector, position: int) -> float: ...

    def page_id(self, position: int) -> str: ...

    def on_disk(self, position: int) -> bool:
        """Return whether the words of a page are on disk; each of these words counts once."""
        ...

    def best_passage(self, position: int, words: Mapping[str, float]) -> int:
        """Return the index of the passage that contains most of the words."""
        ...

    def near(self, word: str, edits: int, max_words: int) -> Sequence[str]:
        """Return at most `max_words` words within `edits` edits of a word, most frequent first.

        Words with a different first letter are returned only if there are no other words.
        """
        ...

    def containing(self, part: str, max_words: int) -> Sequence[str]:
        """Return at most `max_words` words that contain a string, most frequent first."""
        ...

    def rarity(self, word: str) -> float:
        """Return the BM25 weight of a word; 0 for an unknown word."""
        ...


class Index(Protocol):
    """All pages of one account, up to the last change that was read."""

    # The last change that was read, and its page.
    position: tuple[int, str]

    # The same for vectors.
    vectors_position: tuple[int, str]

    def put_many(self, pages: Sequence[tuple[str, IndexEntry]], *, on_disk: bool = False) -> None:
        """Add or replace distinct pages; `on_disk` stores their words in a file instead of memory."""
        ...

    def remove(self, page_id: str) -> None:
        """Remove a page; a missing page is not an error."""
        ...

    def link(self, page_id: str, targets: Collection[str]) -> None: ...

    def linked_from(self, page_id: str, source: str) -> None: ...

    def embed(self, page_id: str, vectors: bytes) -> None:
        """Set the vectors of a page's passages, concatenated 16-bit floats; unknown pages are ignored."""
        ...

    def settle(self) -> None:
        """Prepare the added words in advance of the next search."""
        ...

    def view(self, collections: Collection[str]) -> IndexView:
        """Return a view of the pages in `collections`, or of all pages if it is empty."""
        ...

    def __len__(self) -> int: ...

    @property
    def vectors(self) -> int:
        """The number of passages with a vector."""
        ...

    @property
    def size(self) -> int:
        """The approximate memory usage in bytes, without the data that searches have cached."""
        ...

    @property
    def cache_size(self) -> int:
        """The approximate bytes that searches have cached until the next change."""
        ...
