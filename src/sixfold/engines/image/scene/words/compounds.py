"""Detection of the heads of English compounds: a dog collar is not a dog.

In a compound the last noun names the object, and the preceding nouns describe the object. A subject that only
describes an unknown object is not drawn, and its words count as ignored.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sixfold.engines import compound_nouns
from sixfold.engines.image.scene import prompt_relations
from sixfold.engines.prompt_words import Span


class WordMatch(msgspec.Struct, frozen=True):
    """A match of the parser: its kind, its canonical name, and the tokens that it covers."""

    kind: str
    name: str
    start: int
    end: int
    # True if start and end count characters, as in scripts without spaces, instead of tokens.
    inside: bool = False


class PromptTokens(msgspec.Struct, frozen=True):
    """The tokens of a folded prompt, with the span of each in it.

    `joined` is True if a token follows the one before it without punctuation.
    """

    folded: str
    words: list[str]
    spans: list[Span]
    joined: list[bool]


_INDOORS = frozenset({"interior"})
_OUTDOORS = frozenset(
    {"sea", "beach", "river", "garden", "meadow", "street", "harbour", "canyon", "mountains"}
)
_FURNITURE = frozenset({"table", "desk", "window", "room", "library"})
# Nouns of weather that describe an unknown object, such as a snow globe. A rainbow also describes known ones.
_WEATHER_NOUNS = frozenset(
    {"rain", "storm", "snow", "lightning", "thunder", "fog", "mist", "cloud", "moon", "star", "rainbow"}
)
_SKIES = frozenset({"weather", "time"})
# Parts of a subject that are drawn with it.
_PARTS = frozenset({"roof", "sail", "sails", "hair", "haired", "eyes", "eyed"})
_BEINGS = prompt_relations.PEOPLE | {"robot", "bust_man", "bust_woman"}
_YOUNG = frozenset({"baby", "toddler", "kid"})


def heads(hits: Sequence[WordMatch], tokens: PromptTokens) -> list[WordMatch]:
    """Return the hits without those that only describe the head of a compound."""
    if not compound_nouns.is_english(tokens.words):
        return list(hits)
    by_start = {hit.start: hit for hit in hits}
    dropped = {id(hit) for hit in hits if _describes(hit, by_start.get(hit.end), tokens)}
    if "kitchen" in tokens.words:
        dropped |= {id(hit) for hit in hits if "island" in tokens.words[hit.start : hit.end]}
    dropped |= {id(after) for hit in hits if (after := _misplaced(hit, by_start, tokens)) is not None}
    return [hit for hit in hits if id(hit) not in dropped]


def _adjoins(hit: WordMatch, tokens: PromptTokens) -> bool:
    return hit.end < len(tokens.words) and tokens.joined[hit.end]


def _describes(hit: WordMatch, after: WordMatch | None, tokens: PromptTokens) -> bool:
    """Return whether the hit, a subject or the weather, describes the noun after it."""
    if not _adjoins(hit, tokens) or (hit.kind != "subject" and hit.kind not in _SKIES):
        return False
    words = tokens.words
    if hit.kind in _SKIES:
        is_noun = hit.end - hit.start == 1 and words[hit.start] in _WEATHER_NOUNS
        if is_noun and words[hit.start] == "rainbow" and after is not None:
            return after.kind == "subject"
        return is_noun and after is None and _is_noun(words, hit)
    if after is None:
        return hit.name not in _BEINGS and _is_noun(words, hit)
    if after.kind == "subject" and after.name != hit.name:
        if words[hit.start] in _YOUNG:
            return True
        return not {hit.name, after.name} & _BEINGS
    if after.kind in _SKIES:
        return words[after.start] in _WEATHER_NOUNS
    return after.kind == "place" and words[after.start] in _FURNITURE


def _misplaced(hit: WordMatch, by_start: dict[int, WordMatch], tokens: PromptTokens) -> WordMatch | None:
    """Return the outdoor place that is an object in the room named before it (a kitchen island), or None."""
    after = by_start.get(hit.end)
    if after is None or not _adjoins(hit, tokens) or hit.kind != "place" or after.kind != "place":
        return None
    return after if hit.name in _INDOORS and after.name in _OUTDOORS else None


def _is_noun(words: Sequence[str], hit: WordMatch) -> bool:
    word = words[hit.end]
    if word in prompt_relations.IGNORED_WORDS or word in _PARTS or prompt_relations.is_number(word):
        return False
    return compound_nouns.is_head(words, hit.end)
