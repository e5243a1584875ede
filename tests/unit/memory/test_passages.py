"""Passages of a body, and their snippets."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sixfold.core.memory.indexing import chunks, tokens
from sixfold.core.memory.search import snippets

LONG = "\n\n".join(f"Paragraph {n} is about topic{n}. " + "It goes on for a while. " * 12 for n in range(20))


def snippet_of(body: str, words: str, chars: int = 200, passage: int = 0) -> str:
    return snippets.of_body(body, passage, tokens.terms(words), chars)


def test_a_short_body_is_one_passage() -> None:
    assert chunks.split("A note.") == ((0, 7),)
    assert chunks.split("") == ((0, 0),)


def test_heading_starts_a_passage() -> None:
    body = "x " * 300 + "\n\n## Second\n\n" + "y " * 300
    assert [body[start:end].lstrip()[:9] for start, end in chunks.split(body)][1] == "## Second"


def test_body_without_breaks_is_split() -> None:
    passages = chunks.split("a" * 10_000)
    assert len(passages) > 4
    assert max(end - start for start, end in passages) <= 2 * chunks.TARGET_CHARS


def test_number_of_passages_is_limited() -> None:
    assert len(chunks.split("# h\n\n" + "word " * 600_000)) == chunks.MAX_PASSAGES


@given(st.text(alphabet=st.sampled_from("ab #\n.。東 "), max_size=6_000))
def test_passages_cover_the_body_without_a_gap(body: str) -> None:
    passages = chunks.split(body)
    assert "".join(body[start:end] for start, end in passages) == body


def test_a_snippet_marks_every_form_of_the_words() -> None:
    assert snippet_of("She met them; meetings are long.", "meeting") == "She «met» them; «meetings» are long."


def test_snippet_marks_irregular_forms() -> None:
    assert snippet_of("Went home. A better day, they said; the worst is over.", "go good bad say") == (
        "«Went» home. A «better» day, they «said»; the «worst» is over."
    )
    assert snippet_of("Émile's café", "emile cafe") == "«Émile's» «café»"


@given(st.from_regex(r"[a-z0-9]{1,14}", fullmatch=True))
def test_initial_of_a_word_is_one_of_its_stem(word: str) -> None:
    stem = tokens.stem(word)
    assert not stem or word[0] in tokens.initials(frozenset({stem}))


@given(st.from_regex(r"[a-z0-9]{1,12}(?:ing|ied|ies|ying|ed|s|ly|ational|'s|n't)?", fullmatch=True))
@example("dying").via("the only word whose stem, die, changes more than the last letter")
@example("went").via("an irregular form")
def test_word_begins_with_a_beginning_of_its_stem(word: str) -> None:
    stem = tokens.stem(word)
    assert not stem or f" {word}".startswith(tuple(tokens.beginnings(frozenset({stem}))))


def test_a_snippet_marks_words_with_apostrophes() -> None:
    assert snippet_of("It's 'Ann's' o'clock, 'ann'", "oclock ann") == "It's '«Ann's»' «o'clock», '«ann»'"


def test_snippet_contains_the_matched_words() -> None:
    result = snippet_of(LONG, "topic7", passage=2)
    assert "topic" in result
    assert result.startswith("…")
    assert result.endswith("…")


def test_snippet_prefers_the_text_with_most_query_words() -> None:
    body = "green tea. " + "filler words go here. " * 20 + "green tea with honey and lemon. " + "more. " * 50
    assert "«honey»" in snippet_of(body, "green tea honey lemon", 80)


def test_snippet_has_at_most_its_length() -> None:
    for chars in (20, 80, 300):
        result = snippet_of(LONG, "topic3 while", chars, 1)
        assert len(result.replace("«", "").replace("»", "")) <= chars + 2
    for chars in range(1, 60):
        assert len(snippet_of(LONG, "topic3 while", chars, 1)) <= chars
        result = snippet_of("tea " * 90, "tea", chars)
        assert len(result) <= chars
        assert result.count("«") == result.count("»")


def test_snippet_marks_are_distinct_from_those_of_the_text() -> None:
    assert snippet_of("<b>tea</b> «tea»", "tea") == "<b>«tea»</b> ‹«tea»›"


def test_snippet_of_zero_characters_is_empty() -> None:
    assert snippet_of("tea", "tea", 0) == ""


def test_a_snippet_marks_words_of_scripts_without_spaces() -> None:
    assert snippet_of("私は東京タワーが好きです", "東京タワー") == "私は«東京タワー»が好きです"


@pytest.mark.parametrize("body", ["", "\n\n", "…", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 " * 40])
def test_snippet_without_a_match_is_the_start_of_the_text(body: str) -> None:
    assert snippet_of(body, "zebra", 50) == snippet_of(body, "", 50)
