"""Arabic and Hebrew words without the particles that are written together with them.

*Ha-kelev* (the dog) is one word. Letters of particles also begin other words, and all forms of such a word
lose them alike, so it is still found by itself.
"""

from __future__ import annotations

import re

# Vowel marks of Arabic with the line that stretches words, and those of Hebrew.
MARKS = "\u0610-\u061a\u0640\u064b-\u065f\u0670\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
# The forms of five letters at the end of a word, as inside of it.
_FINAL = str.maketrans("ךםןףץ", "כמנפצ")
# and, the, in, to, that, from, as
_PARTICLES = "והבלשמכ"
_PLURAL = re.compile(r"(?:ימ|ות|יות)$")
_MIN_LETTERS = 3
_MIN_PLURAL_STEM = 2
# and, so, with, as, to: with the article, which the stemmer leaves before short words
_ARABIC_ARTICLE = re.compile("^[وف]?(?:[بك]?ال|لل)(?=.{3})")
_ARABIC_ENDS = ("ة", "ه", "ت")
_MIN_ARABIC_LETTERS = 4


def without_article(word: str) -> str:
    """Return an Arabic word without its article and the prefixes before the article."""
    return _ARABIC_ARTICLE.sub("", word)


def without_feminine(stem: str) -> str:
    """Return an Arabic stem without the feminine ending, which has three spellings."""
    return stem[:-1] if stem.endswith(_ARABIC_ENDS) and len(stem) >= _MIN_ARABIC_LETTERS else stem


def hebrew_stem(word: str) -> str:
    """Return the stem of a Hebrew word without vowel marks."""
    word = word.translate(_FINAL)
    plural = _PLURAL.search(word)
    if plural is not None and plural.start() >= _MIN_PLURAL_STEM:
        word = word[: plural.start()]
    start = 0
    while len(word) - start > _MIN_LETTERS and word[start] in _PARTICLES:
        start += 1
    word = word[start:]
    return word[:-1] if word.endswith("ה") and len(word) > _MIN_LETTERS else word
