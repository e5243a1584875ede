"""Detection of English compound nouns, such as *dog collar* with the head *collar*."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Sequence
from importlib import resources

from sixfold.engines.prompt_words import FUNCTION_WORDS

_TABLE = tomllib.loads(resources.files("sixfold.engines").joinpath("compound_nouns.toml").read_text("utf-8"))
_FOREIGN, _VERBS, _PARTICIPLES = (
    frozenset(_TABLE[name].split()) for name in ("foreign", "verbs", "participles")
)
# Endings of words that follow a noun without being its head: verbs, adverbs and adjectives.
_NOT_NOUNS = ("ing", "ed", "ly", "ful", "less", "ous", "ish", "able", "ible", "ward", "wards", "like")


def is_english(words: Collection[str]) -> bool:
    """Return False if a word occurs only in another language, where adjectives may follow the noun."""
    return _FOREIGN.isdisjoint(words)


def is_head(words: Sequence[str], at: int) -> bool:
    """Return whether the unknown word at a position is a noun that the word before it describes.

    The function excludes function words, verbs, adverbs, adjectives and participles.
    """
    if not 0 < at < len(words):
        return False
    word, before = words[at], words[at - 1]
    if word in FUNCTION_WORDS or word in _PARTICIPLES or before.endswith("'s"):
        return False
    if word.endswith(_NOT_NOUNS) or not word.isascii() or word.isdecimal():
        return False
    # A singular noun takes a verb in -s, a plural one its base form.
    stems = (word.removesuffix("s"), word.removesuffix("es"), word.removesuffix("ies") + "y")
    return word not in _VERBS if before.endswith("s") else all(stem not in _VERBS for stem in stems)
