"""The weather of a scene, and its moon and lightning, by the words for the night and for storms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sixfold.engines.image.scene.words.compounds import PromptTokens, WordMatch

# Weathers that another named weather replaces, by their order. A rainbow alone means fair weather.
_MILD = {"clear": 1, "cloudy": 1, "fair": 2}
# Weathers that lightning does not replace with a storm.
_WITH_LIGHTNING = frozenset({"rain", "snow", "fog"})
_MOONS = frozenset({"luna", "lune", "mond", "луна"})
_BOLTS = frozenset({"orage", "gewitter", "blitz", "闪电", "雷", "гроза"})


def choose(names: Sequence[str], *, has_lightning: bool) -> str | None:
    """Return the weather of a scene whose prompt names these weathers."""
    if has_lightning:
        names = [name for name in names if name != "storm"]
    return min(names, key=lambda name: _MILD.get(name, 0), default=None)


def names_lightning(hits: Sequence[WordMatch], tokens: PromptTokens) -> bool:
    """Return whether a prompt names lightning in a weather other than a storm."""
    return any(hit.name in _WITH_LIGHTNING for hit in hits) and any(
        word in _BOLTS or word.startswith(("lightning", "thunder")) for word in _words(hits, tokens, "storm")
    )


def names_moon(hits: Sequence[WordMatch], tokens: PromptTokens) -> bool:
    """Return whether a word for the night names the moon, as `moonlit` does."""
    return any(word in _MOONS or word.startswith(("moon", "月")) for word in _words(hits, tokens, "night"))


def _words(hits: Iterable[WordMatch], tokens: PromptTokens, name: str) -> Iterable[str]:
    for hit in hits:
        if hit.name == name and hit.inside:
            yield tokens.folded[hit.start : hit.end]
        elif hit.name == name:
            yield from tokens.words[hit.start : hit.end]
