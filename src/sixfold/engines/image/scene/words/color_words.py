"""Assignment of the colors in a prompt to subjects, land, backgrounds and the whole image."""

from __future__ import annotations

from collections.abc import Sequence

from sixfold.engines.image.scene import prompt_relations
from sixfold.engines.image.scene.words import place_choice
from sixfold.engines.image.scene.words.compounds import PromptTokens, WordMatch

# Places whose ground or water can have a separate color.
_WATERS = frozenset({"lake", "river", "sea"})
_TINTED = _WATERS | {"mountains", "meadow", "garden", "village", "desert", "canyon", "beach", "snowfield"}
# Places that always have this color.
_NATURAL = frozenset({("forest", "green")})
_HUES = frozenset(
    {"red", "orange", "yellow", "gold", "green", "teal", "blue", "purple", "pink", "brown", "white"}
    | {"black", "grey"}
)
# White clouds, for example, do not make the image white.
_OWNERS = frozenset({"weather", "subject", "backdrop"})
SKY_WORDS = frozenset({"sky", "skies"})
_ARTICLES = frozenset({"a", "an", "one", "two", "three", "four", "five", "six", "seven", "some"})
_AFTER_NOUNS = frozenset(
    {"on", "in", "under", "over", "beside", "near", "with", "at", "by", "from", "behind"}
)


def of_subjects(hits: Sequence[WordMatch]) -> dict[WordMatch, str]:
    """Return the color of each subject: the color directly before it, or one word earlier."""
    ends = {hit.end: hit.name for hit in hits if hit.kind == "colour"}
    covered = {at for hit in hits for at in range(hit.start, hit.end)}
    owned: dict[WordMatch, str] = {}
    for hit in hits:
        if hit.kind == "subject":
            near = hit.start if hit.start in ends or hit.start - 1 in covered else hit.start - 1
            if near in ends:
                owned[hit] = ends[near]
    return owned


def of_places(hits: Sequence[WordMatch]) -> dict[str, str]:
    """Return the color of each place, as in "green hills", without those that color the whole image."""
    ends = {hit.end: hit.name for hit in hits if hit.kind == "colour" and hit.name in _HUES}
    owned: dict[str, str] = {}
    for hit in hits:
        color = ends.get(hit.start) if hit.kind == "place" else None
        if color is not None and (hit.name in _TINTED or (hit.name, color) in _NATURAL):
            owned.setdefault(hit.name, color)
    return owned


def of_ground(places: Sequence[str], colors: dict[str, str]) -> str | None:
    """Return the color of the land or water in the place to paint; `colors` are those of the places.

    A bay in front of mountains, for example, is painted as a lake.
    """
    chosen = place_choice.choose(places) if places else ""
    same = _WATERS if chosen in _WATERS else {chosen}
    return next((color for place, color in colors.items() if place in same), None)


def of_backdrop(hits: Sequence[WordMatch]) -> str | None:
    """Return the color next to a word for the background, as in `white background`, or None."""
    placed = any(h.kind == "place" for h in hits)
    for hit in (h for h in hits if h.kind == "backdrop" and (h.name == "plain" or not placed)):
        for color in (h for h in hits if h.kind == "colour"):
            if 0 <= hit.start - color.end < 2 or 0 <= color.start - hit.end < 1:
                return color.name
    return None


def of_sky(hits: Sequence[WordMatch], tokens: Sequence[str]) -> str | None:
    """Return the color directly before a word for the sky, or None."""
    colors = (hit for hit in hits if hit.kind == "colour" and hit.name in _HUES)
    return next((hit.name for hit in colors if _following(hit, tokens) in SKY_WORDS), None)


def of_image(
    hits: Sequence[WordMatch], tokens: PromptTokens, things: frozenset[str], sky: str | None
) -> list[WordMatch]:
    """Return the colors of the image as a whole.

    A color of a place, a color directly before an unknown noun, and a color that is itself a noun, such as a
    lemon, are left out, as is that of the sky if it is painted in the color `sky`.
    """
    starts = {hit.start: hit for hit in hits}
    places = of_places(hits)

    def is_free(hit: WordMatch) -> bool:
        following, after = _following(hit, tokens.words), starts.get(hit.end)
        if after is not None and (after.kind in _OWNERS or places.get(after.name) == hit.name):
            return False
        if after is not None and after.name == "spring":
            # The word may be "blossoms", which have a color of their own.
            return False
        if is_thing(hit, tokens, things) or (sky == hit.name and following in SKY_WORDS):
            return False
        return prompt_relations.is_whole_image(following, after is not None)

    return [hit for hit in hits if hit.kind == "colour" and is_free(hit)]


def is_thing(hit: WordMatch, tokens: PromptTokens, things: frozenset[str]) -> bool:
    """Return whether a color is a noun, such as in "a ripe lemon on a table" or "olives".

    `things` are the words for colors that also name things.
    """
    if hit.inside or hit.end - hit.start > 1:
        return False
    word = tokens.words[hit.start]
    if word.removesuffix("s") not in things:
        return False
    is_last = hit.end == len(tokens.words) or not tokens.joined[hit.end]
    is_counted = any(before in _ARTICLES for before in tokens.words[max(0, hit.start - 2) : hit.start])
    return (is_last or tokens.words[hit.end] in _AFTER_NOUNS) and (is_counted or word not in things)


def _following(hit: WordMatch, tokens: Sequence[str]) -> str | None:
    return tokens[hit.end] if hit.end < len(tokens) else None
