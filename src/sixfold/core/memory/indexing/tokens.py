"""Conversion of text into index words: any script, folded, stemmed, without stop words.

Words are runs of letters and digits. Scripts without spaces (Han, kana, hangul, Thai, Lao, Khmer, Burmese)
yield pairs of adjacent characters, and each emoji is a word. Operators are not recognized.
"""

from __future__ import annotations

import re
import threading
import tomllib
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import Stemmer

from sixfold.core.input_limits.normalization import normalized
from sixfold.core.memory.indexing import semitic
from sixfold.core.memory.indexing.english import BASE_FORMS, STOP_WORDS

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u30ff\u3130-\u318f"
    "\u31a0-\u31ff\u3400-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
_EMOJI = "\u2600-\u27bf\u2b50-\u2b55\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff"
# Marks that belong to the letter before them.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0dff"
UNSPACED = re.compile(f"[{_UNSPACED}]")
_WORD = re.compile(
    rf"(?P<unspaced>[{_UNSPACED}]+)|(?P<emoji>[{_EMOJI}])"
    rf"|(?:(?![{_UNSPACED}])[^\W_]|[{_MARKS}]|(?<=\w)['’](?=[^\W_]))+"
)
_ASCII_WORD = re.compile(r"[a-z0-9]+(?:'[a-z0-9]+)*")
# Latin and Greek letters are compared without accents.
_ACCENT = re.compile("(?<=[A-Za-z\u0370-\u03ff])[\u0300-\u036f]+")
_LETTERS = (
    # These letters do not have an accent to remove, so they map to their usual transliteration.
    str.maketrans(
        {
            "æ": "ae",
            "Æ": "AE",
            "œ": "oe",
            "Œ": "OE",
            "ø": "o",
            "Ø": "O",
            "ł": "l",
            "Ł": "L",
            "đ": "d",
            "Đ": "D",
            "ı": "i",
        }
    )
)
_VOWEL_MARKS = re.compile(f"[{semitic.MARKS}]")
_CHINESE = tomllib.loads((Path(__file__).parents[3] / "data" / "chinese.toml").read_text("utf-8"))
# Traditional Chinese characters as simplified ones, also in Japanese; katakana as hiragana, which is an
# alternative spelling of a word; spellings of the same Arabic letter.
_SAME_LETTERS = {
    **str.maketrans(*(_CHINESE[name].replace("\n", "") for name in ("traditional", "simplified"))),
    **{code: code - 0x60 for code in range(0x30A1, 0x30F7)},
    **str.maketrans("ٱىیک帳帐", "اييك账账"),
}
_CLITIC = re.compile(r"(?:n't|'(?:s|t|m|d|re|ve|ll))$")
_ELISION = re.compile(
    r"^(?:[cdjlmnst]|(?:jus|lors|puis|quoi)?qu|(?:[ds]e|a|da|ne|su|que)ll|un|quest)'(?=[aeiouhy])"
)
# French plurals whose last letter an English stemmer keeps: clés, gâteaux, jeux, journaux.
_SHORT_PLURAL = re.compile(r"^([^aeiouy\W]{1,3}e)s$")
_PLURAL_IN_X = re.compile(r"(?<=eau)x$|(?<=[^aeiouy]eu)x$")
_PLURAL_OF_AL = re.compile(r"(?<=..[^aeiouy])aux$")
_ISO_DATE = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})(?!\d)")
_YEAR = "january february march april may june july august september october november december"
_MONTHS = _YEAR.split()
# Maximum characters of a word that are compared.
_LONGEST = 48
_BEGINS_AS = [(base[0], form[0]) for form, base in BASE_FORMS.items() if form[0] != base[0]]  # go: went
_STEM_CACHE_SIZE = 1 << 17

_LANGUAGES = (
    ("a", "z", "english"),
    ("\u0370", "\u03ff", "greek"),
    ("\u0400", "\u04ff", "russian"),
    ("\u0600", "\u06ff", "arabic"),
)
_STEMMERS: dict[str, Any] = {
    name: Stemmer.Stemmer(name)  # pyright: ignore[reportUnknownMemberType] - it has no stubs
    for name in (*(name for _, _, name in _LANGUAGES), "finnish", "turkish")
}
# A stemmer is not thread-safe, because it has one buffer.
_ONE_AT_A_TIME = threading.Lock()


def words(text: str) -> list[str]:
    """Return all words of a text in order, folded and stemmed; a stop word is an empty string.

    A date such as 2026-05-08 also yields `8 may 2026`.
    """
    if "-" in text:
        text = _ISO_DATE.sub(_expand_date, text)
    folded_text = fold(text)
    if folded_text.isascii():
        return [stem(word) for word in _ASCII_WORD.findall(folded_text)]
    result: list[str] = []
    for match in _WORD.finditer(folded_text):
        if match["unspaced"]:
            result += _pairs(match["unspaced"])
        else:
            result.append(match["emoji"] or stem(match[0].replace("’", "'")))
    return result


