"""The cards of the catalog: one for each ability, with its models as variants, ready ones first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from sixfold.core.catalog.models import Model
from sixfold.ui.catalog import abilities
from sixfold.ui.catalog.abilities import Ability
from sixfold.ui.catalog.example_outputs import ExampleOutput

# The sections of the page, with the template categories and output kinds of their models.
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Images": ("Image", "image"),
    "Videos": ("Video", "video"),
    "Audio": ("Audio", "audio"),
    "3D models": ("3D", "model3d"),
    "Text and data": ("Text", "text", "json"),
    "Files": ("file",),
    "Workflows": (),
}
HUES = dict(
    zip(SECTIONS, ("media", "gateway", "imagekit", "hosting", "memory", "quietly", "workflows"), strict=True)
)
# Earlier names of sections, which links may still use.
_OLD_SECTIONS = {
    "Pictures": "Images",
    "Films": "Videos",
    "Sound": "Audio",
    "Things": "3D models",
    "Words and numbers": "Text and data",
}
# Models for internal use by other APIs.
_INTERNAL = ("graph-", "create_image")
_WORKFLOW = "space:"
_QUALITIES = ("full", "preview", "")


class CatalogCard(msgspec.Struct, frozen=True):
    """A model in the catalog; `quality` is full, preview, or "" if no engine can run it here."""

    model: Model
    section: str
    price: str
    quality: str
    unlock: str
    session: bool
    image: str = ""
    example: ExampleOutput | None = None

    @property
    def hue(self) -> str:
        """The CSS class for the color of the card."""
        return HUES[self.section]

    @property
    def state(self) -> str:
        """The quality in words."""
        words = {"full": "ready", "preview": "preview"}.get(self.quality, "needs a model or a key")
        return f"{words}, live sessions" if self.session else words

    @property
    def words(self) -> str:
        """The words by which a search in the catalog finds this model."""
        return " ".join(sorted(abilities.words_for(self.model)))


class AbilityCard(msgspec.Struct, frozen=True):
    """A card with the models of one ability, at least one; `title` is empty for a single model."""

    title: str
    variants: tuple[CatalogCard, ...]

    @property
    def first(self) -> CatalogCard:
        """The variant that the card leads to."""
        return self.variants[0]

    @property
    def section(self) -> str:
        return self.first.section

    @property
    def ready(self) -> bool:
        """Whether an engine can run one of the variants here."""
        return bool(self.first.quality)

    @property
    def sample(self) -> CatalogCard:
        """The first variant with an example image, or else the first variant."""
        return next((each for each in self.variants if each.example or each.image), self.first)


def current_section(name: str) -> str:
    return _OLD_SECTIONS.get(name, name)


def section_of(model: Model, category: str | None) -> str:
    """Return the section of a model; `category` is that of its template."""
    if model.name.startswith(_WORKFLOW):
        return "Workflows"
    kinds = (model.output_kind, "file") if category is None else (category,)
    return next(name for name, outputs in SECTIONS.items() if set(kinds) & set(outputs))


def has_card(model: Model) -> bool:
    """Return whether a model has a card; models for internal use do not."""
    return not model.name.startswith(_INTERNAL)


def by_ability(cards: Sequence[CatalogCard]) -> list[AbilityCard]:
    """Return one card for each ability, ready ones first, in the order of the table."""
    groups: dict[str, tuple[Ability | None, list[CatalogCard]]] = {
        ability.title: (ability, []) for ability in abilities.all_abilities()
    }
    for card in cards:
        ability = abilities.ability_of(card.model.name)
        key = f"model {card.model.name}" if ability is None else ability.title
        groups.setdefault(key, (ability, []))[1].append(card)
    ability_cards = [_ability_card(ability, group) for ability, group in groups.values() if group]
    return sorted(ability_cards, key=lambda each: not each.ready)


def _ability_card(ability: Ability | None, group: list[CatalogCard]) -> AbilityCard:
    def order(card: CatalogCard) -> tuple[int, int]:
        place = 0 if ability is None else ability.models.index(card.model.name)
        return _QUALITIES.index(card.quality), place

    title = "" if ability is None or len(ability.models) == 1 else ability.title
    return AbilityCard(title, tuple(sorted(group, key=order)))


def filter_cards(cards: Iterable[AbilityCard], query: str, section: str) -> list[AbilityCard]:
    """Return the cards of a section with the variants that match a search; "" matches all."""
    words = abilities.query_words(query)
    filtered = (
        replace(card, variants=tuple(each for each in card.variants if _matches(each, words)))
        for card in cards
        if section in ("", card.section)
    )
    return [card for card in filtered if card.variants]


def _matches(card: CatalogCard, words: Sequence[str]) -> bool:
    return not words or abilities.matches(abilities.words_for(card.model), words)
