"""Lists in text form are counted before they are split, and clips before they are checked."""

from __future__ import annotations

import tracemalloc

import pytest

from sixfold.core.catalog import timeline
from sixfold.core.catalog.inputs import Descriptor, Type, check
from sixfold.core.catalog.text_values import from_text
from sixfold.errors import InvalidInput
from tests import loop_time

CHARS = 4 * 2**20


@pytest.mark.parametrize(
    ("kind", "text", "sentence"),
    [
        ("numbers", "1," * CHARS, "x must have at most 10 numbers"),
        ("series", "1," * CHARS, "x must have at most 10 values"),
        ("sizes", "1x1," * CHARS, "x must have 1 to 10 sizes"),
        ("texts", "a\n" * CHARS, "x must have at most 10 texts"),
        ("texts", "a\u2028" * CHARS, "x must have at most 10 texts"),
        ("images", "a " * CHARS, "x must have at most 10 images"),
    ],
)
def test_a_list_of_too_many_parts_is_refused_before_it_is_split(kind: Type, text: str, sentence: str) -> None:
    descriptor = Descriptor("x", kind, max_items=10)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match=sentence):
            check((descriptor,), {"x": from_text(kind, text)})
        grown = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert grown < 8 * len(text)


def test_list_without_its_own_limit_has_the_default_one() -> None:
    with pytest.raises(InvalidInput, match="x must have at most 100000 numbers"):
        check((Descriptor("x", "numbers"),), {"x": "1," * 100_001})


def test_blank_lines_of_a_text_list_are_ignored() -> None:
    text = "\n \t\n" * 100_000 + " one  \r\n\x85two\x1c" + "\n" * 100_000
    assert check((Descriptor("x", "texts", max_items=2),), {"x": text}) == {"x": ["one", "two"]}


@pytest.mark.parametrize("text", ["a" * 4 * CHARS, "ä" * 4 * CHARS])
def test_surrogate_check_of_a_long_text_is_fast(text: str) -> None:
    descriptors = (Descriptor("x", "string"),)
    assert check(descriptors, {"x": text}) == {"x": text}
    assert loop_time.cpu_seconds(lambda: check(descriptors, {"x": text}), 0.25) < 0.25


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(InvalidInput, match="x must be valid Unicode"):
        check((Descriptor("x", "string"),), {"x": "a\ud800b"})


def test_clips_of_a_project_are_counted_before_they_are_checked() -> None:
    project = {"tracks": [{"type": "text", "clips": [{"text": 1, "style": {"color": "#1"}}] * 256}] * 32}

    def expect_refusal() -> None:
        with pytest.raises(InvalidInput, match="1 to 256 clips in total"):
            timeline.check(project)

    assert loop_time.cpu_seconds(expect_refusal, 0.005) < 0.05
