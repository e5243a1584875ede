"""A search for rare words computes scores of few pages, and its results equal those of a complete ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sixfold.core.memory.indexing.entries import entry
from sixfold.core.memory.models import MemoryPage
from sixfold.core.memory.search import query_parser, ranking
from sixfold.core.memory.search.ports import IndexView, SearchFilter
from sixfold.core.memory.search.ranking import RankedQuery
from sixfold.store.search import narrow_view
from sixfold.store.search.index import PageIndex

WORDS = ["tea", "honey", "milk", "boat", "lake", "night", "Ann", "Ben", "7", "why?"]
SLUGS = ["log/{}", "log/2026-05-0{}", "talk/{}", "talk/ann-lee", "people/ann-{}", "{}", "lake/boat/d1-{}"]
PAGES = st.lists(
    st.fixed_dictionaries(
        {
            "slug": st.sampled_from(SLUGS),
            "words": st.lists(st.sampled_from(WORDS), max_size=6),
            "title": st.sampled_from(["", "Tea", "Ann", "Boat lake", "Ann Lee"]),
            "link": st.integers(0, 11),
            "public": st.booleans(),
            "long": st.booleans(),
        }
    ),
    min_size=1,
    max_size=12,
)
QUERIES = (
    "tea",
    "Ann Lee",
    "lake boat",
    "Where did Ann drink tea with honey?",
    "honey milk night Ben 7",
    "hony and milk",
    "unknown",
)
FILTERS = (SearchFilter(), SearchFilter(types=["note"], since=3), SearchFilter(collections=["public"]))
RELATIONS = {"page_3": 1.0, "page_5": 0.6, "missing": 1.0}


def page(number: int, slug: str, title: str, body: str, *collections: str) -> MemoryPage:
    return MemoryPage(
        id=f"page_{number}", account_id="a", slug=slug, title=title, body=body,
        type="person" if number % 4 == 0 else "note", tags=(), collections=collections, version=1,
        created_at=number, updated_at=number, created_by="",
    )  # fmt: skip


def write(index: PageIndex, pages: Sequence[Mapping[str, Any]]) -> None:
    for number, row in enumerate(pages):
        body = " ".join(row["words"])
        if row["long"]:
            body += "\n\n## Again\n\n" + "and so on it goes " * 90 + body
        slug = row["slug"].format(number)
        public = ("public",) if row["public"] else ()
        index.put(f"page_{number}", entry(page(number, slug, row["title"], body, *public), ()))
    for number, row in enumerate(pages):
        index.link(f"page_{number}", {f"page_{row['link']}"} - {f"page_{number}"})


def results(view: IndexView, question: RankedQuery, keep: SearchFilter) -> list[tuple[str, Any]]:
    ranked = ranking.rank(view, question)
    return [
        (view.page_id(position), (view.score_at(ranked.score, position), ranked.score_parts(view, position)))
        for position in view.best(ranked.score, ranked.candidates, keep, 4)
    ]


@given(pages=PAGES, removed=st.sets(st.integers(0, 11), max_size=3))
def test_results_equal_those_of_all_pages(pages: list[Mapping[str, Any]], removed: set[int]) -> None:
    index = PageIndex()
    write(index, pages)
    for number in removed:
        index.remove(f"page_{number}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(narrow_view, "MIN_PAGES", 0)
        patch.setattr(narrow_view, "MAX_SHARE", 1e9)
        for collections in ((), ("public",)):
            view = index.view(collections)
            for number, query in enumerate(QUERIES):
                question = query_parser.parse_query(view, query)
                if number % 2:
                    question = replace(question, relation_scores=RELATIONS, span=(2, 6))
                narrowed = ranking.narrowed(view, question)
                assert isinstance(narrowed, narrow_view.NarrowView)
                for keep in FILTERS:
                    assert results(narrowed, question, keep) == results(view, question, keep)


def test_rare_words_need_scores_of_few_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow_view, "MIN_PAGES", 100)
    index = PageIndex()
    for number in range(200):
        body = f"A boat on the lake. word{number}x"
        index.put(f"page_{number}", entry(page(number, f"log/{number}", "", body), ()))
    view = index.view(())
    lengths: list[int] = []
    for query in ("word7x", "boat"):
        question = query_parser.parse_query(view, query)
        lengths.append(len(ranking.rank(ranking.narrowed(view, question), question).score))  # pyright: ignore[reportArgumentType] # an array
    assert lengths == [5, 200]


def test_newest_page_is_found_after_removals() -> None:
    index = PageIndex()
    for number in (5, 9, 7):
        index.put(f"page_{number}", entry(page(number, f"log/{number}", "", "A boat."), ()))
    assert index.newest == 9
    index.remove("page_9")
    assert index.newest == 7
    index.put("page_7", entry(page(6, "log/7", "", "A boat."), ()))
    assert index.newest == 6
    for number in (5, 7):
        index.remove(f"page_{number}")
    assert index.newest == 0


def test_scale_is_that_of_a_part_without_the_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of articles with a word gives its part the greatest score, whichever parts are hidden."""
    monkeypatch.setattr(narrow_view, "MIN_PAGES", 0)
    monkeypatch.setattr(narrow_view, "MAX_SHARE", 1)
    index = PageIndex()
    articles = [(f"talk/{name}", name, "Some tea." if name < "k" else "A boat.") for name in "abcdefghijklm"]
    others = [(f"day-{number}/plan", "Plan", "A lake.") for number in range(30)]
    for number, (slug, title, body) in enumerate([*articles, ("talk/7", "", "A lake."), *others]):
        index.put(f"page_{number}", entry(page(number, slug, title, body, "public"), ()))
    for number in (97, 98, 99):
        index.put(f"page_{number}", entry(page(number, f"talk/{number}", "", "A lake."), ()))
    for collections in ((), ("public",)):
        view = index.view(collections)
        for relation_scores in ({}, {"page_99": 1.0}):
            question = RankedQuery({"tea": 1.0}, relation_scores=relation_scores)
            narrowed = ranking.narrowed(view, question)
            assert isinstance(narrowed, narrow_view.NarrowView)
            assert results(narrowed, question, SearchFilter()) == results(view, question, SearchFilter())
