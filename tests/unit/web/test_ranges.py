"""Byte ranges against a plain reading of the standard."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sixfold.web import files
from sixfold.web.files import ByteSpan, RangeNotSatisfiable
from tests.loop_time import cpu_seconds


@given(st.integers(0, 50), st.integers(0, 60), st.integers(0, 60))
def test_range_is_within_the_file_and_as_requested(size: int, first: int, last: int) -> None:
    data = bytes(range(size))
    try:
        span = files.parse_range(f"bytes={first}-{last}", size)
    except RangeNotSatisfiable:
        assert first >= size
        return
    if span is None:
        assert last < first
    else:
        assert data[span.start : span.start + span.length] == data[first : last + 1]
        assert span.length > 0


@given(st.integers(0, 50), st.integers(0, 60))
def test_suffix_range_is_the_end_of_the_file(size: int, count: int) -> None:
    try:
        span = files.parse_range(f"bytes=-{count}", size)
    except RangeNotSatisfiable:
        assert min(size, count) == 0
        return
    assert span == ByteSpan(size - min(size, count), min(size, count))


@given(st.text(max_size=60), st.integers(0, 50))
def test_any_header_gives_a_valid_range_or_none(header: str, size: int) -> None:
    span = None
    with contextlib.suppress(RangeNotSatisfiable):
        span = files.parse_range(header, size)
    assert span is None or 0 <= span.start < span.start + span.length <= size


@pytest.mark.parametrize(
    "header",
    [
        "bytes=1-" + " " * 60_000 + "x",
        "bytes=" + " " * 60_000 + "x",
        "bytes" + " " * 20_000 + "=1" + " " * 20_000 + "-2" + " " * 20_000 + "x",
    ],
    ids=["after the dash", "before the dash", "everywhere"],
)
def test_header_of_spaces_takes_linear_time(header: str) -> None:
    assert cpu_seconds(lambda: files.parse_range(header, 10), 0.01) < 0.05
    assert files.parse_range(header, 10) is None


def test_spaces_around_a_range_are_ignored() -> None:
    assert files.parse_range(" bytes = 2 - 5 ", 10) == ByteSpan(2, 4)
    assert files.parse_range("bytes= - 3 ", 10) == ByteSpan(7, 3)
    assert files.parse_range("bytes=-", 10) is None
