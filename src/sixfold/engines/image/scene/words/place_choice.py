"""Choice of the place to paint among the places that a prompt names."""

from __future__ import annotations

from collections.abc import Sequence

# Places in which no weather is painted.
WITHOUT_WEATHER = frozenset({"interior", "studio", "space", "moon", "mars", "underwater"})
# Places that are painted only if the prompt names only such places.
_YIELD = ("interior", "meadow", "river", "garden", "snowfield")
# Combinations of places and the place that represents each; the first match is used.
_JOINED: tuple[tuple[set[str], str], ...] = (
    ({"studio"}, "studio"),
    ({"underwater"}, "underwater"),
    ({"cave"}, "cave"),
    ({"street"}, "street"),
    ({"harbour", "city"}, "city"),
    ({"harbour"}, "harbour"),
    ({"mountains", "lake"}, "lake"),
    ({"mountains", "sea"}, "lake"),
    ({"mountains", "river"}, "river"),
    ({"mountains", "village"}, "village"),
    ({"mountains", "desert"}, "desert"),
    ({"mountains", "snowfield"}, "snowfield"),
    ({"forest", "lake"}, "lake"),
    ({"forest", "river"}, "river"),
    ({"sea", "city"}, "city"),
    ({"village", "sea"}, "harbour"),
    ({"village", "beach"}, "harbour"),
    ({"beach", "sea"}, "beach"),
)
# Places that are visible in the chosen one: snow on the ground, and the land outside a cave.
_SNOWY = frozenset({"mountains", "village", "forest", "city", "street", "lake", "river", "meadow", "garden"})


def choose(places: Sequence[str]) -> str:
    """Return the place to paint; `places` are in the prompt's order and not empty."""
    combined = next((place for pair, place in _JOINED if pair <= set(places)), None)
    return combined or sorted(places, key=lambda place: place in _YIELD)[0]


def visible_places(places: Sequence[str]) -> frozenset[str]:
    """Return the named places that are visible in the painted place."""
    if not places:
        return frozenset()
    chosen = choose(places)
    pairs = [pair for pair, place in _JOINED if pair <= set(places) and place == chosen]
    joined_places = {chosen, *(pairs[0] if pairs else ())}
    if chosen == "cave":
        return frozenset(places)
    return frozenset(joined_places | ({"snowfield"} if chosen in _SNOWY else set()))
