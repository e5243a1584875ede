"""Scores in ABC notation whose few characters stand for very long notes are rejected."""

from __future__ import annotations

import pytest

from sixfold.core.catalog.engines import UnusableInput
from sixfold.engines.audio.music import abc
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
