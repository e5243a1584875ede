"""Byte ranges against a plain reading of the standard."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from sixfold.web import files
from sixfold.web.files import ByteSpan, RangeNotSatisfiable


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
