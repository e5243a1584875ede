"""How search ranks: one formula over what pages say to a question, and its weights in one table.

Each signal gives every page one number. Words and what lies around them are added up first and scaled so that
the best page has 1; what is known beside the words is added on that scale. A result's score is the sum of its
parts, and `explain` shows each.

    score = (text + passage + previous + next + folder + path) / the best page's    what is written around it
          + entities + links + relation                                            whom it is about
          + when                                                                   of the time asked for
          + statement + substance + recency                                        what kind of page it is
          + meaning                                                                where there is a model

Scores are added, not ranks: on questions about conversations, fusing the ranks of words and vectors loses
to words alone. The weights were chosen by `python -m bench.tuning`; docs/architecture/62-ranking.md shows
what each signal is worth.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sixfold.core.clock import DAY_US
from sixfold.core.memory.search.ports import IndexView, Saturation, Vector

_PAGE, _FOLDER = Saturation(k1=1.1, b=0.3), Saturation(k1=1.5, b=0.8)


@dataclass(frozen=True, slots=True)
class Weights:
    """What each signal counts, and the few numbers inside the signals."""

    # what is written, and around it: scaled so that the best page has 1
    text: float = 0.5  # BM25 of the whole page ...
    passage: float = 0.5  # ... and of its best passage: the same number where a page is one passage
    previous: float = 0.5  # of the text of the page before this one in its folder
    next: float = 0.25  # of the page behind it
    previous_but_one: float = 0.2
    next_but_one: float = 0.1
    folder: float = 1.0  # of the folder's BM25, read as one document
    path: float = 2.0  # of the words in the names of its folders
    article: float = 0.3  # how much of the five before is left for an article, which stands by itself
    spelling: float = 0.4  # of a word that is nearly one of the question's, which stands nowhere

    # what is known beside the words
    entities: float = 0.12  # for a page about every name in the question
    links: float = 0.2  # of the best text among the pages that it is linked with
    statement: float = 0.15  # for a page that is no question itself
    substance: float = 0.2  # for a page that has much to say
    relation: float = 1.5  # for a page that answers a question about a relation: "who works at Acme"
    when: float = 0.6  # for a page of the time that is asked for: "last week"
    recency: float = 0.01  # for the newest page
    meaning: float = 0.5  # for the page nearest to the question's vector, which neighbours lend to, too:
    meaning_previous: float = 0.2
    meaning_next: float = 0.2

    page: Saturation = _PAGE
    whole_folder: Saturation = _FOLDER
    crowd: int = 30  # pages of a folder above which it says less and less of each of them


WEIGHTS = Weights()
LENDERS = 50  # best pages whose links are followed
HALF_WORDS = 15
HALF_LIFE_US = 90 * DAY_US
NEAR = 0.25  # cosine from which a page is a result without sharing a word
SENTENCE = 3  # words that make a query a question: then pages beside a match may be results themselves


@dataclass(frozen=True, slots=True)
class RankedQuery:
    """What is asked: weighted words, the names among them, and a vector where there is a model.

    `answers` are the pages that plain sentences give as an answer, by id, each with how surely (0 to 1);
    `span` is the time that is asked for, in epoch µs, both ends inclusive; `spelling` tells which of `words`
    were taken for one that stands nowhere.
    """

    words: Mapping[str, float]
    names: Collection[str] = ()
    vector: bytes | None = None
    answers: Mapping[str, float] = field(default_factory=dict[str, float])
    span: tuple[int, int] | None = None
    spelling: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    timed: bool = False  # the time is all that is asked for: "what happened yesterday"

    @property
    def guessed(self) -> frozenset[str]:
        """Those of `words` that were not asked for as they stand."""
        return frozenset(word for near in self.spelling.values() for word in near)

    def weighted(self, spelling: float) -> Mapping[str, float]:
        """The words, the guessed ones at a share."""
        if not self.spelling:
            return self.words
        guessed = self.guessed
        return {word: weight * (spelling if word in guessed else 1) for word, weight in self.words.items()}


class ScorePart(NamedTuple):
    """A signal, what it is multiplied with, and the share of it that each page takes, where not all."""

    vector: Vector
    weight: float
    share: Vector | None = None


@dataclass(frozen=True, slots=True)
class RankedPage:
    """Every page's score, its parts by name, and which pages may be results: those above 0 in `among`."""

    score: Vector
    parts: Mapping[str, ScorePart]
    among: Vector

    def told(self, view: IndexView, place: int) -> dict[str, float]:
        """What each part gives to one page."""
        return {
            name: view.score_at(part.vector, place)
            * part.weight
            * (1.0 if part.share is None else view.score_at(part.share, place))
            for name, part in self.parts.items()
        }


