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
def test_forms_of_one_word_have_equal_terms(first: str, second: str) -> None:
    assert set(tokens.terms(first)) == set(tokens.terms(second)) != set()


def test_apostrophe_without_elision_does_not_split_a_word() -> None:
    assert tokens.words("O'Hara don't d'accord") == ["ohara", "", "accord"]


def test_stop_words_are_omitted() -> None:
    assert tokens.terms("What did they do with it, and why didn't you?") == {}


def test_text_without_spaces_becomes_bigrams() -> None:
    assert tokens.words("東京タワー") == ["东京", "京た", "たわ", "わー"]
    assert tokens.words("水") == ["水"]
    assert "tokyo" in tokens.words("東京Tokyo")


def test_emoji_is_a_term() -> None:
    assert tokens.terms("🎉 party 🎉")["🎉"] == 2


def test_query_has_no_operators() -> None:
    assert set(tokens.terms('"tea" OR (milk* NOT sugar) NEAR/3')) == {"tea", "milk", "sugar", "near", "3"}


def test_invalid_date_is_split_into_numbers() -> None:
    assert set(tokens.terms("2026-13-08")) == {"2026", "13", "08"}


@given(st.text(max_size=400))
def test_words_are_folded_and_limited_in_length(text: str) -> None:
    for word in tokens.words(text):
        assert len(word) <= 64
        assert word == tokens.fold(word)
