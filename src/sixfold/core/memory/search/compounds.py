"""Related words of questions and pages: compounds, inflected forms, and single characters.

German, Dutch and the Nordic languages write compounds as one word: *Rechnung* is found in
*Krankenhausrechnung*, and a question for the latter also finds *Rechnung*. The words of the pages serve as
the dictionary. Scripts without spaces are indexed as pairs of characters, so a question of one character is
searched as the pairs that contain it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Sequence

from sixfold.core.memory.indexing import tokens
from sixfold.core.memory.search.ports import IndexView

# Frequent words of these languages; in a memory with more of their pages than this, words are divided.
_MARKERS = ("und", "der", "nicht", "het", "een", "och", "inte", "og", "ikke", "det")
_MAX_RARITY = 3.9
# Frequent words of languages with many endings, two of which must be as frequent, because some are words of
# other languages.
_WORD = re.compile(r"[^\W\d_]{3,}")
_SUFFIXING = {
    "finnish": ("ja", "joka", "mutta", "ovat", "oli", "myos", "kun", "etta"),
    "turkish": ("ve", "bir", "bu", "icin", "var", "ile", "cok", "degil"),
}
_MIN_PART, _MIN_REST, _MIN_STEM = 4, 3, 3
# Minimum letters of each part of a compound, and endings of its last part.
_LINKS = ("", "s", "n", "en", "e", "es", "er")
_ENDINGS = frozenset(
    (
        "",
        "e",
        "n",
        "s",
        "en",
        "er",
        "es",
        "em",
        "ern",
        "r",
        "t",
        "et",
        "ar",
        "or",
        "na",
        "an",
        "erna",
        "arna",
        "ene",
    )
)
# Words of these languages without meaning for a page, which are too many to exclude from the index.
_FUNCTION_WORDS = frozenset(
    word
    for text in (
        "der die das den dem des ein eine einer einem einen ist sind war waren hat haben wird werden wer",
        "wie was wo wann warum welche welcher welches welchen und oder aber für im in am an auf mit von vom",
        "zu zum zur bei aus nicht auch noch sich es er sie wir ich du ihr unser unsere mein meine kein",
        "keine als nach über de het een en is zijn heeft hebben wordt worden hoe wat waar wanneer waarom",
        "welke welk van voor op met te bij uit niet ook nog zich hij zij wij ik je onze mijn geen naar over",
        "om dan dat det ett och är var har blir vem hur vad när varför vilken vilket vilka för på med",
        "av från inte också sig han hon vi jag vår min ingen som att kan ska finns et og hvem hvordan hvad",
        "hvor hvornår hvorfor hvilken hvilket hvilke for i til af fra ikke også hun jeg vores at skal hva",
        "når ble",
    )
    for word in tokens.terms(text)
)
# The weight of a related word relative to the word of the query.
_INFLECTED, _COMPOUND, _FUNCTION = 0.8, 0.6, 0.1
_MAX_WORDS, _MAX_FOUND, _MAX_OF_ALL = 12, 6, 24


def expand(view: IndexView, words: Collection[str], text: str) -> dict[str, float]:
    """Return the indexed words that are related to the words of a question, `text`, with weights.

    For function words of the question, the result contains a weight that replaces the original one.
    """
    compounding, suffixing = view.once("languages", lambda: _languages(view))
    function_words = _FUNCTION_WORDS.intersection(words) if compounding else frozenset[str]()
    weights: dict[str, float] = {}
    variants = (
        each
        for word in sorted({*words} - function_words, key=lambda word: (-len(word), word))[:_MAX_WORDS]
        for each in _related(view, word, compounding=compounding)
    )
    inflected = (
        each
        for language in suffixing
        for word in _WORD.findall(text.lower())[:_MAX_WORDS]
        for each in _same_stem(view, word, language)
    )
    for other, weight in itertools.chain(variants, inflected):
        weights[other] = max(weight, weights.get(other, 0))
    best = sorted(weights.keys() - words, key=lambda word: (-weights[word], word))[:_MAX_OF_ALL]
    known = (word for word in function_words if view.rarity(word))
    return {word: weights[word] for word in best} | dict.fromkeys(known, _FUNCTION)


def _languages(view: IndexView) -> tuple[bool, tuple[str, ...]]:
    """Return whether the pages are in a language with compounds, and their languages with many endings."""
    suffixing = (
        language
        for language, markers in _SUFFIXING.items()
        if sum(0 < view.rarity(marker) < _MAX_RARITY for marker in markers) > 1
    )
    return any(0 < view.rarity(word) < _MAX_RARITY for word in _MARKERS), tuple(suffixing)


def _related(view: IndexView, word: str, *, compounding: bool) -> Iterator[tuple[str, float]]:
    """Yield the known words that contain a word of one character, or that form compounds with a word."""
    if len(word) == 1 and tokens.UNSPACED.match(word):
        yield from ((other, 1.0) for other in view.containing(word, _MAX_FOUND))
    elif compounding and len(word) >= _MIN_PART and word.isalpha():
        yield from _with(view, word)
        yield from _parts(view, word)


def _with(view: IndexView, word: str) -> Iterator[tuple[str, float]]:
    """Yield known words that end or begin with a word, apart from endings."""
    base = _base(word)
    for other in view.containing(base, _MAX_FOUND * 4):
        at = other.rfind(base)
        ends = other[at + len(base) :] in _ENDINGS
        if ends and at == 0:
            yield other, _INFLECTED
        elif (ends and at >= _MIN_REST) or (
            other.startswith(base) and len(other) - len(base) > _MIN_REST and len(base) >= _MIN_PART + 1
        ):
            yield other, _COMPOUND


def _same_stem(view: IndexView, word: str, language: str) -> Iterator[tuple[str, float]]:
    """Yield known words that begin with the written stem of a word, or end with it as a part."""
    base = tokens.fold(tokens.stem_as(language, word))
    # The words of the index are stemmed as English.
    for begin in sorted({base, tokens.stem(base)}):
        if len(begin) < _MIN_STEM:
            continue
        if view.rarity(begin):
            yield begin, _INFLECTED
        for other in view.containing(begin, _MAX_FOUND * 4):
            at = other.rfind(begin)
            if at == 0 or at >= _MIN_REST:
                yield other, _INFLECTED if at == 0 else _COMPOUND


def _parts(view: IndexView, word: str) -> Iterator[tuple[str, float]]:
    """Yield the known words that are the parts of a word."""
    for at in range(_MIN_PART, len(word) - _MIN_PART + 1):
        for head in _heads(word[:at]):
            tails = [tail for tail in _forms(word[at:]) if view.rarity(tail)]
            if tails and any(view.rarity(form) for form in _forms(head)):
                yield from ((form, _COMPOUND) for form in _forms(head) if view.rarity(form))
                yield from ((tail, _COMPOUND) for tail in tails)
                return
    # The last part alone, if it is long.
    for at in range(_MIN_REST, len(word) - _MIN_PART - 1):
        if view.rarity(word[at:]):
            yield word[at:], _COMPOUND
            return


def _heads(text: str) -> Sequence[str]:
    return [text[: len(text) - len(link)] for link in _LINKS if text.endswith(link)]


def _forms(word: str) -> list[str]:
    if len(word) < _MIN_PART:
        return []
    return list(dict.fromkeys((word, _base(word), tokens.stem(word))))


def _base(word: str) -> str:
    """Return a word without an ending, if enough letters remain."""
    longest = max(
        (end for end in _ENDINGS if word.endswith(end) and len(word) - len(end) > _MIN_PART),
        key=len,
        default="",
    )
    return word[: len(word) - len(longest)]
