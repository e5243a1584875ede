"""Quality gate of inference: precision and recall on our own corpus, with a held-out half."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sixfold.core.memory.ports import SearchRequest
from sixfold.core.memory.search.index_cache import IndexCache
from sixfold.core.memory.search.service import SearchService
from sixfold.store.search.index import PageIndex
from tests.unit.memory.relation_fixtures import corpus, name, open_relations

LEAST_PRECISION = 0.9
# Lower than the measured values, so that a decrease of recall is detected as well.
LEAST_RECALL = {"tuned": 0.9, "heldout": 0.8}


@dataclass
class Score:
    """True and false findings, with the misses to read."""

    right: int = 0
    wrong: int = 0
    missed: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, what: str, got: Iterable[str], gold: Iterable[str]) -> None:
        """Compare the relations found with those annotated by hand."""
        got, gold = set(got), set(gold)
        self.right += len(got & gold)
        self.wrong += len(got - gold)
        self.missed += len(gold - got)
        if got != gold:
            self.notes.append(f"{what!r}: wrong {sorted(got - gold)}, missed {sorted(gold - got)}")

    @property
    def precision(self) -> float:
        """Return the share of correct results."""
        return self.right / (self.right + self.wrong)

    @property
    def recall(self) -> float:
        """Return the share of the expected answers among the results."""
        return self.right / (self.right + self.missed)

    def report(self, of: str) -> str:
        return f"{of}: precision {self.precision:.3f}, recall {self.recall:.3f}, {self.right} right"


@pytest.mark.parametrize("half", ["tuned", "heldout"])
async def test_precision_of_inferred_links_is_at_least_90_percent(tmp_path: Path, half: str) -> None:
    """Each text is written as a page among the pages of the world; its links are compared with the gold."""
    score = Score()
    known = corpus("world")["pages"]
    async with open_relations(None, tmp_path) as relations:
        await relations.populate()
        for number, item in enumerate(corpus(half)["item"]):
            slug = item.get("page", f"notes/item-{number}")
            title, kind, *aliases = known.get(slug, (f"Item {number}", "note"))
            await relations.save(slug, item["text"], title, kind, tuple(aliases))
            results = [
                f"{name(result.subject)} {result.relation} {name(result.object)}"
                for result in await relations.evidence(slug)
                if result.resolved
            ]
            score.add(item["text"].strip(), results, item["links"])
            await relations.save(slug, "", title, kind, tuple(aliases))
    print(score.report(f"links, {half}"))  # noqa: T201 - the figure is what the log of CI is read for
    assert score.precision >= LEAST_PRECISION, score.notes
    assert score.recall >= LEAST_RECALL[half], score.notes


@pytest.mark.parametrize("half", ["tuned", "heldout"])
async def test_relational_questions_reach_90_percent(tmp_path: Path, half: str) -> None:
    """The pages with the highest score are the answer; a text that is not a question has no answer."""
    score = Score()
    questions = corpus("questions")
    async with open_relations(None, tmp_path) as relations:
        await relations.populate(questions["pages"])
        for item in questions[half]:
            result = await relations.answers(item["ask"])
            best = max(result.values(), default=0.0)
            score.add(item["ask"], [slug for slug, value in result.items() if value == best], item["answers"])
    print(score.report(f"questions, {half}"))  # noqa: T201 - the figure is what the log of CI is read for
    assert score.precision >= LEAST_PRECISION, score.notes
    assert score.recall >= LEAST_RECALL[half], score.notes


def test_corpus_has_the_minimum_size() -> None:
    """At least 150 texts and 60 questions, a third of the texts with nothing to find."""
    texts = [item for half in ("tuned", "heldout") for item in corpus(half)["item"]]
    requests = [item for half in ("tuned", "heldout") for item in corpus("questions")[half]]
    assert len(texts) >= 150
    assert len(requests) >= 60
    assert sum(not item["links"] for item in texts) >= len(texts) / 4


@pytest.mark.parametrize(("half", "least"), [("tuned", 0.95), ("heldout", 0.9)])
async def test_search_returns_answers_among_the_first_five(tmp_path: Path, half: str, least: float) -> None:
    """The first five results contain at least the share `least` of the answers."""
    result, request = 0.0, 0
    questions = corpus("questions")
    async with open_relations(None, tmp_path) as relations:
        await relations.populate(questions["pages"])
        finder = SearchService(relations.database, IndexCache(relations.database, PageIndex))
        for item in questions[half]:
            gold = set(item["answers"])
            if gold:
                hits = (await finder.search(relations.writes, SearchRequest(item["ask"], limit=5))).hits
                result += len(gold & {name(hit.slug) for hit in hits}) / len(gold)
                request += 1
    print(f"search, {half}: recall@5 {result / request:.3f}")  # noqa: T201 - the figure is what the log is read for
    assert result / request >= least