def rank(view: IndexView, question: RankedQuery, weights: Weights = WEIGHTS) -> RankedPage:
    """Score every page that `view` shows; without words by meaning alone, without a vector by words alone."""
    score, kind = view.once(weights, lambda: _kind(view, weights))
    parts: dict[str, ScorePart] = {}
    among = view.nothing()
    if question.words:
        written, parts, among = _words(view, question, weights)
        score = score + written
    if question.answers:
        answering = view.from_scores(question.answers)
        parts["relation"] = ScorePart(answering, weights.relation)
        score = score + answering * weights.relation
        among = among + answering
    if question.span is not None:
        then = view.when(*question.span)
        parts["when"] = ScorePart(then, weights.when)
        score = score + then * weights.when
        if question.timed:
            among = among + then
    if question.vector is not None:
        near = view.meaning(question.vector)
        lent = near + view.previous(near) * weights.meaning_previous + view.next(near) * weights.meaning_next
        nearest = view.greatest(lent)
        parts["meaning"] = ScorePart(lent, weights.meaning / nearest if nearest > 0 else 0.0)
        score = score + lent * parts["meaning"].weight
        among = among + view.at_least(near, NEAR)
    return RankedPage(score, {**parts, **kind}, among)


def _words(
    view: IndexView, question: RankedQuery, weights: Weights
) -> tuple[Vector, dict[str, ScorePart], Vector]:
    """What the words add to the score, its parts, and which pages they make results."""
    words = question.weighted(weights.spelling)
    text = view.text(words, weights.page)
    passage = view.passages(words, weights.page, text)
    if passage is text:
        found = _times(text, weights.text + weights.passage)
    else:
        found = text * weights.text + passage * weights.passage
    around = view.once(weights.article, lambda: view.parts() * (1 - weights.article) + weights.article)
    before, after = view.previous(found), view.next(found)
    previous = before * weights.previous + view.previous(before) * weights.previous_but_one
    following = after * weights.next + view.next(after) * weights.next_but_one
    folder = view.folders(words, weights.whole_folder, weights.crowd)
    path = view.folder_words(words)
    beside = previous + following + _times(folder, weights.folder)
    written = _added(view, found + beside * around, {"path": ScorePart(path, weights.path)})

    best = view.greatest(written)
    scale = 1 / best if best > 0 else 0.0
    parts = {
        "text": ScorePart(text, weights.text * scale),
        "passage": ScorePart(passage, weights.passage * scale),
        "previous": ScorePart(previous, scale, around),
        "next": ScorePart(following, scale, around),
        "folder": ScorePart(folder, weights.folder * scale, around),
        "path": ScorePart(path, weights.path * scale),
    }
    about = {
        "entities": ScorePart(view.named(question.names), weights.entities),
        "links": ScorePart(view.linked(found, LENDERS), weights.links * scale),
    }
    among = found if path is view.nothing() else found + path
    if len(words) - len(question.guessed) >= SENTENCE:
        among = among + before + after
    return _added(view, written * scale, about), {**parts, **about}, among


def _added(view: IndexView, score: Vector, parts: Mapping[str, ScorePart]) -> Vector:
    """A score and some whole parts; those that say nothing of any page cost nothing."""
    for vector, weight, _ in parts.values():
        if vector is not view.nothing():
            score = score + _times(vector, weight)
    return score


def _times(vector: Vector, weight: float) -> Vector:
    return vector if weight == 1.0 else vector * weight


def _kind(view: IndexView, weights: Weights) -> tuple[Vector, dict[str, ScorePart]]:
    """What is the same for every question: the kind of page that it is."""
    parts = {
        "statement": ScorePart(view.statements(), weights.statement),
        "substance": ScorePart(view.substance(HALF_WORDS), weights.substance),
        "recency": ScorePart(view.recency(HALF_LIFE_US), weights.recency),
    }
    return _added(view, view.nothing(), parts), parts
