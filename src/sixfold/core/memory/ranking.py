"""How search ranks: one formula over what pages say to a question, and its weights in one table.

Each signal gives every page one number. Words and what lies around them are added up first and scaled so that
the best page has 1; what is known beside the words is added on that scale. A result's score is the sum of its
parts, and `explain` shows each.

    score = (text + passage + previous + next + folder) / the best page's   what is written, and around it
          + entities + links + recency                                       whom it is about, how it lies
          + meaning                                                          where there is an embedding model

Scores are added, not ranks: on questions about conversations, fusing the ranks of words and vectors loses
to words alone. The weights were chosen by `python -m bench.tuning`; docs/architecture/60-ranking.md shows
what each signal is worth.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sixfold.core.clock import DAY_US
from sixfold.core.memory.signals import Saturation, Vector, View


@dataclass(frozen=True, slots=True)
class Weights:
    """What each signal counts."""

    text: float = 0.5  # BM25 of the whole page ...
    passage: float = 0.5  # ... and of its best passage: the same number where a page is one passage
    previous: float = 0.4  # of the text of the page before this one in its folder
    next: float = 0.2  # of the page behind it
    previous_but_one: float = 0.2
    next_but_one: float = 0.1
    folder: float = 0.7  # of the folder's BM25, read as one document
    entities: float = 0.1  # for a page about every name in the question
    links: float = 0.1  # of the best text among the pages that it is linked with
    recency: float = 0.01  # for the newest page
    meaning: float = 0.6  # for the page nearest to the question's vector
    meaning_previous: float = 0.4  # neighbours lend of their meaning, too
    meaning_next: float = 0.2


WEIGHTS = Weights()
PAGE = Saturation(k1=0.9, b=0.3)
FOLDER = Saturation(k1=3.0, b=0.8)
CROWD = 40  # pages of a folder above which it says less and less of each of them
LENDERS = 50  # best pages whose links are followed
HALF_LIFE_US = 90 * DAY_US
NEAR = 0.25  # cosine from which a page is a result without sharing a word
SENTENCE = 3  # words that make a query a question: then pages beside a match may be results themselves


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked: weighted words, the names among them, and a vector where there is a model."""

    words: Mapping[str, float]
    names: Collection[str] = ()
    vector: bytes | None = None


@dataclass(frozen=True, slots=True)
class Ranked:
    """Every page's score, its parts by name, and which pages may be results: those above 0 in `among`."""

    score: Vector
    parts: Mapping[str, Vector]
    among: Vector


def rank(view: View, question: Question, weights: Weights = WEIGHTS) -> Ranked:
    """Score every page that `view` shows; without words by meaning alone, without a vector by words alone."""
    parts: dict[str, Vector] = {}
    if question.words:
        text = view.text(question.words, PAGE)
        passage = view.passages(question.words, PAGE, text)
        found = text * weights.text + passage * weights.passage
        before, after = view.before(found), view.after(found)
        written = {
            "text": text * weights.text,
            "passage": passage * weights.passage,
            "previous": before * weights.previous + view.before(before) * weights.previous_but_one,
            "next": after * weights.next + view.after(after) * weights.next_but_one,
            "folder": view.folders(question.words, FOLDER, CROWD) * weights.folder,
        }
        best = _sum(written).max()
        scale = 1 / best if best > 0 else 0.0
        parts = {name: part * scale for name, part in written.items()}
        parts["entities"] = view.named(question.names) * weights.entities
        parts["links"] = view.linked(found * scale, LENDERS) * weights.links
        among = found + before + after if len(question.words) >= SENTENCE else found
    else:
        among = view.recency(HALF_LIFE_US) * 0.0
    if question.vector is not None:
        near = view.meaning(question.vector)
        lent = near + view.before(near) * weights.meaning_previous + view.after(near) * weights.meaning_next
        nearest = lent.max()
        parts["meaning"] = lent * (weights.meaning / nearest if nearest > 0 else 0.0)
        among = among + view.over(near, NEAR)
    parts["recency"] = view.recency(HALF_LIFE_US) * weights.recency
    return Ranked(_sum(parts), parts, among)


def _sum(parts: Mapping[str, Vector]) -> Vector:
    first, *others = parts.values()
    for part in others:
        first = first + part
    return first