def terms(text: str) -> Counter[str]:
    """Return the counts of the words of a text without stop words."""
    counts = Counter(words(text))
    counts.pop("", None)
    return counts


def written(text: str) -> Mapping[str, str]:
    """Map each index word of a text to its folded spelling."""
    matches = (match for match in _WORD.finditer(fold(text)) if not match["unspaced"])
    return {stem(match[0]): match[0] for match in matches}


def fold(text: str) -> str:
    """Return a text in lower case, with one form of each character, without accents and vowel marks.

    Accents are removed from Latin and Greek letters, vowel marks from Arabic and Hebrew ones.
    """
    if text.isascii():
        return text.lower()
    text = normalized("NFKD", text.translate(_LETTERS))
    text = _VOWEL_MARKS.sub("", _ACCENT.sub("", text))
    return normalized("NFC", text).casefold().translate(_SAME_LETTERS)


def word(text: str) -> str | None:
    """Return the index word for one word, or None for characters of a script without spaces."""
    return _cached_word(text) if len(text) <= _LONGEST else _word(text)


def _word(text: str) -> str | None:
    return None if UNSPACED.search(text) else stem(fold(text).replace("’", "'"))


@lru_cache(256)
def initials(stems: frozenset[str]) -> frozenset[str]:
    """Return the possible first characters, in both cases, of the ASCII words that have these stems."""
    first = {stem[:1] for stem in stems}
    first |= {other for base, other in _BEGINS_AS if base in first}
    return frozenset(first | {letter.upper() for letter in first})


def stem(word: str) -> str:
    """Return the stem of a folded word, or '' for a stop word; Latin words are stemmed as English."""
    return _cached_stem(word) if len(word) <= _LONGEST else stem_once(word)


def stem_once(word: str) -> str:
    """Return the stem without caching it, for texts that are mostly not words."""
    if "'" in word:
        word = _ELISION.sub("", _CLITIC.sub("", word)).replace("'", "")
    word = word[:_LONGEST]
    if word in STOP_WORDS:
        return ""
    word = BASE_FORMS.get(word, word)
    if word.endswith(("es", "x")):
        word = _singular(word)
    first = word[:1]
    if "א" <= first <= "ת":
        return semitic.hebrew_stem(word)
    arabic = "\u0600" <= first <= "\u06ff"
    if arabic:
        word = semitic.singular(semitic.without_article(word))
    for low, high, language in _LANGUAGES:
        if low <= first <= high:
            with _ONE_AT_A_TIME:
                stemmed = str(_STEMMERS[language].stemWord(word))
            return semitic.without_feminine(stemmed) if arabic else stemmed
    return word


def _singular(word: str) -> str:
    word = _SHORT_PLURAL.sub(r"\1", _PLURAL_IN_X.sub("", word))
    return _PLURAL_OF_AL.sub("al", word)


def stem_as(language: str, word: str) -> str:
    """Return the stem of a word in lower case in one of the languages of the stemmers."""
    with _ONE_AT_A_TIME:
        return str(_STEMMERS[language].stemWord(word))


# Only short words are cached, because the caches could otherwise use gigabytes.
_cached_word = lru_cache(_STEM_CACHE_SIZE)(_word)
_cached_stem = lru_cache(_STEM_CACHE_SIZE)(stem_once)

# The irregular forms of each word, such as went, gone and goes of go.
_FORMS: dict[str, list[str]] = {}
for _form, _base in BASE_FORMS.items():
    _FORMS.setdefault(stem(_base), []).append(_form)


@lru_cache(256)
def beginnings(stems: frozenset[str]) -> frozenset[str]:
    """Return possible beginnings of ASCII words with these index words: a space and lower-case letters.

    A stemmer changes only the last letters, except in `dying` (die). A word with apostrophes may have a
    different beginning.
    """
    begins = {stem[: max(2, len(stem) - 1)] for stem in stems}
    begins |= {f"{stem[0]}ying" for stem in stems if stem[1:] == "ie"}
    begins |= {form for stem in stems for form in _FORMS.get(stem, ())}
    return frozenset(f" {begin}" for begin in begins)


def _pairs(run: str) -> list[str]:
    """Return pairs of adjacent characters, or a single character."""
    if len(run) == 1:
        return [run]
    return [run[n : n + 2] for n in range(len(run) - 1)]


def _expand_date(date: re.Match[str]) -> str:
    month = int(date[2])
    if not 1 <= month <= 12:
        return date[0]
    return f"{int(date[3])} {_MONTHS[month - 1]} {date[1]}"
