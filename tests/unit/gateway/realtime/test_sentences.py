"""Sentences of a text that is being written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sixfold.core.gateway.realtime.sentences import MAX_CHARS, SentenceSplitter


def split(text: str, size: int) -> list[str]:
    splitter = SentenceSplitter()
    sentences = [each for at in range(0, len(text), size) for each in splitter.feed(text[at : at + size])]
    return [*sentences, splitter.rest()]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three", ["One. ", "Two! ", "Three"]),
        ("It costs 3.50 at Dr. Smith's. Yes.", ["It costs 3.50 at Dr. Smith's. ", "Yes."]),
        ("1. First\n2. Second", ["1. First\n", "2. Second"]),
        ("She said “no.” Then?", ["She said “no.” ", "Then?"]),
        ("你好。再见。", ["你好。", "再见。", ""]),
    ],
)
def test_a_sentence_is_returned_at_its_end(text: str, sentences: list[str], size: int) -> None:
    assert split(text, size) == sentences


@given(st.text(alphabet="ab .!?\n1。", max_size=2000), st.integers(1, 700))
def test_joined_sentences_equal_the_text(text: str, size: int) -> None:
    sentences = split(text, size)
    assert "".join(sentences) == text
    assert max(map(len, sentences)) <= 2 * MAX_CHARS


def test_long_text_without_an_end_is_divided_at_a_space() -> None:
    first, *_ = split("word " * 100, 7)
    assert MAX_CHARS - 5 <= len(first) <= MAX_CHARS
    assert first.endswith("word ")
