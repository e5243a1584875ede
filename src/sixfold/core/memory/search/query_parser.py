"""Parsing of queries: the weighted words of a text, the names in it, and replacements of unknown words."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec.structs import replace

from sixfold.core.memory.indexing import answer_kinds, tokens
from sixfold.core.memory.search import compounds, suffix_typos
from sixfold.core.memory.search.ports import IndexView
from sixfold.core.memory.search.ranking import RankedQuery
from sixfold.core.memory.search.time_expressions import TimeSpan

# Maximum number of words of a query; the rarest words are used.
_MAX_WORDS = 48
# Minimum letters of a word in which one letter may be wrong, and two.
_LETTERS, _MANY_LETTERS = 5, 8
# Maximum number of unknown words of a query, and of the candidates for each.
_MAX_GUESSED, _CANDIDATES = 4, 3
# Minimum length of an incomplete last word, and the numbers of candidates that are read and used for it.
_MIN_TYPED, _MAX_SEEN, _MAX_COMPLETED = 2, 48, 8
# Minimum letters of a word that may be the beginning of another word.
_MIN_PREFIX = 4
_NAME = re.compile(r"[^\W\d_][\w'’-]*")
# Words without meaning next to a time expression.
_SAYS_NOTHING = tokens.terms("happened changed wrote written new")


def parse_query(
    view: IndexView, text: str, vector: bytes | None = None, span: TimeSpan | None = None
) -> RankedQuery:
    """Parse a text as a query of `view`: its rarest words, and the names in it.

    The words of a time expression count as words if the query has no other words.
    """
    counts: Mapping[str, int] = tokens.terms(text)
    other_words = counts if span is None else tokens.terms(text.replace(span.phrase, " ")) - _SAYS_NOTHING
    if span is not None and other_words and not span.spelled:
        counts = other_words
    # In a query such as "The Who", stop words may be a title.
    if not counts:
        counts = Counter(tokens.fold(text).split()[:_MAX_WORDS])
    known = {word: view.rarity(word) * times for word, times in counts.items()}
    rarest = sorted((word for word in known if known[word] > 0), key=lambda word: (-known[word], word))
    words = {word: float(counts[word]) for word in rarest[:_MAX_WORDS]}
    spelling = _spelling(view, text, known) if len(rarest) < min(len(known), _MAX_WORDS) else {}
    if not rarest and not spelling:
        spelling = _beginning(view, text)
    between = None if span is None else (span.since, span.until)
    return RankedQuery(
        words={**_guessed(view, words, spelling), **words, **compounds.expand(view, known.keys(), text)},
        entities=names(text, words),
        vector=vector,
        span=between,
        spelling=spelling,
        answer_kind=answer_kinds.expected_kind(text),
        timed=span is not None and not other_words,
        # A query with unknown words is not about a page that contains all of its other words.
        required=tuple(rarest) if len(rarest) == len(known) else (),
    )


def completed(view: IndexView, text: str, question: RankedQuery) -> RankedQuery:
    """Return a question with the words that begin with its last word, which is still being typed."""
    last = "".join(tokens.fold(text).split()[-1:]) if not text[-1:].isspace() else ""
    if len(last) < _MIN_TYPED:
        return question
    completions = [word for word in view.containing(last, _MAX_SEEN) if word.startswith(last)][
        :_MAX_COMPLETED
    ]
    return replace(question, words={**dict.fromkeys(completions, 1.0), **question.words})


def _spelling(view: IndexView, text: str, known: Mapping[str, float]) -> dict[str, Sequence[str]]:
    """Return replacements for words that do not occur in pages; a name may have one wrong letter."""
    long = [
        word
        for word, rarity in known.items()
        if not rarity and len(word) >= _LETTERS and word.isalpha() and tokens.stem(word)
    ]
    capital = set(_names(text)) if long else set[str]()
    spellings: Mapping[str, str] = tokens.written(text) if long else {}
    corrections: dict[str, Sequence[str]] = {}
    for word in long[:_MAX_GUESSED]:
        limit = 2 if len(word) >= _MANY_LETTERS and word not in capital else 1
        near = _near(view, word, spellings.get(word, word), limit)
        corrections[word] = [other for other in near if other not in known]
    return {word: near for word, near in corrections.items() if near}


def _near(view: IndexView, word: str, spelling: str, limit: int) -> Sequence[str]:
    """Return replacements for a word.

    Words one edit away come first, then words with a different ending, then words `limit` edits away.
    """
    if near := view.near(word, 1, _CANDIDATES):
        return near
    for stems in (suffix_typos.stems, suffix_typos.all_stems):
        rarity = {stem: view.rarity(stem) for stem in stems(spelling)}
        if near := sorted((stem for stem in rarity if rarity[stem]), key=lambda stem: (rarity[stem], stem)):
            return near[:_CANDIDATES]
    return view.near(word, limit, _CANDIDATES) if limit > 1 else ()


def _beginning(view: IndexView, text: str) -> dict[str, Sequence[str]]:
    """Return, for a query of unknown words, the indexed words that begin with each of them."""
    extensions: dict[str, Sequence[str]] = {}
    for word, form in list(tokens.written(text).items())[:_MAX_GUESSED]:
        if len(form) >= _MIN_PREFIX and form[0].isalpha():
            longer = [other for other in view.containing(form, _MAX_WORDS) if other.startswith(form)]
            extensions[word] = [form] if view.rarity(form) else longer[:_CANDIDATES]
    return {word: near for word, near in extensions.items() if near}


def _guessed(
    view: IndexView, words: Mapping[str, float], spelling: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    """Return replacements whose weights do not exceed that of the query's best word."""
    limit = max((weight * view.rarity(word) for word, weight in words.items()), default=math.inf)
    near = {word for candidates in spelling.values() for word in candidates}
    return {word: min(1.0, limit / view.rarity(word)) for word in sorted(near)}


def names(text: str, words: Collection[str]) -> tuple[str, ...]:
    """Return the names in a text: its capitalized words, or all words of a text without capitals."""
    present = {word for word in _names(text) if word in words}
    return tuple(sorted(present)) or tuple(words)


def _names(text: str) -> Iterator[str]:
    """Yield the index words of a text that are capitalized."""
    for match in _NAME.finditer(text):
        if match[0][0].isupper():
            yield from tokens.words(match[0])
