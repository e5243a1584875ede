"""Quality gate of search, on our own wiki and, if present, on LoCoMo's tuning part.

The minimums are slightly below the measured values, so that a worse ranking fails.
`python -m bench retrieval` measures more, beside other programs.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bench import quality
from bench.quality import Corpus, Quality
from sixfold.core.memory.search.index_cache import IndexCache
from sixfold.core.memory.search.service import SearchService
from sixfold.store.search.index import PageIndex
from sixfold.store.sqlite.database import SqliteDatabase

LEAST_OWN = Quality(recall_5=0.91, recall_10=0.94, mrr=0.76, ndcg=0.80, questions=246)
LEAST_ISLANDS = Quality(recall_5=0.835, recall_10=0.90, mrr=0.60, ndcg=0.65, questions=634)
LEAST_LOCOMO = Quality(recall_5=0.745, recall_10=0.82, mrr=0.63, ndcg=0.66, questions=495)
LEAST_OF_A_KIND = {
    "fact": 0.95,
    "described": 0.95,
    "date": 0.95,
    "next day": 0.95,
    "paraphrase": 0.82,
    "section": 0.6,
}


async def measure(corpora: Sequence[Corpus]) -> tuple[Quality, dict[str, float]]:
    """Return the quality over all questions, and the recall at 10 of each kind."""
    database = SqliteDatabase(":memory:")
    finder = SearchService(database, IndexCache(database, PageIndex))
    judged: list[tuple[float, float, float, float]] = []
    kinds: dict[str, list[float]] = {}
    try:
        for corpus in corpora:
            caller = await quality.remember(database, corpus)
            result = await quality.measure(corpus, quality.asking(finder, caller, "lexical"))
            for case, row in zip(corpus.cases, result, strict=True):
                kinds.setdefault(case.kind, []).append(row[1])
            judged += result
    finally:
        await database.close()
    return quality.mean(judged), {kind: sum(rows) / len(rows) for kind, rows in kinds.items()}


def hold(quality: Quality, least: Quality) -> None:
    """Fail if a figure is below its minimum."""
    assert quality.questions == least.questions
    for name in ("recall_5", "recall_10", "mrr", "ndcg"):
        assert getattr(quality, name) >= getattr(least, name), f"{name}: {quality}"


async def test_search_quality_on_our_wiki_does_not_fall() -> None:
    result, kinds = await measure(quality.own())
    hold(result, LEAST_OWN)
    for kind, least in LEAST_OF_A_KIND.items():
        assert kinds[kind] >= least, f"{kind}: {kinds}"


async def test_search_follows_links_from_a_named_page() -> None:
    result, kinds = await measure(quality.islands())
    hold(result, LEAST_ISLANDS)
    assert kinds["multi-hop"] >= 0.72, kinds


async def test_search_quality_on_conversations_does_not_fall() -> None:
    corpora = quality.locomo(quality.TUNING)
    if not corpora:
        pytest.skip("LoCoMo is not on this machine (shared/data/locomo)")
    result, _ = await measure(corpora)
    hold(result, LEAST_LOCOMO)


def test_gate_detects_lower_quality() -> None:
    worse = Quality(recall_5=0.91, recall_10=0.93, mrr=0.8, ndcg=0.9, questions=246)
    with pytest.raises(AssertionError, match="recall_10"):
        hold(worse, LEAST_OWN)


def test_metrics_equal_their_definitions() -> None:
    ranked = ["a", "b", "c", "d", "e", "f"]
    assert quality.judge(ranked, ["a"]) == (1.0, 1.0, 1.0, 1.0)
    assert quality.judge(ranked, ["f"])[:3] == (0.0, 1.0, 1 / 6)
    assert quality.judge(ranked, ["z"]) == (0.0, 0.0, 0.0, 0.0)
    recall_5, recall_10, rank, order = quality.judge(ranked, ["b", "f"])
    assert (recall_5, recall_10, rank) == (0.5, 1.0, 0.5)
    assert 0.5 < order < 0.7
