"""The ranking of search results: a formula over signals, whose weights are in `indexing/weights.py`.

Each signal assigns one number to every page. The signals of the text are summed first and scaled so that the
best page has 1; the other signals are added on that scale. A score is the sum of its parts, and `explain`
shows each.

    score = (text + passage                                               its text
             + previous + next + reply + folder + path) / the best page's and its neighbors
          + title + entitled + complete + phrase + hop                    who and what it is about
          + entities + links + relation + stop_words
          + answer                                                        what the question asks for
          + when                                                          the time in the question
          + statement + substance + recency                               the kind of page
          + meaning                                                       if there is a model

`phrase` is added in `service.py`, because it reads the texts of the best pages.

Scores are added instead of ranks: on questions about conversations, fusing the ranks of words and vectors is
worse than words alone. docs/architecture/62-ranking.md shows the effect of each signal.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from sixfold.core.memory.indexing.answer_kinds import AnswerKind
from sixfold.core.memory.indexing.weights import (
    HALF_LIFE_US,
    HALF_WORDS,
    MAX_LINKING,
    NEAR,
    SENTENCE,
    WEIGHTS,
    Weights,
)
from sixfold.core.memory.search.ports import IndexView, Vector


class RankedQuery(msgspec.Struct, frozen=True):
    """A query: weighted words, the names among them (`entities`), and a vector if there is a model.

    `span` is the requested time in epoch µs, both ends inclusive; `spelling` maps each misspelled word to its
    replacements. `relation_scores` and `stop_word_scores` map page ids to scores from 0 to 1.
    """

    words: Mapping[str, float]
    entities: Collection[str] = ()
    vector: bytes | None = None
    relation_scores: Mapping[str, float] = {}
    span: tuple[int, int] | None = None
    spelling: Mapping[str, Sequence[str]] = {}
    # The words that a page must contain to be complete; empty if no page contains one of them.
    required: Collection[str] = ()
    # The kind of answer that the query asks for: the signal `answer`.
    answer_kind: AnswerKind | None = None
    # Whether the query contains only a time, as in "what happened yesterday".
    timed: bool = False
    stop_word_scores: Mapping[str, float] = {}

    @property
    def guessed(self) -> frozenset[str]:
        """The words that replace misspelled words."""
        return frozenset(word for replacements in self.spelling.values() for word in replacements)

    @property
    def is_sentence(self) -> bool:
        """Whether the query has enough words for results that do not contain any of them."""
        return len(self.words) - len(self.guessed) >= SENTENCE

    def weighted(self, spelling: float) -> Mapping[str, float]:
        """The words, with a reduced weight for replacements."""
        if not self.spelling:
            return self.words
        guessed = self.guessed
        return {word: weight * (spelling if word in guessed else 1) for word, weight in self.words.items()}


class ScorePart(NamedTuple):
    """A signal, its weight, and the fraction of the weight that applies to each page (None for all of it)."""

    vector: Vector
    weight: float
    share: Vector | None = None


class PageScores(msgspec.Struct, frozen=True):
    """The scores of all pages, their parts by name, and `candidates`, above 0 for possible results."""

    score: Vector
    parts: Mapping[str, ScorePart]
    candidates: Vector
    # 1 for a page that contains all words of the query.
    complete: Vector

    def score_parts(self, view: IndexView, position: int) -> dict[str, float]:
        return {
            name: view.score_at(part.vector, position)
            * part.weight
            * (1.0 if part.share is None else view.score_at(part.share, position))
            for name, part in self.parts.items()
        }


def narrowed(view: IndexView, question: RankedQuery) -> IndexView:
    """Return a view with the same results for `question`, which may compute the scores of fewer pages."""
    if question.vector is not None or question.timed:
        return view
    page_ids = {*question.relation_scores, *question.stop_word_scores}
    return view.narrowed(question.words, page_ids, linked=question.is_sentence)


def rank(view: IndexView, question: RankedQuery, weights: Weights = WEIGHTS) -> PageScores:
    """Score all pages of `view`, by words, a vector, or both."""
    score, static_parts = view.once(weights, lambda: static_score_parts(view, weights))
    parts: dict[str, ScorePart] = {}
    candidates = view.nothing()
    if question.words:
        text_score, parts, candidates = _words(view, question, weights)
        score = score + text_score
    if question.relation_scores:
        relation = view.from_scores(question.relation_scores)
        parts["relation"] = ScorePart(relation, weights.relation)
        score = score + relation * weights.relation
        candidates = candidates + relation
    if question.stop_word_scores:
        stop_words = view.from_scores(question.stop_word_scores)
        parts["stop_words"] = ScorePart(stop_words, 1.0)
        score = score + stop_words
        candidates = candidates + stop_words
    if (expected := question.answer_kind) is not None:
        kind_counts = view.once(("kind_counts", expected), lambda: view.kind_counts(expected))
        parts["answer"] = ScorePart(kind_counts, weights.answer)
        score = score + kind_counts * weights.answer
    if question.span is not None:
        in_period = view.when(*question.span)
        parts["when"] = ScorePart(in_period, weights.when)
        score = score + in_period * weights.when
        if question.timed:
            candidates = candidates + in_period
    if question.vector is not None:
        cosines = view.meaning(question.vector)
        meaning = (
            cosines
            + view.previous(cosines) * weights.meaning_previous
            + view.next(cosines) * weights.meaning_next
        )
        nearest = view.greatest(meaning)
        parts["meaning"] = ScorePart(meaning, weights.meaning / nearest if nearest > 0 else 0.0)
        score = score + meaning * parts["meaning"].weight
        candidates = candidates + view.at_least(cosines, NEAR)
    complete = parts["complete"].vector if "complete" in parts else view.nothing()
    return PageScores(score, {**parts, **static_parts}, candidates, complete)


def _words(
    view: IndexView, question: RankedQuery, weights: Weights
) -> tuple[Vector, dict[str, ScorePart], Vector]:
    """Return the score of the words, its parts, and the pages that become candidates."""
    words = question.weighted(weights.spelling)
    text = view.text(words, weights.page)
    passage = view.passages(words, weights.page, text)
    if passage is text:
        scores = _times(text, weights.text + weights.passage)
    else:
        scores = text * weights.text + passage * weights.passage
    neighbor_share = view.once(
        weights.article, lambda: view.parts() * (1 - weights.article) + weights.article
    )
    before, after = view.previous(scores), view.next(scores)
    previous = before * weights.previous + view.previous(before) * weights.previous_but_one
    following = after * weights.next + view.next(after) * weights.next_but_one
    folder = view.folders(words, weights.whole_folder, weights.crowd)
    path = view.folder_words(words)
    reply = view.previous(scores * view.once("asking", view.asking))
    neighbors = previous + following + _times(reply, weights.reply) + _times(folder, weights.folder)
    text_score = _added(view, scores + neighbors * neighbor_share, {"path": ScorePart(path, weights.path)})

    best = view.greatest(text_score)
    scale = 1 / best if best > 0 else 0.0
    parts = {
        "text": ScorePart(text, weights.text * scale),
        "passage": ScorePart(passage, weights.passage * scale),
        "previous": ScorePart(previous, scale, neighbor_share),
        "next": ScorePart(following, scale, neighbor_share),
        "reply": ScorePart(reply, weights.reply * scale, neighbor_share),
        "folder": ScorePart(folder, weights.folder * scale, neighbor_share),
        "path": ScorePart(path, weights.path * scale),
    }
    title_share = view.once(
        ("title", weights.part_title), lambda: view.parts() * (weights.part_title - 1) + 1
    )
    title_scores = view.title_shares(words)
    if title_scores is not view.nothing():
        title_scores = title_scores * title_share
    required = question.required
    # The words of a question must occur, but an answer by inference may have different words.
    all_required = len(required) > 1 and not question.relation_scores
    complete = view.complete(required) if all_required else view.nothing()
    if complete is not view.nothing():
        complete = complete * view.statements()
    hop = view.linked(title_scores, MAX_LINKING, weights.hop_crowd)
    about = {
        "title": ScorePart(title_scores, weights.title),
        "entitled": ScorePart(view.entitled(required), weights.entitled),
        "complete": ScorePart(complete, weights.complete),
        "hop": ScorePart(hop, weights.hop),
        "entities": ScorePart(view.named(question.entities), weights.entities),
        "links": ScorePart(view.linked(scores, MAX_LINKING), weights.links * scale),
    }
    candidates = scores if path is view.nothing() else scores + path
    if question.is_sentence:
        candidates = candidates + before + after + hop
    return _added(view, text_score * scale, about), {**parts, **about}, candidates


def _added(view: IndexView, score: Vector, parts: Mapping[str, ScorePart]) -> Vector:
    """Return `score` plus the weighted `parts`; parts that are 0 for all pages are skipped."""
    for vector, weight, _ in parts.values():
        if vector is not view.nothing():
            score = score + _times(vector, weight)
    return score


def _times(vector: Vector, weight: float) -> Vector:
    return vector if weight == 1.0 else vector * weight


def static_score_parts(view: IndexView, weights: Weights) -> tuple[Vector, dict[str, ScorePart]]:
    """Return the sum of the parts that do not depend on the query, and the parts."""
    parts = {
        "statement": ScorePart(view.statements(), weights.statement),
        "substance": ScorePart(view.substance(HALF_WORDS), weights.substance),
        "recency": ScorePart(view.recency(HALF_LIFE_US), weights.recency),
    }
    return _added(view, view.nothing(), parts), parts
