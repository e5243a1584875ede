"""Words of any script as search compares them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sixfold.core.memory.indexing import tokens


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("meetings", "meeting"),
        ("She went home", "go homes"),
        ("children", "child"),
        ("Café", "cafe"),
        ("STRASSE", "straße"),
        ("ＡＢＣ", "abc"),
        ("Ann's", "ann"),
        ("Ann’s", "ann"),
        ("2026-05-08", "8 May 2026"),
        ("дорогие", "дорогая"),
        ("مُحَمَّد", "محمد"),
        ("ΟΔΟΣ", "οδος"),
        ("Łódź", "lodz"),
        ("Ærø", "aero"),
        ("cœur", "coeur"),
        ("ılık", "ILIK"),
        ("l’hôtel", "hotel"),
        ("qu'elle d'Alsace jusqu'ici", "elle Alsace ici"),
        ("dell'arte nell'Umbria", "arte Umbria"),
    ],
)
def test_forms_of_one_word_are_one_word(first: str, second: str) -> None:
    assert set(tokens.terms(first)) == set(tokens.terms(second)) != set()


def test_an_apostrophe_that_elides_nothing_parts_no_word() -> None:
    assert tokens.words("O'Hara don't d'accord") == ["ohara", "", "accord"]


def test_words_that_say_nothing_are_left_out() -> None:
    assert tokens.terms("What did they do with it, and why didn't you?") == {}


def test_text_without_spaces_becomes_pairs_of_characters() -> None:
    assert tokens.words("東京タワー") == ["东京", "京た", "たわ", "わー"]
    assert tokens.words("水") == ["水"]
    assert "tokyo" in tokens.words("東京Tokyo")


def test_an_emoji_is_a_word() -> None:
    assert tokens.terms("🎉 party 🎉")["🎉"] == 2


def test_nothing_is_an_operator() -> None:
    assert set(tokens.terms('"tea" OR (milk* NOT sugar) NEAR/3')) == {"tea", "milk", "sugar", "near", "3"}


def test_an_impossible_date_stays_as_it_is() -> None:
    assert set(tokens.terms("2026-13-08")) == {"2026", "13", "08"}


@given(st.text(max_size=400))
def test_every_text_has_words_and_none_is_longer_than_its_limit(text: str) -> None:
    for word in tokens.words(text):
        assert len(word) <= 64
        assert word == tokens.fold(word)
