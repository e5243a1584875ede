"""Scores in ABC notation and lyrics: long notes are rejected, and long lines are read in linear time."""

from __future__ import annotations

import pytest

from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines.audio.music import abc, lyrics
from tests import loop_time


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("A999999999", r"lengths must have at most 4 digits \(got `999999999`\)"),
        ("A" + "9" * 5_000, "lengths must have at most 4 digits"),
        ("[AC]1/99999", "lengths must have at most 4 digits"),
        ("L:1/1\nA9999", "abc must last at most 8000 quarter notes"),
        ("M:4/4\n" + "Z" * 3_000 + "A", "abc must last at most 8000 quarter notes"),
    ],
)
def test_score_above_the_duration_limit_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(UnusableInput, match=sentence):
        abc.parse(text)


def test_a_long_tempo_is_read_without_an_error() -> None:
    assert abc.parse("Q:" + "9" * 5_000 + "/4=90\nK:C\nABc").notes


@pytest.mark.parametrize("text", ["A-", "A//", "A>>>>B"])
def test_longest_scores_are_parsed_fast(text: str) -> None:
    assert loop_time.cpu_seconds(lambda: abc.parse(text * 1_900), 2) < 2
    assert abc.parse(text * 1_900).bars <= 8_000


@pytest.mark.parametrize("text", ["|:A:|", "(9A(5B", "ABCDEFG"])
def test_scores_with_too_many_notes_are_refused_fast(text: str) -> None:
    full_text = text * ((abc.MAX_CHARS - 1) // len(text))

    def expect_refusal() -> None:
        with pytest.raises(UnusableInput, match="at most 4000 notes"):
            abc.parse(full_text)

    assert loop_time.cpu_seconds(expect_refusal, 2) < 2


def test_long_lines_of_spaces_are_read_in_linear_time() -> None:
    spaces = " " * (abc.MAX_CHARS - 20)

    def read() -> None:
        assert abc.parse(f"T:a{spaces}b\nK:C\nABc").notes
        assert lyrics.parse(f"[a{spaces}b") == lyrics.parse("a b")

    assert loop_time.cpu_seconds(read, 0.1) < 0.2


@pytest.mark.parametrize("tag", ["[ Verse ]", " [verse]", "[ ]", "[Verse 1]"])
def test_tags_of_lyrics_are_read_without_their_spaces(tag: str) -> None:
    assert lyrics.parse(f"{tag}\nla la") == [lyrics.Stanza("verse", (2,))]
