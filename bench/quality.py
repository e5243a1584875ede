"""Retrieval quality: corpora with known answers, four metrics, and filling and querying a memory.

LoCoMo (Maharana et al. 2024, CC BY-NC) is read from `shared/data/locomo` beside the checkout or above it.
It is used for measuring only and is not part of the project.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sixfold.core.accounts import accounts
from sixfold.core.database import Database
from sixfold.core.memory import pages
from sixfold.core.memory.models import Caller
from sixfold.core.memory.pages import PageDraft, PageWritePlan
from sixfold.core.memory.ports import Mode, Searcher, SearchRequest
from tests.corpora.islands import islands as made_islands
from tests.corpora.languages import languages as made_languages
from tests.corpora.wiki import Wiki, wiki

TUNING, UNSEEN = ("26", "30", "41"), ("42", "43")
DEPTH = 10  # the number of results that are evaluated
_LOCOMO = Path("shared/data/locomo/locomo_dev.json")

Ask = Callable[[str], Awaitable[Sequence[str]]]  # maps a question to the slugs of the results, best first


@dataclass(frozen=True, slots=True)
class CorpusPage:
    """A page of a corpus."""

    slug: str
    title: str
    body: str
    type: str = "note"


@dataclass(frozen=True, slots=True)
class Case:
    """A question and the slugs that answer it."""

    question: str
    answers: tuple[str, ...]
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Pages in the order in which they are written, and questions; each corpus is a separate memory."""

    name: str
    notes: tuple[CorpusPage, ...]
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class Quality:
    """Means over questions: recall at 5 and 10, reciprocal rank of the first answer, and nDCG."""

    recall_5: float
    recall_10: float
    mrr: float
    ndcg: float
    questions: int

    def __str__(self) -> str:
        return f"R@5 {self.recall_5:.3f}, R@10 {self.recall_10:.3f}, MRR {self.mrr:.3f}, nDCG {self.ndcg:.3f}"


def judge(ranked: Sequence[str], answers: Iterable[str]) -> tuple[float, float, float, float]:
    """Return recall at 5 and 10, reciprocal rank and nDCG at 10 of one result list."""
    names = set(answers)
    places = [place for place, slug in enumerate(ranked[:DEPTH]) if slug in names]
    ideal = sum(1 / math.log2(place + 2) for place in range(min(DEPTH, len(names))))
    return (
        sum(place < 5 for place in places) / len(names),
        len(places) / len(names),
        1 / (places[0] + 1) if places else 0.0,
        sum(1 / math.log2(place + 2) for place in places) / ideal,
    )


def interval(values: Sequence[float], draws: int = 1_000) -> tuple[float, float]:
    """Return the 95 % confidence bounds of the mean, by bootstrap."""
    draw = random.Random(1)  # noqa: S311  # the same on every machine
    means = sorted(sum(draw.choices(values, k=len(values))) / len(values) for _ in range(draws))
    return means[draws // 40], means[-draws // 40 - 1]


def mean(judged: Sequence[tuple[float, float, float, float]]) -> Quality:
    """Return the quality over all questions."""
    sums = [sum(column) / len(judged) for column in zip(*judged, strict=True)]
    return Quality(*sums, questions=len(judged))


def locomo_file() -> Path | None:
    """Return the file of LoCoMo beside the checkout or above it, or None."""
    return next((result for folder in Path(__file__).parents if (result := folder / _LOCOMO).exists()), None)


def locomo(conversations: Sequence[str]) -> tuple[Corpus, ...]:
    """Return conversations as memories, a page per turn and a folder per session; empty without the data."""
    path = locomo_file()
    if path is None:
        return ()
    return tuple(
        _conversation(row)
        for row in json.loads(path.read_text("utf-8"))
        if row["sample_id"].removeprefix("conv-") in conversations
    )


def _conversation(row: dict[str, Any]) -> Corpus:
    talk, notes, slugs = row["conversation"], list[CorpusPage](), dict[str, str]()
    session = 1
    while f"session_{session}" in talk:
        date = talk[f"session_{session}_date_time"].partition(" on ")[2]
        for turn in talk[f"session_{session}"]:
            slug = f"session-{session}/{turn['dia_id'].replace(':', '-').lower()}"
            slugs[turn["dia_id"]] = slug
            picture = f"\n\n[picture: {turn['blip_caption']}]" if turn.get("blip_caption") else ""
            body = f"{turn['speaker']}: {turn['text']}{picture}"
            notes.append(CorpusPage(slug, f"{turn['speaker']} on {date}", body))
        session += 1
    cases: list[Case] = []
    for request in row["qa"]:
        answers = tuple(str(slugs.get(turn, turn)) for turn in request.get("evidence", ()))
        if answers:
            cases.append(Case(request["question"], answers, str(request["category"])))
    return Corpus(row["sample_id"], tuple(notes), tuple(cases))


def islands(seed: int = 29) -> tuple[Corpus, ...]:
    """Return the project's reference work as one memory; `title` and `hop` were labeled by hand."""
    return (_make("islands", made_islands(seed)),)


def own() -> tuple[Corpus, ...]:
    """Return the project's wiki as one memory."""
    return (_make("wiki", wiki()),)


def languages() -> tuple[Corpus, ...]:
    """Return small memories in languages other than English."""
    return tuple(_make(name, result) for name, result in made_languages().items())


def _make(name: str, wiki: Wiki) -> Corpus:
    notes = tuple(CorpusPage(page.slug, page.title, page.body, page.type) for page in wiki.pages)
    cases = tuple(Case(request.text, request.answers, request.kind) for request in wiki.questions)
    return Corpus(name, notes, cases)


async def remember(database: Database, corpus: Corpus) -> Caller:
    """Write a corpus into the memory of a new account, and return the account's caller."""
    account = await database.write(accounts.create(f"{corpus.name}@example.com"))
    caller = Caller(account.id, "bench")
    plans = [
        PageWritePlan(
            None, PageDraft(slug=note.slug, title=note.title, head="", body=note.body, type=note.type)
        )
        for note in corpus.notes
    ]
    for start in range(0, len(plans), 500):
        await database.write(pages.save(caller, "write", plans[start : start + 500]))
    return caller


def asking(searcher: Searcher, caller: Caller, mode: Mode = "auto") -> Ask:
    """Return the search function of a memory."""

    async def ask(question: str) -> Sequence[str]:
        answer = await searcher.search(caller, SearchRequest(question, limit=DEPTH, mode=mode))
        return [hit.slug for hit in answer.hits]

    return ask


async def measure(corpus: Corpus, ask: Ask) -> list[tuple[float, float, float, float]]:
    return [judge(await ask(case.question), case.answers) for case in corpus.cases]
