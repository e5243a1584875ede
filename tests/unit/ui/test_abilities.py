"""Search words of the catalog lead to the expected models."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase

import pytest

from sixfold.app import catalog as app_catalog
from sixfold.core.catalog.models import Catalog
from sixfold.settings import Settings
from sixfold.ui.catalog import abilities
from sixfold.ui.catalog.cards import CatalogCard, by_ability, filter_cards, has_card, section_of

SEARCHES = {
    "cutout": {"bg-remover", "remove-background", "remove-background-video"},
    "remove bg": {"bg-remover", "remove-background", "remove-background-video"},
    "talk": {"tts", "tts-b", "speech-to-speech", "chat"},
    "transcribe": {"stt", "space:speech-to-text"},
    "make a GIF": {"video-c", "video-image", "render", "media-encode"},
    "logos": {"ra1", "vectorizer"},
    "upscale": {"upscaler", "space:image-upscale"},
    "voice": {"tts", "tts-a", "stt", "speech-to-speech"},
    "subtitles": {"stt", "render"},
    "3d": {"text-to-3d", "image-to-3d-pbr", "image-to-3d-voxel", "space:text-to-3d", "world-model"},
    "image": {"ra1", "ra2", "anime"},
    "karaoke": {"stem-separator"},
    "watermark": {"inpaint-cleaner"},
}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    settings = Settings(data_dir=tmp_path_factory.mktemp("data"))
    return app_catalog.catalog(settings, app_catalog.price_table(settings))


def cards_of(catalog: Catalog, qualities: dict[str, str] | None = None) -> list[CatalogCard]:
    """Return the cards of all models; `qualities` has those that are not full."""
    return [
        CatalogCard(model, section_of(model, None), "", (qualities or {}).get(model.name, "full"), "", False)
        for model in catalog.models()
        if has_card(model)
    ]


@pytest.mark.parametrize("query", SEARCHES)
def test_a_search_finds_the_models_for_a_task_by_its_synonyms(catalog: Catalog, query: str) -> None:
    cards = filter_cards(by_ability(cards_of(catalog)), query, "")
    names = {variant.model.name for card in cards for variant in card.variants}
    assert SEARCHES[query] <= names
    assert len(names) < len(catalog.models())


def test_unknown_words_match_no_card_and_no_words_match_all(catalog: Catalog) -> None:
    cards = by_ability(cards_of(catalog))
    assert filter_cards(cards, "xyzzy", "") == []
    assert filter_cards(cards, "  ", "") == cards
    assert filter_cards(cards, "to", "") != []


def test_the_table_names_models_that_exist_each_on_one_card(catalog: Catalog) -> None:
    names = {model.name for model in catalog.models()}
    counts = Counter(model for ability in abilities.all_abilities() for model in ability.models)
    assert [name for name, count in counts.items() if count > 1] == []
    assert counts.keys() - names == set()
    patterns = {name for ability in abilities.all_abilities() for name in ability.also}
    assert [each for each in patterns if not any(fnmatchcase(name, each) for name in names)] == []


def test_capability_is_one_card_with_available_variants_first(catalog: Catalog) -> None:
    cards = by_ability(cards_of(catalog, {"tts": "preview", "tts-b": ""}))
    speech = [card for card in cards if card.title == "Speech from text"]
    assert [[each.model.name for each in card.variants] for card in speech] == [
        ["tts-b-gpu", "tts-a", "tts", "tts-b"]
    ]
    assert cards[-1].ready
    models = [variant.model.name for card in cards for variant in card.variants]
    assert sorted(models) == sorted(model.name for model in catalog.models() if has_card(model))


def test_cards_without_an_engine_are_last(catalog: Catalog) -> None:
    cards = by_ability(cards_of(catalog, {"chat": "", "text-llm": "", "ra1": ""}))
    assert cards[-1].title == "Chat"
    assert not cards[-1].ready
    assert cards[0].title == "Image from a prompt"
    assert cards[0].first.model.name == "ra2"
