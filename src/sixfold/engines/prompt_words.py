"""The words of a prompt that an engine acts upon, and those that it ignores.

Engines without weights match words against tables or patterns. They report the spans of their matches here;
every other word with a meaning counts as ignored.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib import resources

from sixfold.core.catalog.prompt_words import MAX_WORDS, PromptWords
from sixfold.core.input_limits.normalization import normalized

Span = tuple[int, int]

WORD = re.compile(r"[^\W_]+(?:[-'\u2019&][^\W_]+)*", re.UNICODE)
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_MAX_CHARACTERS = 40

_TABLE = tomllib.loads(resources.files("sixfold.engines").joinpath("prompt_words.toml").read_text("utf-8"))
FUNCTION_WORDS = frozenset(_TABLE["function"].split())
_GENERAL_WORDS = frozenset(_TABLE["general"].split())
_PARTICLES = re.compile("[\u3040-\u309f的了在和与一只个台条张里上]+")


def fold(text: str) -> str:
    """Return the text normalized (NFKC) and case-folded, for the comparison of words."""
    return normalized("NFKC", text).casefold().replace("\u2019", "'")


def of_spans(folded: str, spans: Iterable[Span]) -> PromptWords:
    """Return the words of a folded text; a word is understood if it overlaps a span, else ignored."""
    covered = bytearray(len(folded))
    for start, end in spans:
        covered[start:end] = b"\x01" * (end - start)
    understood: dict[str, None] = {}
    ignored: dict[str, None] = {}
    for start, end in _words(folded, covered):
        word = folded[start:end]
        if any(covered[start:end]):
            if word not in FUNCTION_WORDS:
                understood[word[:_MAX_CHARACTERS]] = None
        elif not _is_empty(word):
            ignored[word[:_MAX_CHARACTERS]] = None
    words = (word for word in ignored if word not in understood)
    return PromptWords(tuple(understood)[:MAX_WORDS], tuple(words)[:MAX_WORDS])


def of_patterns(prompt: str, patterns: Iterable[re.Pattern[str]]) -> PromptWords:
    """Return the words of a prompt; a word is understood if a pattern matches it, else ignored."""
    folded = fold(prompt)
    return of_spans(folded, (match.span() for pattern in patterns for match in pattern.finditer(folded)))


def of_parts(prompt: str, parts: Iterable[PromptWords]) -> PromptWords:
    """Return the words of a prompt; a word is understood if a part of the engine understands it."""
    understood = dict.fromkeys(word for part in parts for word in part.understood)
    words = of_spans(fold(prompt), ()).ignored
    return PromptWords(tuple(understood)[:MAX_WORDS], tuple(word for word in words if word not in understood))


def _words(folded: str, covered: bytearray) -> Iterator[Span]:
    """Yield the spans of words; text of a script without spaces is split where its coverage changes."""
    for match in WORD.finditer(folded):
        if not _UNSPACED.search(match[0]):
            yield match.span()
            continue
        breaks = {match.start(), match.end()}
        breaks |= {at for at in range(match.start() + 1, match.end()) if covered[at] != covered[at - 1]}
        for particle in _PARTICLES.finditer(folded, *match.span()):
            if not any(covered[slice(*particle.span())]):
                breaks |= {*particle.span()}
        yield from itertools.pairwise(sorted(breaks))


def _is_empty(word: str) -> bool:
    return (
        word in FUNCTION_WORDS
        or word in _GENERAL_WORDS
        or (len(word) == 1 and word.isascii())
        or _PARTICLES.fullmatch(word) is not None
    )
