"""The port behind search: an account's pages held in memory, and what each of them says to a question.

`ranking.py` writes its formula with the `Vector`s that a `IndexView` gives, one number to a page, and knows
neither where they come from nor which library multiplies them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sixfold.core.memory.indexing.entries import IndexEntry

T = TypeVar("T")


class Vector(Protocol):
    """One number to a page, 0 for a page that has nothing to say."""

    def __add__(self, other: Any, /) -> Any: ...

    def __mul__(self, factor: Any, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Saturation:
    """BM25's two numbers: how soon repetition stops to count, and how much length does."""

    k1: float
    b: float


@dataclass(frozen=True, slots=True)
class SearchFilter:
    """Which pages may be results: those with one of the types, one of the tags, one of the collections.

    Empty is no limit. `since` and `until` bound `updated_at`, both inclusive, in epoch µs.
    """

    types: Collection[str] = ()
    tags: Collection[str] = ()
    collections: Collection[str] = ()
    since: int | None = None
    until: int | None = None


class IndexView(Protocol):
    """What one caller sees of an account's pages; no page outside it affects the scores of others."""

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives, remembered under `key` until the pages change."""
        ...

    def nothing(self) -> Vector:
        """0 for each page: always the same vector, which a signal gives that has nothing to say."""
        ...

    def text(self, words: Mapping[str, float], saturation: Saturation) -> Vector:
        """BM25 of each page for the weighted words."""
        ...

    def passages(self, words: Mapping[str, float], saturation: Saturation, text: Vector) -> Vector:
        """BM25 of each page's best passage; `text`, which is the page's, where the page is one passage."""
        ...

    def folders(self, words: Mapping[str, float], saturation: Saturation, crowd: int) -> Vector:
        """BM25 of each page's folder read as one document, less where more than `crowd` pages share it."""
        ...

    def folder_words(self, words: Mapping[str, float]) -> Vector:
        """What the names of each page's folders say: the weight of each word in them by its rarity."""
        ...

    def parts(self) -> Vector:
        """1 for a page that is a part of its folder, 0 for an article that is read by itself."""
        ...

    def statements(self) -> Vector:
        """1 for a page that states something, 0 for a short one that asks."""
        ...

    def substance(self, half: int) -> Vector:
        """How much a page has to say: 0.5 at `half` words that count, towards 1."""
        ...

    def previous(self, vector: Vector) -> Vector:
        """For each page the number of the one before it in its folder."""
        ...

    def next(self, vector: Vector) -> Vector:
        """For each page the number of the one behind it in its folder."""
        ...

    def named(self, names: Collection[str]) -> Vector:
        """What share of the names each page is about, 0 to 1."""
        ...

    def linked(self, vector: Vector, lenders: int) -> Vector:
        """The best number among a page's neighbours by link, of at most the `lenders` best pages."""
        ...

    def from_scores(self, numbers: Mapping[str, float]) -> Vector:
        """The numbers that some pages were given, by their ids; unknown pages and unseen ones have none."""
        ...

    def recency(self, half_life_us: int) -> Vector:
        """1 for the account's newest page, half of it for each half-life before."""
        ...

    def when(self, since: int, until: int) -> Vector:
        """1 for a page of that time: by the date in its slug, else by when it was made or last changed."""
        ...

    def meaning(self, question: bytes) -> Vector:
        """Cosine of the question's vector (32-bit floats) and each page's nearest passage, at least 0."""
        ...

    def greatest(self, vector: Vector) -> float:
        """The greatest number of a vector, at least 0; 0 where there are no pages."""
        ...

    def at_least(self, vector: Vector, least: float) -> Vector:
        """1 for each page whose number is at least `least`."""
        ...

    def best(self, score: Vector, among: Vector, keep: SearchFilter, limit: int) -> Sequence[int]:
        """Places of the `limit` best pages that pass `keep` and are above 0 in `among`; ties by slug."""
        ...

    def score_at(self, vector: Vector, place: int) -> float:
        """One page's number."""
        ...

    def page_id(self, place: int) -> str:
        """Whose place it is."""
        ...

    def best_passage(self, place: int, words: Mapping[str, float]) -> int:
        """Which of a page's passages has most of the words."""
        ...

    def near(self, word: str, edits: int, most: int) -> Sequence[str]:
        """Words of pages that so many edits make of one, `most` at most, the most frequent first.

        Those that begin as it does; others only where none does.
        """
        ...

    def rarity(self, word: str) -> float:
        """BM25's weight of a word: how much a page says by having it; 0 when nowhere is one."""
        ...


class Index(Protocol):
    """All pages of one account, as of the last change that was read."""

    position: tuple[int, str]  # the last change that was read, and its page

    vectors_position: tuple[int, str]  # the same of vectors

    def put(self, page_id: str, entry: IndexEntry) -> None:
        """A page as it now stands, in place of what was there of it."""
        ...

    def remove(self, page_id: str) -> None:
        """Forget a page; one that is not there is no error."""
        ...

    def link(self, page_id: str, targets: Collection[str]) -> None:
        """The pages to which a page leads, in place of those that were there."""
        ...

    def linked_from(self, page_id: str, source: str) -> None:
        """One more page that leads to a page."""
        ...

    def embed(self, page_id: str, vectors: bytes) -> None:
        """The vectors of a page's passages, 16-bit floats one after the other; none for an unknown page."""
        ...

    def view(self, collections: Collection[str]) -> IndexView:
        """What a caller limited to `collections` sees; all of it when they are empty."""
        ...

    def __len__(self) -> int:
        """How many pages there are."""
        ...

    @property
    def vectors(self) -> int:
        """How many passages have a vector."""
        ...

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        ...
