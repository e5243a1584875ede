"""The words of a prompt, divided into those that a painted scene shows and those that it does not."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

import msgspec

from sixfold.core.catalog.prompt_words import PromptWords
from sixfold.engines import prompt_words
from sixfold.engines.image.scene import prompt_relations
from sixfold.engines.image.scene.words import color_words, place_choice
from sixfold.engines.image.scene.words.compounds import PromptTokens, WordMatch
from sixfold.engines.prompt_words import Span

# Words that individual painters look up in the prompt.
_DETAILS = re.compile(
    r"\b(?:isometric|saturn|crystals?|lavender|flowers?|aurora|marble|ribbons?|together|"
    r"empty|study|dining|workspace|bookshop)\b"
)
_COUNT_REACH = 4


class UndrawnWords(msgspec.Struct, frozen=True):
    """Words that are not drawn themselves.

    For a word or phrase in `similar`, something similar is drawn. `things` are colors that also name things.
    """

    similar: frozenset[str]
    things: frozenset[str]

    def contains(self, hit: WordMatch, tokens: PromptTokens) -> bool:
        """Return whether a match is only similar to what is drawn."""
        if hit.inside:
            return False
        names = tokens.words[hit.start : hit.end]
        if hit.end - hit.start == 1:
            # The phrases in which the word is the first or the last.
            names += [" ".join(tokens.words[at : at + 2]) for at in (hit.start - 1, hit.start) if at >= 0]
            if hit.kind == "colour" and color_words.is_thing(hit, tokens, self.things):
                return True
        return any(name in self.similar or name.removesuffix("s") in self.similar for name in names)


class SceneReading(Protocol):
    """The parts of a parsed scene that decide which words are shown."""

    @property
    def time(self) -> str | None: ...
    @property
    def weather(self) -> str | None: ...
    @property
    def shows_weather(self) -> bool: ...
    @property
    def known(self) -> bool: ...
    @property
    def has_sky(self) -> bool: ...
    @property
    def has_rainbow(self) -> bool: ...
    @property
    def has_lightning(self) -> bool: ...
    @property
    def season(self) -> str | None: ...
    @property
    def places(self) -> tuple[str, ...]: ...
    @property
    def frame(self) -> str | None: ...
    @property
    def letters(self) -> str: ...
    @property
    def link(self) -> tuple[str, str, str] | None: ...


def read(
    scene: SceneReading,
    tokens: PromptTokens,
    hits: Sequence[WordMatch],
    drawn: Collection[str],
    undrawn: UndrawnWords,
) -> PromptWords:
    """Return the words of a prompt that the scene shows, and those that it ignores.

    `hits` are all matches, of which those that the prompt negates count as understood; `drawn` are the names
    of subjects, colors, styles and walls in the scene. Words in `undrawn` count as ignored.
    """
    drawn_words = {
        scene.time,
        # Only a rainbow names fair weather.
        "fair" if scene.has_rainbow else None,
        "storm" if scene.has_lightning else None,
        None if scene.weather == "fair" or not scene.shows_weather else scene.weather,
        scene.season,
        scene.frame,
        *drawn,
        *place_choice.visible_places(scene.places),
    }
    used = [hit for hit in hits if hit.name in drawn_words or hit.kind == "backdrop"]
    exact = [hit for hit in used if not undrawn.contains(hit, tokens)]
    spans = [*_spans(exact, tokens), *(match.span() for match in _DETAILS.finditer(tokens.folded))]
    if scene.has_sky and scene.known:
        spans += (tokens.spans[at] for at, word in enumerate(tokens.words) if word in color_words.SKY_WORDS)
    spans += _lettering(scene.letters, tokens.folded)
    if any(hit.kind == "subject" for hit in used):
        spans += _modifiers(used, tokens, linked=scene.link is not None)
    return prompt_words.of_spans(tokens.folded, spans)


def _spans(hits: Sequence[WordMatch], tokens: PromptTokens) -> Iterator[Span]:
    for hit in hits:
        yield from [(hit.start, hit.end)] if hit.inside else tokens.spans[hit.start : hit.end]


def _lettering(letters: str, folded: str) -> Iterator[Span]:
    at = folded.find(prompt_words.fold(letters)) if letters else -1
    if at >= 0:
        yield at, at + len(letters)


def _modifiers(hits: Sequence[WordMatch], tokens: PromptTokens, *, linked: bool) -> Iterator[Span]:
    """Yield the spans of numbers before subjects, of worn parts, and of words that link subjects."""
    subjects = [hit for hit in hits if hit.kind == "subject" and not hit.inside]
    counted = {at for hit in subjects for at in range(max(0, hit.start - _COUNT_REACH), hit.start)}
    links = prompt_relations.LINK_WORDS if linked else frozenset[str]()
    for at, word in enumerate(tokens.words):
        is_number = at in counted and prompt_relations.is_drawn_number(word)
        if is_number or word in prompt_relations.WORN_ROLES or word in links:
            yield tokens.spans[at]
