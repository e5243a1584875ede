"""The words of a prompt, divided into those that a painted scene shows and those that it does not."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from sixfold.core.catalog.prompt_words import PromptWords
from sixfold.engines import prompt_words
from sixfold.engines.image.scene import prompt_relations
from sixfold.engines.image.scene.words import place_choice
from sixfold.engines.image.scene.words.compounds import PromptTokens, WordMatch
from sixfold.engines.prompt_words import Span

# Words that individual painters look up in the prompt.
_DETAILS = re.compile(
    r"\b(?:isometric|saturn|crystals?|lavender|tulips?|popp(?:y|ies)|flowers?|aurora|marble|ribbons?|together|"
    r"empty|study|dining|workspace|bookshop)\b"
)
_COUNT_REACH = 4


class SceneReading(Protocol):
    """The parts of a parsed scene that decide which words are shown."""

    @property
    def time(self) -> str | None: ...
    @property
    def weather(self) -> str | None: ...
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
    approximate: Collection[str],
) -> PromptWords:
    """Return the words of a prompt that the scene shows, approximates and ignores.

    `hits` are all matches, of which those that the prompt negates count as understood; `drawn` are the names
    of subjects, colors, styles and walls in the scene. For words in `approximate`, something similar is
    drawn.
    """
    drawn_words = {
        scene.time,
        scene.weather,
        scene.season,
        scene.frame,
        *drawn,
        *place_choice.visible_places(scene.places),
    }
    used = [hit for hit in hits if hit.name in drawn_words or hit.kind == "backdrop"]
    exact = [hit for hit in used if not _is_approximate(hit, tokens, approximate)]
    spans = [*_spans(exact, tokens), *(match.span() for match in _DETAILS.finditer(tokens.folded))]
    spans += _lettering(scene.letters, tokens.folded)
    if any(hit.kind == "subject" for hit in used):
        spans += _modifiers(used, tokens, linked=scene.link is not None)
    return prompt_words.of_spans(tokens.folded, spans)


def _spans(hits: Sequence[WordMatch], tokens: PromptTokens) -> Iterator[Span]:
    for hit in hits:
        yield from [(hit.start, hit.end)] if hit.inside else tokens.spans[hit.start : hit.end]


def _is_approximate(hit: WordMatch, tokens: PromptTokens, approximate: Collection[str]) -> bool:
    words = tokens.words[hit.start : hit.end]
    return not hit.inside and any(
        word in approximate or word.removesuffix("s") in approximate for word in words
    )


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
